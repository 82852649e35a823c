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


NEVER = (
    "import pathlib, sys, time\n"
    "from train.watch import Watchdog\n"
    "def never_comes_back():\n"
    "    time.sleep(60)\n"
    "with Watchdog(0.2, *map(pathlib.Path, sys.argv[1:])).watching():\n"
    "    never_comes_back()\n"
)
REMEDIES = (
    "error: no answer from the device for 0.2 s; the same command goes on; if it was still compiling, or the machine"
    " was busy, add a larger --config.run.patience; stacks: "
)


def ended(*arguments) -> str:
    """Standard error of a process that the watchdog ended."""
    command = [sys.executable, "-c", NEVER, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_the_watchdog_ends_what_does_not_come_back_with_one_line_and_stacks_in_a_file(tmp_path):
    stacks = tmp_path / "今日" / "stacks.txt"
    stacks.parent.mkdir()
    stacks.write_text("of an earlier launch")
    assert ended(stacks) == f"{REMEDIES}{stacks}\n"
    assert "never_comes_back" in stacks.read_text()
    assert "earlier" not in stacks.read_text()


def test_without_a_file_that_can_be_written_the_stacks_follow_the_line(tmp_path):
    for arguments, place in (
        ((), "below"),
        ((tmp_path / "no" / "f",), f"below, as {tmp_path}/no/f cannot be written (No such file or directory)"),
    ):
        line, _, stacks = ended(*arguments).partition("\n")
        assert line == f"{REMEDIES}{place}"
        assert "never_comes_back" in stacks


def test_what_holds_the_interpreter_is_ended_too():
    program = (
        "import ctypes, train.watch\n"
        "train.watch.SPEAKING_SECONDS = 0.2\n"
        "with train.watch.Watchdog(0.2).watching():\n"
        "    ctypes.PyDLL(None).sleep(60)\n"  # unlike CDLL, this keeps the interpreter to itself
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert "Timeout" in done.stderr


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
