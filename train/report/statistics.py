"""The lanes of a study as the log tells them, and which rate of a cell is best. Small pure functions over rows.

The rules, which every table and chart states:

- A lane counts with the parameters of its best step on ``valid``, whatever the split that is reported.
- The best rate of a cell is chosen on ``valid`` and reported on another split. That removes the bias of choosing on the
  sentences that are reported, not the luck of the seeds: the lanes that won the choice are the lanes that are reported.
- Rates are compared on the same seeds, as far as they have any in common; a mean that is shown is over all seeds of its
  rate.
- A diverged lane is data. Where it had been evaluated before, its best parameters count; where it never was, it has no
  value: it is left out of a mean, which says how many lanes it is a mean of, and it counts as the worst possible value
  when rates are compared.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from train.log import Row, axis_names
from train.metrics import METRICS
from train.report.intervals import Spread, finite, spread
from train.words import counted

# METRICS says it of what every evaluation measures; of the scores of decoded text, the error rate is one.
LOWER_IS_BETTER = frozenset(name for name, metric in METRICS.items() if not metric.higher_is_better) | {"ter"}
COUNTS = {"token_accuracy": "target_tokens", "sequence_accuracy": "sequences"}  # fields of a row

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class LaneResult:
    """One training run, as the log tells it."""

    cell: str
    axes: Mapping[str, Any]
    lane: int
    lr: float
    seed: int
    last_step: int
    best_step: int | None
    diverged_at: int | None
    counting: Mapping[str, Row]  # split -> the row that counts: of the best step, for `test` of the end

    def value(self, split: str, metric: str) -> float | None:
        """The finite number that counts, or None where the log has none.

        A lane that diverged before its first evaluation has best step 0: its `test` row measures the initial
        parameters, which no training made, so it has no value.
        """
        row = self.counting.get(split, {})
        return finite(row.get(metric)) if row.get("best_step", 1) else None

    def count(self, split: str, metric: str) -> float | None:
        """Of how many tokens or sentences an accuracy is a share, or None where the log does not say."""
        return finite(self.counting.get(split, {}).get(COUNTS.get(metric, "")))

    @property
    def finished(self) -> bool:
        """Whether the lane reached its end: `test` is evaluated once, there."""
        return "test" in self.counting


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by key, keys and items in the order of their appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _best_step(valid: Sequence[Row]) -> int | None:
    """The step the best parameters come from, as the last row says; where rows do not say, that of the lowest loss."""
    if not valid:
        return None
    if "best_step" in valid[-1]:
        step = finite(valid[-1]["best_step"])
        return None if step is None else int(step)
    losses = [(loss, row["step"]) for row in valid if (loss := finite(row.get("loss"))) is not None]
    return min(losses)[1] if losses else None


def _lane_result(rows: Sequence[Row], axes: Sequence[str], step: int | None) -> LaneResult:
    rows = sorted(rows, key=lambda row: row["step"])
    first, last = rows[0], rows[-1]
    splits = group_by(rows, lambda row: row["split"])
    best = _best_step(splits.get("valid", []))
    at = best if step is None else step
    counting = {split: row for split in ("train", "valid") for row in splits.get(split, []) if row["step"] == at}
    if "test" in splits:
        counting["test"] = splits["test"][-1]
    diverged = [update for row in rows if (update := finite(row.get("diverged_at"))) is not None]
    return LaneResult(
        cell=first["cell"],
        axes={axis: first.get(axis) for axis in axes},
        lane=int(first["lane"]),
        lr=finite(first.get("lr")) or 0.0,
        seed=int(finite(first.get("seed")) or 0),
        last_step=int(last["step"]),
        best_step=best,
        diverged_at=int(diverged[-1]) if diverged else None,
        counting=counting,
    )


def lane_results(rows: Sequence[Row], step: int | None = None) -> list[LaneResult]:
    """One result a lane, in the order of the log. Rows that name no cell, lane, split or step are no evaluations.

    On `train` and `valid` the row that counts is that of the best parameters, or that of `step`.
    """
    evaluations = [
        row
        for row in rows
        if isinstance(row.get("cell"), str)
        and isinstance(row.get("split"), str)
        and finite(row.get("lane")) is not None
        and finite(row.get("step")) is not None
    ]
    axes = axis_names(evaluations)
    return [
        _lane_result(group, axes, step)
        for group in group_by(evaluations, lambda row: (row["cell"], row["lane"])).values()
    ]


def choosing_metric(lanes: Sequence[LaneResult], metric: str) -> str:
    """What rates are compared by: the metric itself, or `loss` where it was not measured on `valid`."""
    return metric if any(lane.value("valid", metric) is not None for lane in lanes) else "loss"


def seeds_of_rates(lanes: Sequence[LaneResult]) -> dict[float, frozenset[int]]:
    """The seeds that each rate of one cell was run with."""
    return {lr: frozenset(lane.seed for lane in group) for lr, group in group_by(lanes, lambda lane: lane.lr).items()}


def common_seeds(seeds: Mapping[float, frozenset[int]]) -> frozenset[int]:
    """The seeds that all rates were run with."""
    return frozenset.intersection(*seeds.values()) if seeds else frozenset()


def compared_lanes(lanes: Sequence[LaneResult]) -> list[LaneResult]:
    """The lanes by which the rates of one cell are compared: those of the seeds that all its rates have.

    A rate that was added later with one lucky seed would otherwise win against the mean over several. Where no seed is
    common to all, the rates with the most seeds are compared: of those the largest number that have the same seeds, of
    equal numbers the one with the smallest rate.
    """
    seeds = seeds_of_rates(lanes)
    common = common_seeds(seeds)
    if common or not seeds:
        return [lane for lane in lanes if lane.seed in common]
    most = max(map(len, seeds.values()))
    alike = group_by(sorted(lr for lr in seeds if len(seeds[lr]) == most), lambda lr: seeds[lr])
    rates = max(alike.values(), key=len)
    return [lane for lane in lanes if lane.lr in rates]


def _candidates(lanes: Sequence[LaneResult], metric: str) -> list[tuple[float, float, float]]:
    """The rates that have a value, each as (share of lanes without one, mean with the sign that makes it a cost, rate).

    A lane without a value counts as 0 where more is better. A loss has no worst value: there, rates with the smaller
    share of lanes without a value come first.
    """
    candidates: list[tuple[float, float, float]] = []
    for lr, group in group_by(lanes, lambda lane: lane.lr).items():
        values = [value for lane in group if (value := lane.value("valid", metric)) is not None]
        if not values:
            continue
        if metric in LOWER_IS_BETTER:
            candidates.append((1 - len(values) / len(group), math.fsum(values) / len(values), lr))
        else:
            candidates.append((0.0, -math.fsum(values) / len(group), lr))
    return candidates


def best_rate(lanes: Sequence[LaneResult], metric: str) -> float | None:
    """The rate of one cell whose mean over seeds on `valid` is best; of equal ones the smaller. None: no finite value.

    Rates are compared by their `compared_lanes`, by all lanes only where none of those has a value.
    """
    candidates = _candidates(compared_lanes(lanes), metric) or _candidates(lanes, metric)
    return min(candidates)[2] if candidates else None


def best_lanes(lanes: Sequence[LaneResult], metric: str) -> list[LaneResult]:
    """The lanes of each cell at that cell's best rate. A cell without one gives all its lanes: none has a value."""
    chosen: list[LaneResult] = []
    for group in group_by(lanes, lambda lane: lane.cell).values():
        rate = best_rate(group, metric)
        chosen += [lane for lane in group if rate is None or lane.lr == rate]
    return chosen


