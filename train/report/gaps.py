"""Which cells have fewer seeds or rates than others: what a table or a chart that compares them has to say.

A study that was extended for some of its cells compares the best of one rate with the best of three, and a mean over
two seeds with one over three.
"""

import math
from collections.abc import Sequence
from typing import Any

from train.report.statistics import LaneResult, group_by, ordered, seeds_of_rates, varying
from train.report.words import printable
from train.words import counted

LEAD = "these have fewer seeds or rates than the study:"
LINES = 4

Box = tuple[tuple[Any, ...], ...]  # for each axis some of its values; stands for the cells with every combination


def _lack(lanes: Sequence[LaneResult], study: Sequence[LaneResult]) -> str:
    """How many seeds and rates one cell has of those of the study; "" where it has all."""
    every_seed, every_rate = {lane.seed for lane in study}, {lane.lr for lane in study}
    seeds = seeds_of_rates(lanes)
    fewest, most = min(map(len, seeds.values())), max(map(len, seeds.values()))
    lacks = []
    if fewest < len(every_seed):
        lacks.append(f"{fewest if fewest == most else f'{fewest} to {most}'} of {counted(len(every_seed), 'seed')}")
    if len(seeds) < len(every_rate):
        lacks.append(f"{len(seeds)} of {counted(len(every_rate), 'rate')}")
    return ", ".join(lacks)


def _merged(boxes: Sequence[Box], axis: int) -> list[Box]:
    """Boxes that differ along this axis only become one."""
    alike = group_by(boxes, lambda box: (box[:axis], box[axis + 1 :]))
    return [
        (*before, tuple(ordered(value for box in group for value in box[axis])), *after)
        for (before, after), group in alike.items()
    ]


def _boxes(cells: Sequence[tuple[Any, ...]]) -> list[Box]:
    """The cells as few boxes: merged along the last axis first."""
    boxes: list[Box] = [tuple((value,) for value in cell) for cell in cells]
    for axis in reversed(range(len(cells[0]))):
        boxes = _merged(boxes, axis)
    return boxes


def _size(box: Box) -> int:
    return math.prod(map(len, box))


def _name(box: Box, axes: Sequence[str], every: Sequence[int]) -> str:
    """`additive and dot, d_k 4 and 16`, without the axes of which all values are meant."""
    parts = []
    for axis, values, count in zip(axes, box, every, strict=True):
        if len(values) < count or count == 1:
            *before, last = map(printable, values)
            words = f"{', '.join(before)} and {last}" if before else last
            parts.append(words if axis in ("score", "cell") else f"{axis} {words}")
    return ", ".join(parts) or "all cells"


def gaps(lanes: Sequence[LaneResult], study: Sequence[LaneResult]) -> tuple[str, ...]:
    """LEAD and lines `additive, d_k 64: 2 of 3 seeds, 1 of 3 rates` on the cells of ``lanes`` that are not complete.

    Complete is a cell with each seed and each rate of the lanes of ``study``; where all are, there is nothing to say.
    Cells that lack the same share a line; after LINES lines the rest is counted. A cell whose rates have different
    numbers of seeds says `1 to 3 of 3 seeds`.
    """
    cells = group_by(lanes, lambda lane: lane.cell)
    axes = varying(lanes)
    places = {cell: tuple(group[0].axes.get(axis) for axis in axes) for cell, group in cells.items()}
    if not axes or len(set(places.values())) < len(cells):
        axes, places = ("cell",), {cell: (cell,) for cell in cells}
    every = [len(set(values)) for values in zip(*places.values(), strict=True)]
    lacking = group_by(cells, lambda cell: _lack(cells[cell], study))
    lacking.pop("", None)
    boxes = [(box, lack) for lack, names in lacking.items() for box in _boxes([places[name] for name in names])]
    boxes.sort(key=lambda box: _size(box[0]), reverse=True)
    lines = [f"{_name(box, axes, every)}: {lack}" for box, lack in boxes[:LINES]]
    more = sum(_size(box) for box, _ in boxes[LINES:])
    if more:
        lines.append(f"and {counted(more, 'more cell')}")
    return (LEAD, *lines) if lines else ()
