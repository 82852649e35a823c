"""How a command line ends."""

import subprocess
import sys

import pytest
from conftest import ROOT

BEGIN = "import sys; from train.errors import UserError, exit_status\n"


def run(body: str, **keywords) -> subprocess.CompletedProcess:
    program = f"{BEGIN}def command():\n    {body}\nsys.exit(exit_status(command))"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, timeout=60, **keywords)


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ("return 0", 0, b""),
        ("return 130", 130, b""),
        ("raise UserError('a knob is wrong')", 2, b"error: a knob is wrong\n"),
        ("raise UserError('two\\nlines')", 2, b"error: two\\nlines\n"),
        ("open('/no/such/file')", 2, b"error: /no/such/file: No such file or directory\n"),
        (
            "raise OSError(28, 'No space left on device')",
            2,
            b"error: the disk or the system: No space left on device\n",
        ),
    ],
)
def test_status_and_line(body, status, line):
    done = run(body)
    assert (done.returncode, done.stderr) == (status, line)


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_streams_are_no_error(closed):
    program = f"{BEGIN}def command():\n    print('x', sys.stdout.fileno(), sys.stderr.fileno()); return 7\n"
    line = f'exec "$0" -c "$1" {closed}'
    command = ["bash", "-c", line, sys.executable, f"{program}sys.exit(exit_status(command))"]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 7


def test_a_fault_of_the_program_is_not_told_as_a_fault_of_the_user():
    done = run("raise ValueError('a bug')")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr


def test_a_reader_that_has_gone_is_worth_no_word():
    program = f"{BEGIN}def command():\n    print('x\\n' * 10**6)\n    return 0\nsys.exit(exit_status(command))"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, b"")