def smallest_count(lanes: Sequence[LaneResult], split: str, metric: str) -> float | None:
    """Of how many tokens or sentences an accuracy is a share; None where a lane that has a value does not say."""
    counts = [lane.count(split, metric) for lane in lanes if lane.value(split, metric) is not None]
    known = [count for count in counts if count]
    return min(known) if known and len(known) == len(counts) else None


def lanes_spread(lanes: Sequence[LaneResult], split: str, metric: str) -> Spread:
    """The spread of a metric over lanes. Where there is no value and lanes wait for their row, the reason says so."""
    diverged_lanes = sum(lane.diverged_at is not None for lane in lanes)
    values = [lane.value(split, metric) for lane in lanes]
    result = spread(values, diverged_lanes, metric=metric, count=smallest_count(lanes, split, metric))
    waiting = sum(split not in lane.counting and lane.diverged_at is None for lane in lanes)
    if result.finite or not waiting:
        return result
    diverged = f", {result.diverged} diverged" if result.diverged else ""
    return replace(result, reason=f"no {split} row yet in {waiting} of {counted(len(lanes), 'lane')}{diverged}")


def varying(lanes: Sequence[LaneResult]) -> tuple[str, ...]:
    """Axes in which the cells of the study differ."""
    names = dict.fromkeys(axis for lane in lanes for axis in lane.axes)
    return tuple(axis for axis in names if len({lane.axes.get(axis) for lane in lanes}) > 1)


def ordered(values: Iterable[Any]) -> list[Any]:
    """Each value once: numbers by size, anything else in the order of appearance."""
    distinct = list(dict.fromkeys(values))
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in distinct)
    return sorted(distinct) if numbers else distinct


@dataclass(frozen=True)
class Progress:
    """How far a cell came. ``lanes`` are those of the study: a launch for some cells only leaves the others short."""

    cell: str
    lanes: int
    finished: int
    diverged: int
    last_step: int


def progress(record: Mapping[str, Any], lanes: Sequence[LaneResult]) -> list[Progress]:
    """Every cell that config.json or the log names: lanes of the study, ended, diverged, and the last step logged."""
    found = group_by(lanes, lambda lane: lane.cell)
    names = dict.fromkeys(str(entry["cell"]) for entry in record.get("cells") or [] if "cell" in entry)
    recorded = len(record.get("lanes") or [])
    return [
        Progress(
            cell=name,
            lanes=max(recorded, len(found.get(name, []))),
            finished=sum(lane.finished for lane in found.get(name, [])),
            diverged=sum(lane.diverged_at is not None for lane in found.get(name, [])),
            last_step=max((lane.last_step for lane in found.get(name, [])), default=0),
        )
        for name in dict.fromkeys([*names, *found])
    ]
