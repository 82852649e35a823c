"""Metrics by length: every sentence once, in the bin of its length; the whole agrees with the row of the run."""

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

from train.lengths import by_length, length_rows
from train.log import read_rows
from train.tasks import PAD, Batch, EvaluationSet


def sentences(lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Sources of these lengths, each its own, and targets one token longer."""
    source_ns = np.full((len(lengths), max(lengths) + 1), PAD, np.int32)
    target_nt = np.full((len(lengths), max(lengths) + 2), PAD, np.int32)
    for place, length in enumerate(lengths):
        source_ns[place, : length + 1] = 5 + place
        target_nt[place, : length + 2] = 5 + place
    return source_ns, target_nt


@pytest.mark.parametrize("width", [1, 3, 100])
def test_every_sentence_is_in_the_bin_of_its_length_and_in_no_other(width):
    lengths = [7, 1, 3, 4, 2, 7, 6, 3, 3, 11]
    source_ns, target_nt = sentences(lengths)
    # As length buckets leave them: parts of unequal widths, the last filled up.
    short = Batch(np.pad(source_ns[1:5, :5], ((0, 3), (0, 0))), np.pad(target_nt[1:5, :6], ((0, 3), (0, 0))))
    rest = [0, 5, 6, 7, 8, 9]
    long = Batch(np.pad(source_ns[rest], ((0, 1), (0, 0))), np.pad(target_nt[rest], ((0, 1), (0, 0))))
    fixed = EvaluationSet((short, long), np.array([1, 2, 3, 4, -1, -1, -1, *rest, -1]))
    seen = []
    found = by_length(fixed, width)
    assert min(found)[0] == 1
    assert max(found)[1] == 11
    for (shortest, longest), batches in found.items():
        for source_bs, target_bt in batches:
            assert source_bs.shape == (7, 12)
            assert target_bt.shape == (7, 13)
            for source_s, target_t in zip(source_bs, target_bt, strict=True):
                if source_s.any():
                    place = int(source_s[0]) - 5
                    np.testing.assert_array_equal(source_s, source_ns[place])
                    np.testing.assert_array_equal(target_t, target_nt[place])
                    assert shortest <= lengths[place] <= longest < shortest + width
                    seen.append(place)
                else:
                    assert not target_t.any()
    assert sorted(seen) == list(range(len(lengths)))


@pytest.fixture(scope="module")
def study(tmp_path_factory, subprocess_environment):
    """Recurrent models with attention and without, of two rates."""
    workdir = tmp_path_factory.mktemp("lengths") / "study"
    knobs = ["model.name=recurrent", "model.d_model=7", "model.bridge=last", "run.diagnose_every=0"]
    knobs += ["task.symbols=5", "task.min_length=2"]
    knobs += ["task.max_length=7", "task.valid_size=23", "task.test_size=41", "run.eval_batch_size=17", "run.steps=10"]
    knobs += ["run.eval_every=5", "run.batch_size=11", "optim.warmup_steps=2", "lanes.lr=1e-3,1e-2"]
    command = [sys.executable, "-m", "train", "--config=configs/base.py", f"--workdir={workdir}"]
    command += [f"--config.{knob}" for knob in knobs] + ["--sweep", "model.decoder=luong,none_state"]
    done = subprocess.run(command, cwd=ROOT, env=subprocess_environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir


def test_bins_together_give_what_the_run_says_of_all(study):
    for cell in ("decoder=luong", "decoder=none_state"):
        for lane in (0, 1):
            rows = list(length_rows(study, [(cell, lane)], "test", 2))
            assert [(row["shortest"], row["longest"]) for row in rows] == [(2, 2), (3, 4), (5, 6), (7, 7)]
            row = next(r for r in read_rows(study) if (r["cell"], r["lane"], r["split"]) == (cell, lane, "test"))
            assert {name: rows[0][name] for name in ("lr", "seed")} == {name: row[name] for name in ("lr", "seed")}
            assert sum(part["sequences"] for part in rows) == row["sequences"] == 41
            right = sum(part["sequences"] * part["sequence_accuracy"] for part in rows)
            assert right / 41 == pytest.approx(row["sequence_accuracy"])
            # Copy: a target is as long as its source, EOS counted; bins of even lengths need the lengths themselves.
            single = list(length_rows(study, [(cell, lane)], "test", 1))
            tokens = [part["sequences"] * (part["shortest"] + 1) for part in single]
            for name in ("loss", "token_accuracy"):
                total = sum(n * part[name] for n, part in zip(tokens, single, strict=True)) / sum(tokens)
                assert total == pytest.approx(row[name], rel=1e-5)


def run_script(study, environment, *flags: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/lengths.py", str(study), *flags]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100)


def test_the_command_prints_a_line_a_cell_and_writes_rows_and_a_chart(study, tmp_path, subprocess_environment):
    flags = [f"--json={tmp_path}/rows.jsonl", f"--image={tmp_path}/chart.svg", "--width=3", "--value=token_accuracy"]
    done = run_script(study, subprocess_environment, *flags)
    assert done.returncode == 0, done.stderr
    title, head, *lines = done.stdout.splitlines()
    assert title.startswith("token accuracy on test")
    assert head.split() == ["cell", "2-3", "4-6", "7"]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    for line, cell in zip(lines[:2], ("decoder=luong", "decoder=none_state"), strict=True):
        values = [f"{row['token_accuracy']:.3f}" for row in rows if row["cell"] == cell]
        assert line.split() == [cell, *values]
    assert "<svg" in (tmp_path / "chart.svg").read_text()


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--width=0"], "--width=0: give a whole number from 1 on"),
        (["--only", "decoder=luon"], "--only=decoder=luon: the study has no such cell"),
        (["--json=/nowhere/rows.jsonl"], "--json=/nowhere/rows.jsonl: there is no folder /nowhere"),
        (["--image=chart.gif"], "--image=chart.gif"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(study, subprocess_environment, flags, what):
    done = run_script(study, subprocess_environment, *flags)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {what}")
    assert done.stderr.count("\n") == 1
