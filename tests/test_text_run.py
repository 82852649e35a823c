"""A study of files, from its start to its predictions: as a user has it."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from train.log import read_rows
from train.restore import restore

CELL = "score=scaled_dot,d_k=16"
TEST = ["a b c d e", "a", "e d c b a", "", "b c d e a", "c a", "b b", "", "e d c b a e d c b a e", "d", "a c e b"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Sentences of five words to be copied; the test set ends without a newline."""
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(list("abcde"), random.integers(1, 6))) for _ in range(310)]
    (folder / "train").write_text("\n".join(lines[:300]) + "\n", encoding="utf-8")
    (folder / "valid").write_text("\n".join(lines[300:]) + "\n", encoding="utf-8")
    (folder / "test").write_text("\n".join(TEST), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def command(files, subprocess_environment):
    def start(workdir: Path) -> subprocess.Popen:
        arguments = ["--config=configs/parallel_text.py", f"--workdir={workdir}"]
        arguments += [f"--config.task.{split}={files / split},{files / split}" for split in ("train", "valid", "test")]
        knobs = {
            "task.max_length": 5,
            "model.num_layers": 1,
            "model.num_heads": 1,
            "model.d_model": 32,
            "model.d_v": 16,
            "model.d_ff": 32,
            "model.dropout": 0.05,
            "optim.warmup_steps": 20,
            "optim.label_smoothing": 0,
            "lanes.lr": 1e-2,
            "run.steps": 240,
            "run.batch_size": 32,
            "run.eval_every": 120,
            "run.diagnose_every": 0,
            "run.eval_batch_size": 4,
            "run.checkpoint_every": 45,
        }
        arguments += [f"--config.{path}={value}" for path, value in knobs.items()]
        arguments += ["--sweep", "model.score=scaled_dot", "--sweep", "model.d_k=16"]
        return subprocess.Popen(
            [sys.executable, "-m", "train", *arguments],
            cwd=ROOT,
            env=subprocess_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="module")
def straight(command, tmp_path_factory) -> tuple[Path, str]:
    workdir = tmp_path_factory.mktemp("text") / "straight"
    out, err = (process := command(workdir)).communicate(timeout=110)
    assert process.returncode == 0, out + err
    return workdir, out


def predictions(workdir: Path) -> bytes:
    return (workdir / "cells" / CELL / "predictions" / "test.lane-0.txt").read_bytes()


@pytest.mark.slow
def test_line_i_of_the_predictions_translates_line_i_of_the_source(straight):
    lines = predictions(straight[0]).decode("utf-8").split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(TEST)
    for source, line in zip(TEST, lines, strict=True):
        # Of what was cut to task.max_length only the beginning was read.
        assert line == " ".join(source.split()[:5])


@pytest.mark.slow
def test_what_was_cut_and_left_blank_is_said_and_kept(straight):
    workdir, out = straight
    said = "2 lines cut to task.max_length=5; 2 blank sources"
    assert said in out
    assert said in (workdir / "config.json").read_text(encoding="utf-8")
    test = next(row for row in read_rows(workdir) if row["split"] == "test")
    assert test["sequences"] == 9
    assert test["sequence_accuracy"] == 1.0
    assert 0 < test["bleu"] < 100
    assert "tok:none" in test["bleu_signature"]


@pytest.mark.slow
def test_killed_in_the_middle_of_an_epoch_it_ends_the_same(command, straight, tmp_path):
    workdir = tmp_path / "killed"
    process = command(workdir)
    saved = workdir / "cells" / CELL / "checkpoints" / "group-0" / "45"
    for _ in range(6000):
        if saved.exists() or process.poll() is not None:
            break
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=30)
    out, err = (process := command(workdir)).communicate(timeout=110)
    assert process.returncode == 0, out + err
    assert "going on from step" in out
    assert predictions(workdir) == predictions(straight[0])
    rows = [
        [{name: value for name, value in row.items() if name != "seconds"} for row in read_rows(each)]
        for each in (workdir, straight[0])
    ]
    assert rows[0] == rows[1]
    one, other = (restore(each, CELL, 0).params["output_mn"] for each in (workdir, straight[0]))
    assert np.array_equal(one, other)
