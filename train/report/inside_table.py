"""A quantity of diagnostics.jsonl over the steps, as text for a terminal and as CSV. Imports nothing heavy."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence

from train.log import Row
from train.report.axes import thin
from train.report.inside import QUANTITIES, over_steps
from train.report.statistics import LaneResult, group_by, ordered, varying
from train.report.tables import pad, width_of
from train.report.words import printable

Steps = Mapping[int, Sequence[float]]


def _cells(found: Sequence[tuple[LaneResult, Row]]) -> dict[str, tuple[LaneResult, int]]:
    """A lane of each cell, and how many lanes of it have rows."""
    lanes = group_by(dict.fromkeys((lane.cell, lane.lane) for lane, _ in found), lambda place: place[0])
    first = {lane.cell: lane for lane, _ in reversed(found)}
    return {cell: (first[cell], len(places)) for cell, places in lanes.items()}


def _median(values: Sequence[float] | None) -> str:
    return f"{statistics.median(values):.3g}" if values else "-"


def _table(
    cells: Mapping[str, tuple[LaneResult, int]], numbers: Mapping[str, Steps], attention: str, width: int
) -> str:
    """Of one attention; `numbers` by cell."""
    axes = varying([lane for lane, _ in cells.values()])
    left = [[*axes, "lr", "seeds"]]
    for lane, seeds in (cells[cell] for cell in numbers):
        left.append([*(printable(lane.axes.get(axis)) for axis in axes), f"{lane.lr:g}", str(seeds)])
    widths = [max(map(width_of, column)) for column in zip(*left, strict=True)]
    margin = ["  ".join(map(pad, line, widths)) for line in left]

    steps = ordered(step for of_cell in numbers.values() for step in of_cell)
    if not steps:
        return f"{attention}: no finite value"
    columns = {step: [str(step), *(_median(of_cell.get(step)) for of_cell in numbers.values())] for step in steps}
    widest = max(width_of(text) for column in columns.values() for text in column)
    room = (width - width_of(margin[0]) - 1) // (widest + 2)
    shown = [steps[i] for i in thin(len(steps), max(room, 2))]
    some = "" if len(shown) == len(steps) else f" ({len(shown)} of {len(steps)}; all with --csv)"
    lines = zip(margin, zip(*(columns[step] for step in shown), strict=True), strict=True)
    body = [f"{start} | {'  '.join(pad(text, widest) for text in texts)}".rstrip() for start, texts in lines]
    return "\n".join([f"{attention}, at step{some}", *body])


def steps_text(found: Sequence[tuple[LaneResult, Row]], name: str, rates: str, width: int = 120) -> str:
    """A table an attention, a line a cell, a column a step; as many steps as a terminal of this width can hold.

    `rates`: at which rates the lanes are, in words.
    """
    cells, numbers = _cells(found), over_steps(found, name)
    paragraphs = [f"{name}: {QUANTITIES[name].words}\nmedian over seeds, layers and heads, {rates}"]
    for attention, places in group_by(numbers, lambda place: place[1]).items():
        paragraphs.append(_table(cells, {place[0]: numbers[place] for place in places}, attention, width))
    return "\n\n".join(paragraphs)


def steps_csv(found: Sequence[tuple[LaneResult, Row]], name: str) -> str:
    """The same with full digits: a line an attention, cell and step, with the range over seeds, layers and heads."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    cells = _cells(found)
    axes = varying([lane for lane, _ in cells.values()])
    writer.writerow(["quantity", "attention", *axes, "lr", "seeds", "step", "median", "smallest", "largest"])
    for (cell, attention), steps in over_steps(found, name).items():
        lane, seeds = cells[cell]
        values = [printable(lane.axes.get(axis)) for axis in axes]
        for step in sorted(steps):
            spread = [statistics.median(steps[step]), min(steps[step]), max(steps[step])]
            writer.writerow([name, attention, *values, lane.lr, seeds, step, *spread])
    return file.getvalue()
