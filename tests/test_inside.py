"""Charts and table of diagnostics.jsonl: which lanes they are of, and what stands in them."""

import json
from pathlib import Path

import pytest

from scripts import report as script
from tests.synthetic_study import study_record, study_rows, write_study
from train.jsonl import to_json
from train.log import DIAGNOSTICS, Row
from train.report.inside import QUANTITIES, at_the_end, of_chosen
from train.report.inside_section import FLOOR, development
from train.report.page import render
from train.report.statistics import lane_results

SCORES, WIDTHS = ("additive", "dot"), (7, 11)


def study() -> list[Row]:
    return study_rows(scores=SCORES, widths=WIDTHS, rates=(0.001, 0.01), seeds=(0, 1, 2), steps=200)


def diagnosed(rows: list[Row]) -> list[Row]:
    """At steps 0 and 200 of every lane two heads of one attention, and a group. Values tell the seed and the head."""
    lanes = {(row["cell"], row["lane"]): row for row in rows}
    found = []
    for row in lanes.values():
        lane = {name: row[name] for name in ("cell", "lane", "lr", "seed", "task", "score", "d_k")}
        for step in (0, 200):
            for head in (0, 1):
                place = {"step": step, "attention": "cross", "layer": 0, "head": head, "group": None}
                value = 10.0 * row["seed"] + head + 1 + (1000.0 if row["lr"] == 0.001 else 0.0)
                values = dict.fromkeys(QUANTITIES, value) | {"entropy": 0.5, "jacobian_q50": 0.0, "raw_variance": None}
                found.append(lane | place | values)
            found.append(lane | {"step": step, "attention": None, "layer": None, "head": None, "group": "output"})
    return found


def test_rows_are_those_of_attentions_at_the_best_rate_of_each_cell() -> None:
    rows = study()
    lanes = lane_results(rows)
    found = of_chosen(diagnosed(rows), lanes, "token_accuracy")
    assert len(found) == len(SCORES) * len(WIDTHS) * 3 * 2 * 2
    assert all(row["attention"] == "cross" and lane.lr == row["lr"] for lane, row in found)
    assert len({lane.lr for lane, row in found if row["cell"] == found[0][1]["cell"]}) == 1


def test_lines_are_medians_over_seeds_and_heads_and_bands_span_them() -> None:
    rows = [row for row in study() if row["lr"] == 0.01]
    lanes = lane_results(rows)
    found = of_chosen(diagnosed(rows), lanes, "token_accuracy")
    chart = development(found, lanes, "effective_variance")
    assert chart is not None
    text = json.dumps(chart.to_dict())
    assert '"step": 200, "middle": 11.5, "low": 1.0, "high": 22.0' in text
    for name, (words, _) in QUANTITIES.items():
        drawn = development(found, lanes, name)
        if name == "raw_variance":
            assert drawn is None
        else:
            assert drawn is not None
            assert words[:20] in json.dumps(drawn.to_dict())
    zeros = development(found, lanes, "jacobian_q50")
    assert zeros is not None
    assert f'"middle": {FLOOR}' in json.dumps(zeros.to_dict())
    assert at_the_end(found)[0][2]["query_norm"] == 11.5
    assert at_the_end(found)[0][2]["raw_variance"] is None


def test_the_page_has_it_where_something_was_diagnosed() -> None:
    rows = study()
    record = study_record(rows)
    assert "Inside attention" not in render(Path("study"), record, rows)
    page = render(Path("study"), record, rows, diagnosed(rows))
    assert "Inside attention" in page
    assert "variance of effective scores within a row" in page
    assert "no rows in diagnostics.jsonl" not in page
    first = [row for row in diagnosed(rows) if row["seed"] == 0]
    assert "12 lanes, 8 of them without rows in diagnostics.jsonl." in render(Path("study"), record, rows, first)


@pytest.mark.parametrize("name", ["entropy", "effective_rank"])
def test_images_of_a_quantity(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    rows = study()
    workdir = write_study(tmp_path / "w", rows)
    image = tmp_path / "inside.svg"
    arguments = [str(workdir), f"--image={image}", f"--value={name}", "--only", "score=dot"]
    assert script.main(arguments) == 2
    error = f"error: --image: {workdir} has no finite {name} in diagnostics.jsonl to draw\n"
    assert capsys.readouterr().err == error
    assert not image.exists()
    text = "".join(to_json(row) + "\n" for row in diagnosed(rows))
    (workdir / DIAGNOSTICS).write_text(text, encoding="utf-8")
    assert script.main(arguments) == 0
    assert QUANTITIES[name].words[:14] in image.read_text("utf-8")
