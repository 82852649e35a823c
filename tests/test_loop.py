"""The loop through its command line: what a user starts, stops, kills and starts again."""

import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from conftest import ROOT

from train.checkpoint import Checkpoints
from train.log import read_config, read_diagnostics, read_rows

SMOKE = (
    "--config=configs/smoke.py",
    "--config.run.steps=30",
    "--config.run.checkpoint_every=5",
    "--config.run.chunk_steps=2",
)
UNSEEN = (*SMOKE, "--config.run.diagnose_every=0")  # a program less to compile
CELLS = ("score=dot", "score=scaled_dot")


@pytest.fixture(scope="session")
def command(subprocess_environment):
    """Start `python -m train` with the arguments given."""

    def start(*arguments: object, before: tuple[str, ...] = (), **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*before, sys.executable, "-m", "train", *map(str, arguments)],
            cwd=ROOT,
            env={**subprocess_environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def finish(process: subprocess.Popen, status: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=100)
    assert process.returncode == status, f"status {process.returncode}\n{out}\n{err}"
    return out, err


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("study") / "undisturbed"
    finish(command(*SMOKE, f"--workdir={workdir}"))
    return workdir


def rows_without_times(workdir: Path) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in read_rows(workdir)]


def final_states(workdir: Path) -> list:
    """The arrays of the newest checkpoint of every cell, as they are on disk."""
    states = []
    for cell in CELLS:
        folder = workdir / "cells" / cell / "checkpoints" / "group-0"
        checkpoints = Checkpoints(folder, read_only=True)
        restored = checkpoints.newest()
        assert restored is not None
        states.append((restored.step, restored.state))
        checkpoints.close()
    return states


def assert_same_study(one: Path, other: Path) -> None:
    assert rows_without_times(one) == rows_without_times(other)
    assert read_diagnostics(one) == read_diagnostics(other) != []
    for (step, state), (other_step, other_state) in zip(final_states(one), final_states(other), strict=True):
        assert step == other_step == 30
        leaves, other_leaves = jax.tree.leaves(state), jax.tree.leaves(other_state)
        assert len(leaves) == len(other_leaves) > 40
        for mine, theirs in zip(leaves, other_leaves, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.tobytes() == theirs.tobytes()


def wait_for_rows(workdir: Path, count: int, process: subprocess.Popen) -> None:
    """Until metrics.jsonl has so many lines, or the process has ended; a minute at most."""
    file = workdir / "metrics.jsonl"
    for _ in range(6000):
        if process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= count):
            return
        time.sleep(0.01)
    raise AssertionError(f"no {count} rows in {file}")


def test_a_study_leaves_one_row_per_cell_lane_split_and_evaluation(undisturbed):
    rows = rows_without_times(undisturbed)
    expected = [
        (cell, lane, step, split)
        for cell in CELLS
        for step in (10, 20, 30)
        for lane in (0, 1)
        for split in ("train", "valid")
    ]
    expected += [(cell, lane, 30, "test") for cell in CELLS for lane in (0, 1)]
    assert sorted((row["cell"], row["lane"], row["step"], row["split"]) for row in rows) == sorted(expected)
    for row in rows:
        assert row["seed"] == row["lane"]
        assert row["lr"] == 3e-3
        assert row["cell"] == f"score={row['score']}"
        assert np.isfinite(row["loss"])
        assert row["diverged_at"] is None
    valid = [row for row in rows if row["split"] == "valid"]
    assert {row["sequences"] for row in valid} == {32}
    for cell in CELLS:
        for lane in (0, 1):
            losses = {row["step"]: row["loss"] for row in valid if (row["cell"], row["lane"]) == (cell, lane)}
            test = next(row for row in rows if (row["cell"], row["lane"], row["split"]) == (cell, lane, "test"))
            assert test["best_step"] == min(losses, key=losses.__getitem__)


def test_every_line_is_strict_json(undisturbed):
    def refuse(name: str) -> None:
        raise AssertionError(name)

    for line in (undisturbed / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=refuse)


def test_config_json_says_what_ran_and_on_what(undisturbed):
    record = read_config(undisturbed)
    assert record["config"]["run"]["steps"] == 30
    assert record["versions"]["jax"] == jax.__version__
    assert record["device"]["platform"] == "cpu"
    assert record["layouts"] == [{"platform": "cpu", "lane_shards": 2, "data_shards": 1, "order": "map"}]
    assert [lane["seed"] for lane in record["lanes"]] == [0, 1]


