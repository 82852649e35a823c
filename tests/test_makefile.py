"""What `make` says where PYTHON cannot make the environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT


def program(folder: Path, name: str, body: str) -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def refused(tmp_path):
    """The line with which a target is refused; nothing may have been made."""

    def make(target: str, python: str) -> str:
        command = ["make", "--always-make", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}", *target.split()]
        # These tests are run by make themselves: its flags and variables are not meant for the make under test.
        env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
        line, *rest = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert [end.startswith("make: ***") for end in rest] == [True]
        assert not (tmp_path / "venv").exists()
        return line

    return make


@pytest.mark.parametrize("target", ["", "setup", "bench-setup", "study", "test"])
def test_a_program_that_is_absent_is_named(refused, target):
    choose = f"choose another: make {target or 'setup'} PYTHON=python3.12"
    assert refused(target, "no_such_python") == f"error: there is no program no_such_python; {choose}"


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 10, 14)])
def test_an_older_python_is_named(refused, tmp_path, version):
    pretend = f"import sys; sys.version_info = {version}; exec(sys.argv[1])"
    old = program(tmp_path, "old", f'exec {sys.executable} -c "{pretend}" "$2"')
    assert refused("setup", old).startswith(f"error: {old} is older than Python 3.11; choose another: make setup")


@pytest.mark.parametrize("body", ["exit 1", "exit 127", "kill -9 $$", "echo usage; exit 2"])
def test_a_program_that_is_no_python_is_named(refused, tmp_path, body):
    other = program(tmp_path, "other", body)
    assert refused("setup", other).startswith(f"error: {other} does not run as Python; choose another: make setup")
