"""Axes of the charts: ends that a metric can have, series side by side, titles that fit."""

import itertools
import math
import re
from pathlib import Path

import pytest

from tests.synthetic_study import study_rows
from train.report.axes import LETTER, apart, moved, scale_of, title_lines, value_ends
from train.report.charts import fixed_rates, headline, save
from train.report.statistics import lane_results
from train.report.words import bounds, title_of


@pytest.mark.parametrize(
    ("metric", "lowest", "highest", "ends"),
    [
        ("bleu", 0.58, 0.76, (0, 1)),
        ("bleu", 0.0, 0.0, (0, 1)),
        ("bleu", 20.0, 30.0, (0, 31.5)),
        ("bleu_unseen", 0.0, 0.2, (0, 1)),
        ("chrf", 97.0, 99.0, (0, 100)),
        ("chrf", 100.0, 100.0, (0, 100)),
        ("token_accuracy", 0.0, 0.1, (0, 1)),
        ("sequence_accuracy", 0.59, 0.7, (0, 1)),
        ("token_accuracy", 0.8, 1.0, (0.79, 1)),
        ("token_accuracy", 1.0, 1.0, (0.95, 1)),
        ("loss", 0.01, 3.01, (0, 3.16)),
        ("loss", 2.0, 3.0, (1.95, 3.05)),
        ("loss", 0.0, 0.0, (0, 0.05)),
        ("score", -1.0, 1.0, (-1.1, 1.1)),
    ],
)
def test_ends_of_the_value_axis(metric: str, lowest: float, highest: float, ends: tuple[float, float]) -> None:
    assert value_ends(lowest, highest, metric) == pytest.approx(ends)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "token_accuracy", "loss"])
def test_every_value_lies_between_ends_the_metric_can_have(metric: str) -> None:
    smallest, largest = bounds(metric)
    for lowest, highest in itertools.combinations_with_replacement((0.0, 1e-9, 0.3, 0.6, 0.999, 1.0, 7.0, 100.0), 2):
        if highest > largest:
            continue
        low, high = value_ends(lowest, highest, metric)
        assert smallest <= low <= lowest <= highest <= high <= largest
        assert low < high


@pytest.mark.parametrize(("factor", "top"), [(0.02, 1.0), (1.0, 41.0)])
def test_the_chart_of_bleu_starts_at_0(factor: float, top: float) -> None:
    rows = study_rows(tasks=("parallel_text",), bleu=True, steps=200)
    rows = [{**row, "bleu": row["bleu"] * factor} if row.get("bleu") else row for row in rows]
    chart = headline(lane_results(rows), "bleu", "test")
    assert chart is not None
    scales = [layer["encoding"]["y"].get("scale") for layer in chart.to_dict()["layer"] if "y" in layer["encoding"]]
    domain = scales[0]["domain"]
    assert domain[0] == 0
    assert domain[1] <= top
    assert domain[1] >= max(row["bleu"] for row in rows if row.get("bleu"))


@pytest.mark.parametrize("values", [(4, 16, 64, 256), tuple(2**i for i in range(11)), (7, 11), (1, 2, 3), (1, 5, 6)])
@pytest.mark.parametrize(("series", "width"), [(3, 760), (3, 285), (6, 285)])
def test_series_of_one_value_stay_apart_and_nearer_to_it_than_to_the_next(
    values: tuple[int, ...], series: int, width: int
) -> None:
    scale = scale_of(values)
    step = apart(values, scale, series, width)
    drawn = [[moved(value, step * (i - (series - 1) / 2), values, scale) for i in range(series)] for value in values]
    flat = [place for group in drawn for place in group]
    assert flat == sorted(set(flat))
    at = math.log if scale == "log" else float
    between = at(drawn[1][0]) - at(drawn[0][-1])
    assert between > (at(drawn[0][-1]) - at(drawn[0][0])) * 0.5
    length = at(values[-1]) - at(values[0])
    assert (at(drawn[0][1]) - at(drawn[0][0])) / length * width <= 7


def test_values_of_an_axis_do_not_run_into_each_other(tmp_path: Path) -> None:
    rows = study_rows(scores=("dot",), widths=[2**i for i in range(11)], rates=(0.001, 0.01, 0.1), steps=100)
    chart = fixed_rates(lane_results(rows), "token_accuracy", "test")
    assert chart is not None
    save(chart, tmp_path / "c.svg")
    drawn = re.findall(r"<text([^>]*)>(\d+)</text>", (tmp_path / "c.svg").read_text("utf-8"))
    shown = [int(text) for style, text in drawn if 'opacity="0"' not in style]
    assert [shown.count(2**i) for i in range(11)] == [3] * 11


def test_titles_are_broken_to_fit() -> None:
    for title, length in itertools.product(
        (title_of("loss", "valid", "log scale, below 1e-06 drawn there"), title_of("bleu_unseen", "test"), "loss"),
        (220, 230, 390),
    ):
        lines = title_lines(title, length)
        assert " ".join(lines) == title
        assert all(len(line) * LETTER <= length for line in lines)
    assert title_lines("token accuracy on test", 220) == ["token accuracy on test"]


@pytest.mark.parametrize("widths", [(4, 16), (7,)], ids=["lines", "points"])
def test_a_drawn_axis_has_these_ends(widths: tuple[int, ...], tmp_path: Path) -> None:
    rows = study_rows(scores=("additive", "dot"), widths=widths, steps=200)
    rows = [{**row, "token_accuracy": 1.0 - 0.1 * row["seed"]} for row in rows]
    chart = headline(lane_results(rows), "token_accuracy", "test")
    assert chart is not None
    save(chart, tmp_path / "c.svg")
    drawn = re.findall(r">([0-9.]+)</text>", (tmp_path / "c.svg").read_text("utf-8"))
    ticks = [float(text) for text in drawn if "." in text]
    assert (min(ticks), max(ticks)) == (0.78, 1.0)