def test_the_same_command_again_has_nothing_left_to_do(command, undisturbed):
    before = (undisturbed / "metrics.jsonl").read_bytes()
    out, _ = finish(command(*SMOKE, f"--workdir={undisturbed}"))
    assert "nothing left to do" in out
    assert (undisturbed / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("luck", [0, 1])
def test_killed_at_random_moments_and_started_again_it_ends_the_same(command, undisturbed, tmp_path, luck):
    workdir = tmp_path / "killed study"
    chance = random.Random(luck)
    for rows in sorted(chance.sample(range(1, 26), 3)):
        process = command(*SMOKE, f"--workdir={workdir}")
        wait_for_rows(workdir, rows, process)
        time.sleep(chance.random() * 0.3)
        process.kill()
        process.communicate(timeout=30)
    finish(command(*SMOKE, f"--workdir={workdir}"))
    assert_same_study(workdir, undisturbed)


@pytest.mark.slow
def test_evaluations_since_the_newest_checkpoint_are_made_again_and_stand_once(command, tmp_path):
    often = ("--only", "score=dot", "--config.run.eval_every=3", "--config.run.checkpoint_every=14")
    finish(command(*UNSEEN, *often, f"--workdir={tmp_path / 'straight'}"))
    for rows in (14, 28):  # before the first checkpoint, and some after it
        process = command(*UNSEEN, *often, f"--workdir={tmp_path / 'killed'}")
        wait_for_rows(tmp_path / "killed", rows, process)
        process.kill()
        process.communicate(timeout=30)
    finish(command(*UNSEEN, *often, f"--workdir={tmp_path / 'killed'}"))
    assert rows_without_times(tmp_path / "killed") == rows_without_times(tmp_path / "straight")
    lines = (tmp_path / "killed" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == len(rows_without_times(tmp_path / "killed"))


VALID = b'"split": "valid"'
LOST = "has lost the rows of score=dot, lane 0, step 10; put them back, or remove "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda whole: None, f" {LOST}"),
        (lambda whole: whole[:100], f" {LOST}"),
        (lambda whole: whole + b"{]\n", ", line 29: not a row of a study; mend or delete that line\n"),
        (lambda whole: b"".join(line for line in whole.splitlines(True) if VALID not in line), f" {LOST}"),
    ],
    ids=["missing", "torn", "a bad last line", "without its rows of valid"],
)
def test_a_damaged_log_is_one_line_and_stays_as_it_is(command, undisturbed, tmp_path, damaged, said):
    workdir = tmp_path / "damaged"
    shutil.copytree(undisturbed, workdir)
    file = workdir / "metrics.jsonl"
    left = damaged(file.read_bytes())
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    _, err = finish(command(*SMOKE, f"--workdir={workdir}"), status=2)
    assert err.startswith(f"error: {file}{said}")
    assert err.count("\n") == 1
    assert (file.read_bytes() if file.exists() else None) == left


@pytest.mark.slow
def test_a_terminal_without_unicode_gets_escapes(command, tmp_path):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    out, _ = finish(command(*UNSEEN, "--config.run.steps=5", f"--workdir={tmp_path / 'study'}", **plain))
    assert "\\xb1" in out  # ±
    _, err = finish(command(*UNSEEN, f"--workdir={tmp_path / '実験'}", **plain), status=2)
    assert err == f"error: --workdir={tmp_path}/\\u5b9f\\u9a13 cannot be read in this locale; set PYTHONUTF8=1\n"
    assert not (tmp_path / "実験").exists()
    finish(command(*UNSEEN, "--config.run.steps=5", f"--workdir={tmp_path / '実験'}"))


