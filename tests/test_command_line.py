"""python -m train: flags, refusals in one line with status 2, and nothing written before a plan stands."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import train.__main__ as command
import train.loop
import train.plan
from train.schema import KNOBS

ROOT = Path(__file__).resolve().parent.parent
SMOKE = str(ROOT / "configs" / "smoke.py")
CONFIGS = sorted(file.relative_to(ROOT).as_posix() for file in (ROOT / "configs").rglob("[!_]*.py"))


@pytest.fixture
def line(monkeypatch, tmp_path, capsys):
    """Run a command line in this process, in an empty folder, up to the loop: (status, what the loop got, output)."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments):
        got = {}

        def study(plan, path, *, overwrite, profile):
            got.update(plan=plan, path=path, overwrite=overwrite, profile=profile)
            return 0

        def dry(plan):
            got.update(plan=plan)
            return 0

        monkeypatch.setattr(train.loop, "run_study", study)
        monkeypatch.setattr(train.loop, "dry_run", dry)
        monkeypatch.setattr(sys, "argv", ["train", *arguments])
        status = command.main()
        return status, got, capsys.readouterr()

    return run


@pytest.fixture
def refused(line, tmp_path):
    def run(*arguments):
        status, got, output = line(*arguments)
        assert (status, got, output.out) == (2, {}, "")
        assert output.err.startswith("error: ")
        assert output.err.count("\n") == 1
        assert not list((tmp_path / "here").iterdir())
        return output.err.removeprefix("error: ").rstrip("\n")

    return run


