"""What a table and a chart say where a study was extended for some of its cells only."""

import itertools
import random
import re
from collections.abc import Callable
from pathlib import Path

import altair as alt
import pytest

from scripts import table
from tests.synthetic_study import study_record, study_rows, write_study
from train.log import Row
from train.report import gaps as room
from train.report.charts import fixed_rates, headline, save
from train.report.curves import curves
from train.report.gaps import LEAD, gaps
from train.report.page import render
from train.report.pivot import pivot
from train.report.statistics import lane_results
from train.report.tables import summary

Kept = Callable[[Row], bool]


def only_dot(row: Row) -> bool:
    """More seeds and rates were asked for with `--only score=dot`."""
    return row["score"] == "dot" or (row["seed"] < 2 and row["lr"] == 0.003)


OTHERS = "additive and scaled_dot: 2 of 3 seeds, 1 of 3 rates"


@pytest.mark.parametrize(
    ("kept", "lines"),
    [
        (lambda row: True, []),
        (only_dot, [OTHERS]),
        (
            lambda row: (row["score"], row["d_k"]) != ("additive", 64) or (row["seed"] < 2 and row["lr"] == 0.01),
            ["additive, d_k 64: 2 of 3 seeds, 1 of 3 rates"],
        ),
        (lambda row: row["d_k"] in (4, 256) or row["seed"] == 0, ["d_k 16 and 64: 1 of 3 seeds"]),
        (
            lambda row: row["score"] == "dot" or row["d_k"] == 4 or row["lr"] > 0.001,
            ["additive and scaled_dot, d_k 16, 64 and 256: 2 of 3 rates"],
        ),
        (
            lambda row: (row["seed"] == 0) == (row["score"] == "dot"),
            ["additive and scaled_dot: 2 of 3 seeds", "dot: 1 of 3 seeds"],
        ),
        (lambda row: row["score"] != "dot" or row["lr"] < 0.01 or row["seed"] == 1, ["dot: 1 to 3 of 3 seeds"]),
        (
            lambda row: (row["score"], row["d_k"]) == ("dot", 4) and (row["seed"] == 0 or row["lr"] == 0.01),
            ["score=dot,d_k=4: 1 to 3 of 3 seeds"],
        ),
    ],
    ids=["complete", "one score", "one cell", "widths", "box", "other seeds", "added with one seed", "only cell"],
)
def test_cells_are_named_with_what_they_lack(kept: Kept, lines: list[str]) -> None:
    lanes = lane_results([row for row in study_rows(steps=200) if kept(row)])
    assert list(gaps(lanes, lanes)) == ([LEAD, *lines] if lines else [])


def test_cells_without_axes_are_told_apart_by_their_names() -> None:
    rows: list[Row] = [
        {"cell": cell, "lane": seed, "lr": 0.1, "seed": seed, "step": 1, "split": "valid"}
        for cell, seed in (("c", 0), ("c", 1), ("<d>\n", 0))
    ]
    lanes = lane_results(rows)
    assert gaps(lanes, lanes) == (LEAD, "<d>\\n: 1 of 2 seeds")


@pytest.mark.parametrize("seed", range(5))
def test_boxes_hold_each_cell_once_and_no_other(seed: int) -> None:
    draw = random.Random(seed)
    every = list(itertools.product("ab", range(3), (None, "x", "y", "z")))
    cells = draw.sample(every, draw.randint(1, len(every)))
    boxes = room._boxes(cells)
    assert sorted(map(str, cells)) == sorted(str(cell) for box in boxes for cell in itertools.product(*box))
    assert room._boxes(every) == [(("a", "b"), (0, 1, 2), (None, "x", "y", "z"))]


@pytest.mark.parametrize(("cells", "rest"), [(5, "and 1 more cell"), (6, "and 2 more cells"), (4, None)])
def test_after_a_few_lines_the_rest_is_counted(cells: int, rest: str | None) -> None:
    widths = tuple(range(1, cells + 2))
    rows = study_rows(scores=("dot",), widths=widths, rates=(0.001,), seeds=range(9), steps=200)
    lanes = lane_results([row for row in rows if row["d_k"] == 1 or row["seed"] < row["d_k"]])
    lines = gaps(lanes, lanes)
    assert lines[:5] == (LEAD, *(f"d_k {width}: {width} of 9 seeds" for width in (2, 3, 4, 5)))
    assert lines[5:] == ((rest,) if rest else ())


def test_tables_say_it_below_their_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in study_rows(steps=200) if only_dot(row)]
    assert summary(rows).split("\n")[-2:] == [LEAD, OTHERS]
    assert LEAD not in summary(study_rows(steps=200))
    workdir = write_study(tmp_path / "w", rows)
    assert table.main([str(workdir), "--statistic=best"]) == 0
    assert capsys.readouterr().out.endswith(f"\n{LEAD}\n{OTHERS}\n")
    assert table.main([str(workdir), "--lr=0.003"]) == 0
    assert capsys.readouterr().out.endswith(f"\n{LEAD}\nadditive and scaled_dot: 2 of 3 seeds\n")


def test_a_table_is_compared_with_the_tables_beside_it() -> None:
    rows = [row for row in study_rows(tasks=("copy", "sort"), steps=200) if row["task"] == "copy" or row["seed"] < 2]
    assert [each.gaps for each in pivot(lane_results(rows))] == [(), (LEAD, "all cells: 2 of 3 seeds")]


def test_the_report_says_it_at_each_table_and_chart(tmp_path: Path) -> None:
    rows = [row for row in study_rows(steps=200) if only_dot(row)]
    page = render(Path("study"), study_record(rows), rows)
    assert page.count(f'<p class="note warning">{LEAD}<br>{OTHERS}</p>') == 3
    lanes = lane_results(rows)
    image = headline(lanes, "token_accuracy", "test")
    for chart in (
        image,
        headline(lanes, "token_accuracy", "test", beside=2),
        fixed_rates(lanes, "token_accuracy", "test"),
        curves(rows, lanes, "loss", "loss"),
    ):
        assert chart is not None
        assert title(chart) == [LEAD, OTHERS]
    assert image is not None
    save(image, tmp_path / "c.svg")
    assert OTHERS in re.findall(r">([^<]*)</t", (tmp_path / "c.svg").read_text("utf-8"))
    complete = headline(lane_results(study_rows(steps=200)), "token_accuracy", "test")
    assert complete is not None
    assert title(complete) == []


def title(chart: alt.TopLevelMixin) -> list[str]:
    """The lines below a chart."""
    lines: list[str] = chart.to_dict().get("title", {}).get("text", [])
    return lines
