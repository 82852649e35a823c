"""Verdicts as text for a terminal and as CSV. Imports nothing heavy."""

import csv
import io
import textwrap
from collections.abc import Sequence

from train.report.comparisons import smallest_flip
from train.report.statistics import LaneResult, choosing_metric, group_by, ordered
from train.report.tables import number, pad, width_of
from train.report.verdicts import Comparison, compare, rules
from train.report.words import bounds, named, printable, title_of

NOTHING = "Nothing to compare: no axis but d_k and the task varies"


def p_text(p: float | None) -> str:
    """A p value with four places; a dash where there is none."""
    return "-" if p is None else "<0.0001" if p < 1e-4 else f"{p:.4f}"


def heading(lanes: Sequence[LaneResult], metric: str, split: str) -> str:
    """What is compared, and at which rates."""
    rates = ordered(lane.lr for lane in lanes)
    chosen = f"each cell at its best rate, chosen by {choosing_metric(lanes, metric)} on valid"
    return f"{title_of(metric, split)}, {f'learning rate {rates[0]:g}' if len(rates) == 1 else chosen}"


def columns(pair: Sequence[Comparison]) -> list[str]:
    """Names of the columns of `cells` for comparisons of one pair."""
    first = pair[0]
    names = [named(first.axis, name) for name in (first.first, first.second)]
    tests = ["verdict", "p (Holm)", "p (flip)", "P(better)", "effect"]
    return [*first.place, *names, "difference", "95 % interval", *tests]


def cells(comparison: Comparison, metric: str) -> list[str]:
    """One comparison as text, a cell a column."""
    found = comparison.difference
    shown = [number(value, metric) for value in (found.first, found.second, found.mean)]
    interval = "-"
    if found.low is not None and found.high is not None:
        largest = bounds(metric)[1] - bounds(metric)[0]
        interval = f"{number(max(found.low, -largest), metric)} to {number(min(found.high, largest), metric)}"
    flip = p_text(found.flip)
    if found.flip is not None and found.flip <= smallest_flip(found.seeds) * 1.001:
        flip += "*"
    return [
        *map(printable, comparison.place.values()),
        *shown,
        interval,
        comparison.verdict.word,
        p_text(comparison.verdict.p),
        flip,
        "-" if comparison.improvement is None else f"{comparison.improvement:.2f}",
        "-" if found.effect is None else f"{found.effect:.1f}",
    ]


def remarks(comparisons: Sequence[Comparison]) -> list[str]:
    """What is said of single comparisons, a line each."""
    lines = []
    for each in comparisons:
        place = [f"{axis} {printable(value)}" for axis, value in each.place.items()]
        lines += [f"{', '.join([each.pair, *place])}: {each.remark}"] if each.remark else []
    return lines


def verdict_text(lanes: Sequence[LaneResult], metric: str, split: str, width: int = 120) -> str:
    """A table a pair, then the rules and the remarks, for a terminal of this width."""
    comparisons = compare(lanes, metric, split)
    if not comparisons:
        return NOTHING
    paragraphs = [f"Verdicts: {heading(lanes, metric, split)}"]
    for name, pair in group_by(comparisons, lambda each: each.pair).items():
        lines = [columns(pair), *(cells(each, metric) for each in pair)]
        widths = [max(map(width_of, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(pad, line, widths)).rstrip() for line in lines]
        paragraphs.append("\n".join([name, *table]))
    said = [*rules(comparisons, metric), *remarks(comparisons)]
    paragraphs.append("\n".join(part for line in said for part in textwrap.wrap(line, width)))
    return "\n\n".join(paragraphs)


def verdict_csv(lanes: Sequence[LaneResult], metric: str, split: str) -> str:
    """The same with full digits: a line a comparison; nothing where there is no number."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    comparisons = compare(lanes, metric, split)
    places = list(comparisons[0].place) if comparisons else []
    numbers = ["seeds", "first_mean", "second_mean", "difference", "low", "high", "verdict", "p_holm", "p_t", "p_flip"]
    tests = ["p_equivalent_holm", "probability_of_improvement", "effect", "remark"]
    writer.writerow(["axis", "first", "second", *places, "metric", "split", *numbers, *tests])
    for each in comparisons:
        found = each.difference
        names = map(printable, (each.first, each.second, *each.place.values()))
        values = [found.seeds, found.first, found.second, found.mean, found.low, found.high]
        tested = [each.verdict.word, each.verdict.p, found.t, found.flip, each.verdict.equivalent]
        writer.writerow(
            [each.axis, *names, metric, split, *values, *tested, each.improvement, found.effect, each.remark]
        )
    return file.getvalue()
