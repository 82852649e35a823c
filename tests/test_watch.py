import os
import signal
import subprocess
import sys

import pytest

from train.watch import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_further_ones_change_nothing(number, capfd):
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    try:
        with Stop() as stop:
            assert stop.signal == 0
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.signal == number
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for each, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(each, handler)
    assert capfd.readouterr().err.count("stopping") == 1


def test_without_a_signal_the_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with Stop():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_watchdog_ends_a_program_that_does_not_come_back():
    program = (
        "import time\n"
        "from train.watch import Watchdog\n"
        "def never_comes_back():\n"
        "    time.sleep(60)\n"
        "with Watchdog(0.2).watching():\n"
        "    never_comes_back()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "error: no answer from the device for 0.2 s (run.patience); the same command goes on"
    )
    assert "Timeout" in ended.stderr
    assert "never_comes_back" in ended.stderr


def test_the_watchdog_leaves_in_peace_what_comes_back_in_time():
    program = (
        "import time\n"
        "from train.watch import Watchdog\n"
        "dog = Watchdog(0.3)\n"
        "for _ in range(4):\n"
        "    with dog.watching():\n"
        "        time.sleep(0.15)\n"
        "time.sleep(0.4)\n"
        "dog._slowest = 1.0\n"  # thirty times that may be waited for, whatever the patience
        "with dog.watching():\n"
        "    time.sleep(0.5)\n"
        "print('well')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "well\n")
