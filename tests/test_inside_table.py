"""scripts/diagnostics.py: medians over the steps, as text and as CSV, and what it refuses."""

import csv
import io
from pathlib import Path

import pytest

from scripts import diagnostics as script
from tests.synthetic_study import study_rows, write_study
from train.jsonl import to_json
from train.log import DIAGNOSTICS
from train.report.inside import QUANTITIES

RATES = (0.001, 0.01)
STEPS = range(0, 220, 20)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A study whose diagnostics are 100 * seed + 10 * head + step; at the larger rate a thousand more."""
    rows = study_rows(scores=("additive", "dot"), widths=(7, 11), rates=RATES, seeds=(0, 1, 2), steps=200)
    lanes = {(row["cell"], row["lane"]): row for row in rows}
    found = []
    for row in lanes.values():
        lane = {name: row[name] for name in ("cell", "lane", "lr", "seed", "task", "score", "d_k")}
        for step in STEPS:
            for attention in ("encoder_self", "cross"):
                for head in (0, 1):
                    place = {"step": step, "attention": attention, "layer": 0, "head": head, "group": None}
                    value = 100.0 * row["seed"] + 10.0 * head + step + 1000.0 * (row["lr"] == RATES[1])
                    found.append(lane | place | dict.fromkeys(QUANTITIES, value) | {"entropy": None})
    path = write_study(tmp_path / "w", rows)
    (path / DIAGNOSTICS).write_text("".join(to_json(row) + "\n" for row in found), encoding="utf-8")
    return path


def output(workdir: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert script.main([str(workdir), *arguments]) == 0
    return capsys.readouterr().out


def test_a_line_a_cell_and_a_column_a_step(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(workdir, capsys, "--lr=0.001", "--attention=cross", "--only=score=dot", "--value=key_norm")
    lines = text.splitlines()
    assert lines[:2] == [
        f"key_norm: {QUANTITIES['key_norm'].words}",
        "median over seeds, layers and heads, at learning rate 0.001",
    ]
    assert lines[3] == "cross, at step"
    assert lines[4].split() == ["d_k", "lr", "seeds", "|", *map(str, STEPS)]
    assert lines[5].split() == ["7", "0.001", "3", "|", *(str(105 + step) for step in STEPS)]
    assert lines[6].split()[0] == "11"
    assert len(lines) == 7


def test_without_a_rate_the_best_of_each_cell_is_shown(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(workdir, capsys, "--csv")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 2 * 4 * len(STEPS)
    for line in lines:
        more = 1000.0 if float(line["lr"]) == RATES[1] else 0.0
        step = int(line["step"])
        assert float(line["median"]) == 105 + step + more
        assert (float(line["smallest"]), float(line["largest"])) == (step + more, 210 + step + more)
        assert line["seeds"] == "3"
    assert len({(line["score"], line["d_k"], line["lr"]) for line in lines}) == 4


def test_of_many_steps_as_many_are_shown_as_fit_and_it_is_said(
    workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = output(workdir, capsys, "--lr=0.001", "--attention=cross")
    assert all(len(line) <= 120 for line in text.splitlines())
    head = next(line for line in text.splitlines() if line.startswith("score"))
    assert max(map(len, text.splitlines()[3:])) <= 60
    shown = head.partition("|")[2].split()
    assert (shown[0], shown[-1]) == ("0", "200")
    assert f"cross, at step ({len(shown)} of {len(STEPS)}; all with --csv)" in text


def test_what_has_no_value_says_so_and_is_no_line_of_csv(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(workdir, capsys, "--value=entropy", "--attention=cross")
    assert text.splitlines()[3:] == ["cross: no finite value"]
    assert len(output(workdir, capsys, "--value=entropy", "--csv").splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--attention=self"], "--attention=self: the study has encoder_self, cross"),
        (["--lr=0.5"], "--lr=0.5: the log has no such rate; it has 0.001, 0.01"),
        (["--only=score=cosine"], "--only=score=cosine: the study has no such cell"),
    ],
)
def test_what_the_study_does_not_have_is_one_line(
    workdir: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert script.main([str(workdir), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {words}")
    assert error.count("\n") == 1


def test_a_study_without_diagnostics_says_so(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / DIAGNOSTICS).unlink()
    assert script.main([str(workdir)]) == 2
    assert capsys.readouterr().err.endswith("no attention in the rows of these lanes (a model may be without)\n")