def test_help_is_instant_complete_and_free_of_jax(tmp_path):
    program = (
        "import atexit, runpy, sys; sys.argv = ['train', '--help'];"
        "atexit.register(lambda: print([m for m in ('jax', 'numpy') if m in sys.modules], file=sys.stderr));"
        "runpy.run_module('train', run_name='__main__')"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    for flag in (
        "config",
        "workdir",
        "config.SECTION.KNOB",
        "sweep",
        "only",
        "dry_run",
        "overwrite",
        "profile",
        "help",
    ):
        assert f"--{flag}" in done.stdout
    for config in CONFIGS:
        assert f"  {config} " in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--config=absent.py", "--help", "--workdir=x"]])
def test_help_ends_well_whatever_stands_beside_it(line, arguments):
    status, got, output = line(*arguments)
    assert (status, got, output.err) == (0, {}, "")
    assert output.out.startswith("usage: python -m train")


def as_a_process(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "train", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_as_a_process_a_refusal_is_one_line_and_status_2(tmp_path):
    done = as_a_process(tmp_path, f"--config={SMOKE}", "--workdir=new", "--config.run.stepz=3")
    assert done.returncode == 2
    assert done.stderr == "error: --config.run.stepz is no knob; did you mean run.steps?\n"
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_everything_reaches_the_loop(line):
    status, got, _ = line(
        "--config",
        SMOKE,
        "--workdir=a b/ü",
        "--config.run.steps=30",
        "--config.run.steps",
        "40",
        "--config.lanes.seed=(1, 2)",
        "--config.task.train=",
        "--sweep=model.d_k=3,5",
        "--sweep",
        "model.d_v=7",
        "--only=d_k=3,score=dot",
        "--only",
        "d_k=5,score=scaled_dot",
        "--overwrite",
        "--profile",
    )
    assert status == 0
    assert got["path"] == Path("a b/ü")
    assert got["overwrite"] is True
    assert got["profile"] is True
    assert [cell.name for cell in got["plan"].cells] == ["score=dot,d_k=3,d_v=7", "score=scaled_dot,d_k=5,d_v=7"]
    assert got["plan"].cells[0].run.steps == 40
    assert [lane.seed for lane in got["plan"].lanes] == [1, 2]


@pytest.mark.parametrize("path", KNOBS)
def test_a_value_of_every_knob_passes_the_flags_unchanged(path):
    for value in ("", "-1", "a=b", "(a, 'b c')", "--x", "a\nb"):
        assert command.take_overrides([f"--config.{path}={value}"]) == ([f"{path}={value}"], [])
    assert command.take_overrides(["-x", f"--config.{path}", "-1", "y"]) == ([f"{path}=-1"], ["-x", "y"])


def test_overrides_in_a_flagfile_count_in_their_place(line, tmp_path):
    file = tmp_path / "flags"
    file.write_text(f"# a comment\n--config={SMOKE}\n--config.run.steps=31\n--workdir=w\n")
    assert line(f"--flagfile={file}")[1]["plan"].cells[0].run.steps == 31
    assert line(f"--flagfile={file}", "--config.run.steps=37")[1]["plan"].cells[0].run.steps == 37
    assert line("--config.run.steps=37", f"--flagfile={file}")[1]["plan"].cells[0].run.steps == 31


@pytest.mark.parametrize("content", [bytes(range(256)), b"# caf\xe9\n", "--dry_run".encode("utf-16")])
def test_a_flagfile_that_is_no_text_is_refused(refused, tmp_path, content):
    (tmp_path / "flags").write_bytes(content)
    assert "; give a text file with a flag a line" in refused(f"--flagfile={tmp_path / 'flags'}")


def test_a_dry_run_needs_no_workdir(line):
    status, got, _ = line(f"--config={SMOKE}", "--dry_run")
    assert status == 0
    assert set(got) == {"plan"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config=FILE is missing"),
        (["--config=absent.py", "--workdir=w"], "--config=absent.py: No such file or directory"),
        (["--workdri=w"], "Unknown command line flag 'workdri'. Did you mean: workdir; --help lists all flags"),
        (["--dry-run"], "Unknown command line flag 'dry-run'. Did you mean: dry_run; --help lists all flags"),
        (["--config"], "Missing value for flag --config; --help lists all flags"),
        (["--dry_run=maybe"], "flag --dry_run=maybe: Non-boolean argument to boolean flag; --help lists all flags"),
        (["--flagfile=absent"], "--flagfile=absent: No such file or directory; give a text file with a flag a line"),
        (["--flagfile", "/"], "--flagfile=/: Is a directory; give a text file with a flag a line"),
        (["--flagfile"], "--flagfile: --flagfile with no argument; give a text file with a flag a line"),
        (["copy"], "unexpected argument 'copy'; --help lists all flags"),
        (["--config.run.steps"], "--config.run.steps: a value is missing; write --config.run.steps=VALUE"),
        (["--config.run.steps", "--dry_run"], "--config.run.steps: a value is missing"),
    ],
)
def test_flags_that_make_no_sense(refused, arguments, message):
    assert refused(*arguments).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry_run", "--config.run.steps=0"], "run.steps = 0 is not allowed: must be at least 1"),
        (["--dry_run", "--config.a\nb=0"], "--config.a\\nb is no knob"),
        (["--dry_run", "--config.lanes.lr=nan"], "lanes.lr = (nan,) is not allowed: must be finite"),
        (["--dry_run", "--config.lanes.lr=1e-3,1e-400"], "lanes.lr = 1e-400 is 0 in float32"),
        (
            ["--dry_run", "--sweep=model.d_k=0,4"],
            "cell score=dot,d_k=0: model.d_k = 0 is not allowed: must be at least 1",
        ),
        (["--dry_run", "--only=score=additive"], "--only score=additive: no cell has score=additive"),
        ([], "--workdir=DIR is missing: where the study is kept; or --dry_run"),
    ],
)
def test_plans_that_make_no_sense(refused, arguments, message):
    assert refused(f"--config={SMOKE}", *arguments).startswith(message)


def test_an_unusable_workdir_is_refused_before_anything_compiles(tmp_path):
    done = as_a_process(tmp_path, f"--config={SMOKE}", "--workdir=/dev/null/x")
    assert done.returncode == 2
    assert done.stderr == "error: --workdir=/dev/null/x cannot be used: Not a directory; choose another --workdir\n"
    assert done.stdout == ""


def test_the_status_of_the_loop_is_the_status_of_the_command(line, monkeypatch):
    line(f"--config={SMOKE}", "--dry_run")
    monkeypatch.setattr(train.loop, "dry_run", lambda plan: 143)
    assert command.main() == 143


def test_an_interrupt_before_the_loop_is_no_traceback(line, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train.plan, "make_plan", interrupt)
    status, got, output = line(f"--config={SMOKE}", "--dry_run")
    assert (status, got) == (130, {})
    assert output.err == "interrupted before training began\n"
