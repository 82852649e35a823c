"""How a command line ends."""

import importlib.util
import re
import subprocess
import sys

import pytest
from conftest import ROOT

from train.errors import UserError, check_file

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


def test_a_file_to_write_needs_a_folder_and_a_name(tmp_path):
    check_file("--json", None)
    check_file("--json", tmp_path / "new.jsonl")
    with pytest.raises(UserError, match=re.escape(f"--json={tmp_path}/no/x: there is no folder {tmp_path}/no")):
        check_file("--json", tmp_path / "no" / "x")
    with pytest.raises(UserError, match=re.escape(f"--json={tmp_path}: is a folder; name a file")):
        check_file("--json", tmp_path)


@pytest.mark.parametrize("name", ["diagnostics", "gradient_flow", "lengths", "probe", "report", "table"])
def test_every_command_refuses_its_files_before_any_work_and_names_the_flag(name, tmp_path, capsys):
    file = ROOT / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_script", file)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    subject = [] if name == "probe" else ["--init"] if name == "gradient_flow" else [str(tmp_path)]
    flags = [flag for flag in ("--json", "--output", "--image") if f'"{flag}", type=Path' in file.read_text()]
    assert flags
    for flag in flags:
        assert script.main([*subject, f"{flag}={tmp_path}/no/x.svg"]) == 2
        said = f"error: {flag}={tmp_path}/no/x.svg: there is no folder {tmp_path}/no\n"
        assert capsys.readouterr().err == said
