"""A trained lane comes back from its workdir alone, and gives the numbers that its rows say."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from conftest import ROOT

from train.cells import make_run
from train.errors import UserError
from train.log import read_rows
from train.restore import restore

CELL = "score=additive,d_k=5"


def write_text(folder, name: str, pairs: int, seed: int) -> None:
    """Sentences and the same backwards."""
    random = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(11)]
    lines = [[words[number] for number in random.integers(0, 11, random.integers(1, 4))] for _ in range(pairs)]
    (folder / f"{name}.a").write_text("".join(" ".join(line) + "\n" for line in lines), encoding="utf-8")
    (folder / f"{name}.b").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines), encoding="utf-8")


def train(folder, scores: str, environment) -> subprocess.CompletedProcess:
    arguments = ["--config=configs/parallel_text.py", f"--workdir={folder}/study", "--sweep", scores]
    arguments += [f"--config.task.{name}={folder}/{name}.a,{folder}/{name}.b" for name in ("train", "valid", "test")]
    arguments += ["--sweep", "model.d_k=5", "--config.model.d_model=8", "--config.model.num_layers=1"]
    arguments += ["--config.lanes.lr=1e-3,1e-2,3e-2", "--config.run.batch_size=16", "--config.run.eval_batch_size=5"]
    arguments += ["--config.run.steps=30", "--config.run.eval_every=10", "--config.optim.warmup_steps=5"]
    arguments += ["--config.run.diagnose_every=0"]
    command = [sys.executable, "-m", "train", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)


@pytest.fixture(scope="module")
def study(tmp_path_factory, subprocess_environment):
    """A cell of three lanes, so that one is made up on two devices; the rates make each lane its own."""
    folder = tmp_path_factory.mktemp("restore")
    for seed, (name, pairs) in enumerate({"train": 97, "valid": 13, "test": 13}.items()):
        write_text(folder, name, pairs, seed)
    done = train(folder, "model.score=additive", subprocess_environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "study"


@pytest.mark.parametrize("lane", [0, 1, 2])
def test_a_restored_lane_gives_the_test_row_and_the_predictions_of_its_run(study, lane):
    trained = restore(study, CELL, lane)
    row = next(row for row in read_rows(study) if (row["cell"], row["lane"], row["split"]) == (CELL, lane, "test"))
    assert (trained.lane.lr, trained.lane.seed, trained.step) == (row["lr"], row["seed"], row["best_step"])
    assert (trained.cell.name, trained.cell.model.score) == (CELL, "additive")
    run = make_run(trained.cell, trained.task)
    fixed = trained.task.evaluation("test")
    evaluate = jax.jit(run.evaluate)
    parts = [evaluate(trained.params, trained.step, batch, run.knobs(0.0, 0)) for batch in fixed.batches]
    loss = sum(float(part.sums.loss) for part, _ in parts) / sum(int(part.sums.tokens) for part, _ in parts)
    assert loss == pytest.approx(row["loss"], rel=1e-5)
    tokens_nt = np.concatenate([np.asarray(token_bt) for _, token_bt in parts])
    lines = trained.task.lines("test", tokens_nt[np.argsort(fixed.order_n, kind="stable")][-13:])
    predictions = study / "cells" / CELL / "predictions" / f"test.lane-{lane}.txt"
    assert lines == predictions.read_text(encoding="utf-8").splitlines()


def test_reading_changes_nothing_in_the_workdir(study):
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*")}
    restore(study, CELL, 1)
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*")} == before


def test_the_vocabularies_of_the_run_stand_when_the_files_have_changed(study):
    file = study.parent / "train.a"
    text = file.read_text(encoding="utf-8")
    before = restore(study, CELL, 0).task
    try:
        file.write_text(text.replace("w1 ", "zebra "), encoding="utf-8")
        after = restore(study, CELL, 0).task
    finally:
        file.write_text(text, encoding="utf-8")
    assert after.source_vocab == before.source_vocab
    for one, other in zip(before.evaluation("test").batches, after.evaluation("test").batches, strict=True):
        assert np.array_equal(one.source_bs, other.source_bs)


def test_a_study_is_not_continued_with_other_text(study, subprocess_environment):
    file = study.parent / "train.a"
    text = file.read_text(encoding="utf-8")
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file()}
    try:
        file.write_text(text.replace("w1 ", "zebra "), encoding="utf-8")
        done = train(study.parent, "model.score=additive,dot", subprocess_environment)
    finally:
        file.write_text(text, encoding="utf-8")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: task.train ({file}, ")
    after = {path: path.stat().st_mtime_ns for path in study.rglob("*") if path.is_file() and path.name != ".lock"}
    assert after == {path: time for path, time in before.items() if path.name != ".lock"}


@pytest.mark.parametrize(
    ("cell", "lane", "message"),
    [
        ("score=dot,d_k=5", 0, "has no cell 'score=dot,d_k=5'; it has score=additive,d_k=5"),
        (CELL, 3, "has no lane 3; it has 0 to 2"),
    ],
)
def test_what_a_study_does_not_have_is_named(study, cell, lane, message):
    with pytest.raises(UserError, match=message):
        restore(study, cell, lane)


def test_no_study_and_no_checkpoint_are_told_apart(study, tmp_path):
    with pytest.raises(UserError, match="holds no study"):
        restore(tmp_path, CELL, 0)
    (tmp_path / "config.json").write_bytes((study / "config.json").read_bytes())
    with pytest.raises(UserError, match="has no checkpoint of lane 0 yet"):
        restore(tmp_path, CELL, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
