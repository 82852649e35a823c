"""A study as tables: one statistic of one metric, pivoted over two axes.

A table has blocks side by side: the best rate of each cell (chosen on `valid`), and each rate held fixed for all cells.
Axes that vary and are neither rows nor columns give one table for each combination of their values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.errors import UserError
from train.report.gaps import gaps
from train.report.intervals import Spread
from train.report.statistics import (
    LOWER_IS_BETTER,
    LaneResult,
    best_lanes,
    choosing_metric,
    common_seeds,
    group_by,
    lanes_spread,
    ordered,
    seeds_of_rates,
    varying,
)
from train.report.words import printable, title_of
from train.words import counted

BLEU_NOTE = (
    "BLEU 0 beside exact matches: BLEU counts runs of up to four tokens, so it is 0 where no output has four tokens, "
    "even if short outputs are exactly right; read chrf or sequence_accuracy"
)

# Plain numbers a table can show in place of `mean ± half the spread over seeds`.
STATISTICS: dict[str, Callable[[Spread], float | int | None]] = {
    "mean": lambda spread: spread.mean,
    "iqm": lambda spread: spread.iqm,
    "sd": lambda spread: spread.sd,
    "low": lambda spread: spread.low,
    "high": lambda spread: spread.high,
    "min": lambda spread: spread.minimum,
    "max": lambda spread: spread.maximum,
    "half_spread": lambda spread: spread.half_spread,
    "lanes": lambda spread: spread.lanes,
    "finite": lambda spread: spread.finite,
    "diverged": lambda spread: spread.diverged,
}
VIEWS = ("both", "best", "fixed")

BEST = "best rate"


@dataclass(frozen=True)
class Entry:
    """One place of a table: the spread over seeds, and the rate where all its lanes share one."""

    spread: Spread
    lr: float | None


@dataclass(frozen=True)
class Block:
    """Places of one table under one heading; ``lr`` is None where each cell has its own best rate."""

    heading: str
    lr: float | None
    entries: Mapping[tuple[Any, Any], Entry]


@dataclass(frozen=True)
class Table:
    """A pivot. ``columns`` is "" where one axis is enough."""

    panel: Mapping[str, Any]
    value: str
    split: str
    statistic: str
    rows: str
    columns: str
    row_values: tuple[Any, ...]
    column_values: tuple[Any, ...]
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]
    gaps: tuple[str, ...]  # which of its cells lack seeds or rates that a cell of the same pivot has

    @property
    def title(self) -> str:
        """What is shown, of which part of the study."""
        shown = title_of(self.value, self.split)
        if self.statistic in STATISTICS:
            shown = f"{self.statistic} of {shown}"
        return ", ".join([*(f"{axis}={printable(value)}" for axis, value in self.panel.items()), shown])


def default_layout(lanes: Sequence[LaneResult]) -> tuple[str, str]:
    """Rows and columns that suit a study: d_k by score where both vary; else the axes that do. Columns may be ""."""
    axes = tuple(dict.fromkeys(axis for lane in lanes for axis in lane.axes))
    changing = varying(lanes)
    others = [axis for axis in changing if axis not in ("score", "d_k")]
    if "d_k" in changing:
        rows = "d_k"
    elif others:
        rows = others[0]
    else:
        rows = "d_k" if "d_k" in axes else "seed"
    others = [axis for axis in others if axis not in (rows, "task")]
    if others and "score" not in changing:
        return rows, others[0]
    return rows, "score" if "score" in axes else ""


def _coordinate(lane: LaneResult, axis: str) -> Any:
    if axis == "lr":
        return lane.lr
    if axis == "seed":
        return lane.seed
    return lane.axes.get(axis) if axis else ""


def _block(
    heading: str, lr: float | None, lanes: Sequence[LaneResult], place: tuple[str, str], split: str, value: str
) -> Block:
    entries = {}
    grouped = group_by(lanes, lambda lane: (_coordinate(lane, place[0]), _coordinate(lane, place[1])))
    for key, group in grouped.items():
        rates = {lane.lr for lane in group}
        entries[key] = Entry(lanes_spread(group, split, value), rates.pop() if len(rates) == 1 else None)
    return Block(heading, lr, entries)


def hidden_by_bleu(lanes: Sequence[LaneResult], value: str, split: str) -> bool:
    """Whether a lane has BLEU 0 although some of its outputs are exactly right, which a reader has to be told."""
    return value.startswith("bleu") and any(
        lane.value(split, value) == 0 and (lane.value(split, "sequence_accuracy") or 0) > 0 for lane in lanes
    )


def _seed_notes(lanes: Sequence[LaneResult]) -> list[str]:
    """How rates were compared in cells whose rates have different seeds; nothing where all have the same."""
    cells = [seeds_of_rates(group) for group in group_by(lanes, lambda lane: lane.cell).values()]
    uneven = [seeds for seeds in cells if len(set(seeds.values())) > 1]
    apart = sum(not common_seeds(seeds) for seeds in uneven)
    of = f"of {counted(len(cells), 'cell')}"
    notes = []
    if len(uneven) > apart:
        notes.append(
            f"rates of {len(uneven) - apart} {of} have different seeds: they are compared on the seeds they all have, "
            "and each mean is over all seeds of its rate"
        )
    if apart:
        notes.append(f"rates of {apart} {of} have no seed in common: those with the most seeds, all the same, compete")
    return notes


def _notes(
    lanes: Sequence[LaneResult], blocks: Sequence[Block], value: str, split: str, statistic: str
) -> tuple[str, ...]:
    notes = []
    if statistic not in STATISTICS:
        notes.append("mean ± half the distance between the smallest and the largest seed")
    if any(block.heading == BEST for block in blocks):
        chosen_by = choosing_metric(lanes, value)
        extreme = "lowest" if chosen_by in LOWER_IS_BETTER else "highest"
        mark = "" if statistic in STATISTICS else "@ "
        notes.append(
            f"{mark}best rate of a cell: {extreme} mean {chosen_by} over seeds on valid, of equal ones the smaller"
        )
        notes += _seed_notes(lanes)
    incomplete = sum(lane.value(split, value) is None for lane in lanes)
    if incomplete:
        diverged = sum(lane.value(split, value) is None and lane.diverged_at is not None for lane in lanes)
        waiting = sum(split not in lane.counting and lane.diverged_at is None for lane in lanes)
        reasons = [
            f"{count} {why}" for count, why in ((diverged, "diverged"), (waiting, f"no {split} row yet")) if count
        ]
        of = f" ({', '.join(reasons)})" if reasons else ""
        notes.append(
            f"no finite value in {incomplete} of {counted(len(lanes), 'lane')}{of}; (n/m): a mean over n of m lanes"
        )
    only_best = all(block.heading == BEST for block in blocks)
    if hidden_by_bleu(best_lanes(lanes, choosing_metric(lanes, value)) if only_best else lanes, value, split):
        notes.append(BLEU_NOTE)
    return tuple(notes)


def lanes_at(lanes: Sequence[LaneResult], lr: float) -> list[LaneResult]:
    """The lanes of one learning rate. Raises UserError where there is none."""
    found = [lane for lane in lanes if lane.lr == lr]
    if not found:
        known = ", ".join(f"{rate:g}" for rate in ordered(lane.lr for lane in lanes))
        raise UserError(f"--lr={lr:g}: the log has no such rate; it has {known}")
    return found


def pivot(
    lanes: Sequence[LaneResult],
    *,
    rows: str = "d_k",
    columns: str = "score",
    value: str = "token_accuracy",
    split: str = "test",
    statistic: str = "both",
    lr: float | None = None,
) -> list[Table]:
    """Tables of one metric, one for each combination of the axes that vary and are neither rows nor columns.

    ``rows`` and ``columns`` are axes, `lr` or `seed`; ``columns`` may be "". ``statistic`` is `both`, `best`, `fixed`
    (mean ± half spread at the best rate, at each rate), or a key of STATISTICS for one number at the best rate and at
    each rate. ``lr`` restricts to one rate. Raises UserError for a name the log does not have.
    """
    axes = dict.fromkeys(axis for lane in lanes for axis in lane.axes)
    for flag, axis in (("--rows", rows), ("--columns", columns)):
        if lanes and axis and axis not in (*axes, "lr", "seed"):
            raise UserError(
                f"{flag}={axis}: the log has no such axis; it has {', '.join(sorted([*axes, 'lr', 'seed']))}"
            )
    if statistic not in (*VIEWS, *STATISTICS):
        raise UserError(f"--statistic={statistic}: choose from {', '.join(sorted([*VIEWS, *STATISTICS]))}")
    if lr is not None:
        lanes = lanes_at(lanes, lr)
    rest = [axis for axis in varying(lanes) if axis not in (rows, columns)]
    chosen_by = choosing_metric(lanes, value)
    tables = []
    for key, group in group_by(lanes, lambda lane: tuple(lane.axes.get(axis) for axis in rest)).items():
        place = (rows, columns)
        blocks = []
        rates = ordered(lane.lr for lane in group)
        # With one rate there is nothing to choose, and its block says it all.
        chosen = statistic == "best" or (statistic != "fixed" and len(rates) > 1)
        fixed = statistic != "best" or lr is not None
        if "lr" in place:
            blocks.append(_block("each rate", None, group, place, split, value))
        else:
            if chosen and lr is None:
                blocks.append(_block(BEST, None, best_lanes(group, chosen_by), place, split, value))
            for rate in rates if fixed else []:
                at_rate = [lane for lane in group if lane.lr == rate]
                blocks.append(_block(f"lr {rate:g}", rate, at_rate, place, split, value))
        tables.append(
            Table(
                panel=dict(zip(rest, key, strict=True)),
                value=value,
                split=split,
                statistic=statistic,
                rows=rows,
                columns=columns,
                row_values=tuple(ordered(_coordinate(lane, rows) for lane in group)),
                column_values=tuple(ordered(_coordinate(lane, columns) for lane in group)),
                blocks=tuple(blocks),
                notes=_notes(group, blocks, value, split, statistic),
                gaps=gaps(group, lanes),
            )
        )
    return tables
