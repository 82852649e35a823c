import json
import os
import subprocess
import sys
import warnings

import jax
import pytest
from conftest import ROOT

from train.environment import describe, git_revision, use_compilation_cache


def test_the_description_is_plain_data_with_versions_and_device():
    record = json.loads(json.dumps(describe()))
    assert record["versions"]["jax"] == jax.__version__
    assert record["device"]["platform"] == "cpu"


def test_outside_a_repository_there_is_no_revision(monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert git_revision() is None


@pytest.fixture
def choose():
    """Set where JAX keeps compiled programs, for the length of a test."""
    name = "jax_compilation_cache_dir"
    before = jax.config.values[name]
    yield lambda folder: jax.config.update(name, folder)
    jax.config.update(name, before)


@pytest.mark.parametrize("chosen", [None, "elsewhere"])
def test_the_cache_is_in_the_users_directory_unless_another_was_chosen(choose, monkeypatch, tmp_path, chosen):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choose(chosen)
    use_compilation_cache()
    assert jax.config.values["jax_compilation_cache_dir"] == (chosen or str(tmp_path / "dk-lab" / "jax"))


@pytest.mark.parametrize("setting", ["XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR"])
def test_programs_that_cannot_be_kept_are_one_line_and_run(tmp_path, setting):
    (tmp_path / "file").touch()
    program = (
        "import jax; from train.environment import use_compilation_cache; use_compilation_cache()\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "print(jax.jit(lambda x: x + 1)(1), jax.jit(lambda x: x + 2)(1.0))"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XDG_"))}
    environment |= {"JAX_PLATFORMS": "cpu", setting: str(tmp_path / "file" / "in")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    folder = tmp_path / "file" / "in" / ("dk-lab/jax" if setting == "XDG_CACHE_HOME" else "")
    line = f"warning: compiled programs are not kept in {folder}: Not a directory; {setting} names another folder\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 3.0\n", line)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (
            "reading {} entry for 'jit_f': OSError: [Errno 30] Read-only file system: '/a: b/jit_f-cache'",
            "Read-only file system",
        ),
        ("writing {} entry for 'jit_f': OSError: [Errno 28] No space left on device", "No space left on device"),
        ("reading {} entry for 'jit_f': ValueError: cut", "cut"),
        ("writing {} entry for 'jit_f': ValueError: two\nlines", "two lines"),
    ],
)
def test_whatever_keeps_programs_from_being_kept_is_told_once_and_other_warnings_as_ever(
    choose, monkeypatch, capsys, told, reason
):
    others = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *shown: others.append(str(shown[0])))
        choose("/kept/here")
        use_compilation_cache()
        for message in (told, told, "another warning"):
            warnings.warn(f"Error {message}".format("persistent compilation cache"), stacklevel=1)
    err = capsys.readouterr().err
    assert err == (
        f"warning: compiled programs are not kept in /kept/here: {reason}; JAX_COMPILATION_CACHE_DIR names another"
        " folder\n"
    )
    assert others == ["Error another warning"]