@pytest.mark.slow
def test_predictions_that_cannot_be_written_are_one_line(command, tmp_path):
    workdir = tmp_path / "study"
    text = ("--only", "score=dot", "--config.task.name=toy_translation", "--config.task.max_length=12")
    finish(command(*UNSEEN, *text, f"--workdir={workdir}"))
    rows = (workdir / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (workdir / "metrics.jsonl").write_text("".join(row for row in rows if '"test"' not in row), encoding="utf-8")
    folder = workdir / "cells" / "score=dot" / "predictions"
    shutil.rmtree(folder)
    folder.touch()
    _, err = finish(command(*UNSEEN, *text, f"--workdir={workdir}"), status=2)
    assert err == f"error: {folder}: File exists\n"
    folder.unlink()
    finish(command(*UNSEEN, *text, f"--workdir={workdir}"))
    assert (folder / "test.lane-1.txt").read_text(encoding="utf-8").count("\n") == 32


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_and_the_study_goes_on_from_there(command, undisturbed, tmp_path, number):
    workdir = tmp_path / "stopped"
    process = command(*SMOKE, f"--workdir={workdir}")
    wait_for_rows(workdir, 4, process)
    asked = time.monotonic()
    process.send_signal(number)
    time.sleep(0.1)
    if process.poll() is None:
        process.send_signal(number)
    finish(process, status=128 + number)
    assert time.monotonic() - asked < 10
    finish(command(*SMOKE, f"--workdir={workdir}"))
    assert_same_study(workdir, undisturbed)


@pytest.mark.slow
def test_checkpoints_and_chunks_of_another_length_change_no_number(command, undisturbed, tmp_path):
    free = ("--config.run.chunk_steps=7", "--config.run.checkpoint_every=13")
    finish(command(*SMOKE, *free, f"--workdir={tmp_path / 'free'}"))
    assert rows_without_times(tmp_path / "free") == rows_without_times(undisturbed)


@pytest.mark.slow
def test_added_cells_and_lanes_run_alone_and_leave_the_old_rows(command, tmp_path):
    workdir = tmp_path / "grown"
    first = ("--sweep", "model.score=dot", "--config.lanes.seed=0")
    finish(command(*UNSEEN, *first, f"--workdir={workdir}"))
    before = rows_without_times(workdir)
    second = ("--sweep", "model.score=dot,scaled_dot", "--config.lanes.seed=0,1")
    finish(command(*UNSEEN, *second, f"--workdir={workdir}"))
    after = rows_without_times(workdir)
    assert after[: len(before)] == before
    tests = [(row["cell"], row["seed"]) for row in after if row["split"] == "test"]
    assert sorted(tests) == [(cell, seed) for cell in CELLS for seed in (0, 1)]


@pytest.mark.slow
def test_a_diverging_lane_is_a_row_with_null_and_its_step_and_no_failure(command, tmp_path):
    workdir = tmp_path / "exploded"
    wild = ("--config.lanes.lr=1e-3,1e30", "--config.lanes.seed=0", "--only", "score=dot", "--config.optim.name=sgd")
    out, _ = finish(command(*UNSEEN, *wild, f"--workdir={workdir}"))
    last = {row["lr"]: row for row in read_rows(workdir) if row["split"] == "valid"}
    assert last[1e30]["diverged_at"] is not None
    assert last[1e-3]["diverged_at"] is None
    assert np.isfinite(last[1e-3]["loss"])
    train = [row for row in read_rows(workdir) if row["split"] == "train" and row["lr"] == 1e30]
    assert train[-1]["loss"] is None
    assert "diverged" in out
    test = {row["lr"]: row for row in read_rows(workdir) if row["split"] == "test"}
    assert test[1e30]["loss"] is None or test[1e30]["best_step"] < test[1e30]["diverged_at"]
    for script in ("report.py", "table.py"):
        done = subprocess.run([sys.executable, f"scripts/{script}", workdir], cwd=ROOT, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_a_full_disk_ends_with_one_line_that_names_the_file(command, tmp_path):
    workdir = tmp_path / "full"
    workdir.mkdir()
    finish(command(*SMOKE, "--only", "score=dot", f"--workdir={workdir}"))
    (workdir / "metrics.jsonl").unlink()
    (workdir / "metrics.jsonl").symlink_to("/dev/full")
    _, err = finish(command(*SMOKE, f"--workdir={workdir}"), status=2)
    assert err.strip().splitlines()[-1].startswith("error: ")
    assert "metrics.jsonl" in err


@pytest.mark.slow
def test_a_file_size_limit_ends_with_one_line_and_what_was_saved_goes_on(command, undisturbed, tmp_path):
    workdir = tmp_path / "limited"
    limit = 24  # KiB a file: rows of the first evaluations fit, all rows do not
    process = command(*SMOKE, f"--workdir={workdir}", before=("bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash"))
    _, err = finish(process, status=2)
    # Orbax prints stacks of its own threads around our line.
    assert len(re.findall(r"^error: .*limited", err, re.MULTILINE)) == 1
    finish(command(*SMOKE, f"--workdir={workdir}"))
    assert_same_study(workdir, undisturbed)


def test_dry_run_prints_the_table_and_writes_nothing(command, tmp_path):
    out, _ = finish(command(*SMOKE, "--dry_run", f"--workdir={tmp_path / 'none'}"))
    for word in (*CELLS, "parameters", "memory", "disk", "time", "lr 0.003 seed 1", "nothing was trained or written"):
        assert word in out
    assert not (tmp_path / "none").exists()
