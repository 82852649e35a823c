"""What a cell tells beside its best value: how soon it learns, how much its rate matters, how many lanes are lost.

The log has no loss at initialisation. The **initial loss** of a task is read from its first `train` rows, each the mean
over the updates up to the first evaluation: of each cell the median over seeds at its smallest rate, where least is
learnt by then, and of the cells the largest. It is close to the logarithm of the target vocabulary where evaluations
begin early, and below it where they do not.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.log import Row
from train.report.intervals import Spread, finite, spread
from train.report.statistics import (
    LOWER_IS_BETTER,
    LaneResult,
    best_lanes,
    choosing_metric,
    group_by,
    lanes_spread,
)

REACHED_ACCURACY = 0.9
REACHED_LOSS = 0.5  # of the initial loss
# Knowing how often each symbol and each length comes, and nothing of the source, gives 10 % on the synthetic tasks.
DEAD_LOSS = 0.85  # of the initial loss

Curves = Mapping[tuple[str, int], Sequence[Row]]  # (cell, lane) -> its rows of one split, by step


@dataclass(frozen=True)
class Reached:
    """When the lanes of a cell first reached a threshold on `valid`.

    median: over all lanes, in updates, a lane that did not reach it counting as later than any; None where the median
    lane did not. waiting: lanes that did not and are not at their end.
    """

    lanes: int
    reached: int
    waiting: int
    median: float | None


@dataclass(frozen=True)
class CellFacts:
    """One cell. Values and steps are of its best rate; sensitivity, diverged and dead lanes are over all its rates.

    sensitivity: metric -> learning rate sensitivity over seeds.
    """

    cell: str
    lr: float | None
    value: Spread
    steps: Reached | None
    sensitivity: Mapping[str, Spread]
    lanes: int
    finished: int
    diverged: int
    dead: int


def curves_of(rows: Sequence[Row], split: str) -> Curves:
    """The rows of one split of each lane, by step."""
    of_split = [row for row in rows if row.get("split") == split and finite(row.get("step")) is not None]
    lanes = group_by(of_split, lambda row: (str(row.get("cell")), int(finite(row.get("lane")) or 0)))
    return {lane: sorted(group, key=lambda row: row["step"]) for lane, group in lanes.items()}


def _task(lane: LaneResult) -> str:
    return str(lane.axes.get("task"))


def initial_losses(rows: Sequence[Row], lanes: Sequence[LaneResult]) -> dict[str, float]:
    """Task -> its initial loss in nats, see the top of this file. A task whose log has no `train` loss is left out."""
    curves = curves_of(rows, "train")
    found: dict[str, float] = {}
    for cell, group in group_by(lanes, lambda lane: lane.cell).items():
        slowest = min(lane.lr for lane in group)
        first = [
            curves[cell, lane.lane][0].get("loss")
            for lane in group
            if lane.lr == slowest and (cell, lane.lane) in curves
        ]
        losses = [loss for loss in map(finite, first) if loss is not None]
        if losses:
            found[_task(group[0])] = max(found.get(_task(group[0]), 0.0), statistics.median(losses))
    return found


def threshold_of(metric: str, initial: float | None) -> float | None:
    """What counts as learnt: REACHED_ACCURACY, or REACHED_LOSS of the initial loss; None for any other metric."""
    if metric.endswith("accuracy"):
        return REACHED_ACCURACY
    return REACHED_LOSS * initial if metric == "loss" and initial is not None else None


def first_step(curve: Sequence[Row], metric: str, threshold: float) -> int | None:
    """The first evaluated step at which a metric is as good as the threshold."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    steps = (
        int(row["step"])
        for row in curve
        if (value := finite(row.get(metric))) is not None and sign * (value - threshold) >= 0
    )
    return next(steps, None)


def reached(lanes: Sequence[LaneResult], valid: Curves, metric: str, threshold: float) -> Reached:
    """Steps to the threshold over lanes, those that never reached it kept as censored."""
    steps = [first_step(valid.get((lane.cell, lane.lane), ()), metric, threshold) for lane in lanes]
    waiting = sum(
        step is None and not lane.finished and lane.diverged_at is None for step, lane in zip(steps, lanes, strict=True)
    )
    median = statistics.median([math.inf if step is None else step for step in steps])
    return Reached(len(lanes), sum(step is not None for step in steps), waiting, finite(median))


def rate_sensitivity(values: Sequence[float | None], worst: float, *, lower_is_better: bool) -> float:
    """How much is lost by a rate of the grid that is not the best: mean over rates of min(loss, worst), less the best.

    Wortsman et al. 2023 (2309.14322), section 2.2, E over the rates of min(loss(rate), loss0) - best loss, of values of
    one seed; for an accuracy, the best less the mean, none below ``worst``. None, a lane without a value, counts as
    ``worst``. It depends on the grid, and means nothing where what is compared rescales what a rate does (a score that
    multiplies its gradient, another optimizer): there the same grid is another range of updates.
    """
    sign = 1 if lower_is_better else -1
    costs = [sign * worst if value is None else min(sign * value, sign * worst) for value in values]
    return math.fsum(costs) / len(costs) - min(costs)


def sensitivity(lanes: Sequence[LaneResult], split: str, metric: str, initial: float | None) -> Spread | None:
    """The rate sensitivity of one cell over its seeds: those that every rate of the cell has on the split.

    None for a single rate, for a metric whose worst value is unknown, and where no seed has ended at every rate.
    """
    worst = initial if metric == "loss" else None if metric in LOWER_IS_BETTER else 0.0
    rates = {lane.lr for lane in lanes}
    if worst is None or len(rates) < 2:
        return None
    ended = [lane for lane in lanes if split in lane.counting or lane.diverged_at is not None]
    seeds = [group for group in group_by(ended, lambda lane: lane.seed).values() if len(group) == len(rates)]
    lower = metric in LOWER_IS_BETTER
    found = [
        rate_sensitivity([lane.value(split, metric) for lane in group], worst, lower_is_better=lower) for group in seeds
    ]
    return spread(found) if found else None


def is_dead(lane: LaneResult, valid: Curves, initial: float) -> bool:
    """Whether a lane ended with finite numbers and never learnt: its lowest `valid` loss is above DEAD_LOSS of initial.

    In text, where words are far from equally frequent, their frequencies alone give more than that, so a dead lane may
    go unseen there.
    """
    losses = [loss for row in valid.get((lane.cell, lane.lane), ()) if (loss := finite(row.get("loss"))) is not None]
    return lane.finished and lane.diverged_at is None and bool(losses) and min(losses) > DEAD_LOSS * initial


def cell_facts(rows: Sequence[Row], lanes: Sequence[LaneResult], metric: str, split: str) -> list[CellFacts]:
    """The facts of every cell, in the order of the log."""
    valid = curves_of(rows, "valid")
    initial = initial_losses(rows, lanes)
    learnt_by = metric if metric.endswith("accuracy") else "loss"
    chosen = group_by(best_lanes(lanes, choosing_metric(lanes, metric)), lambda lane: lane.cell)
    facts = []
    for cell, group in group_by(lanes, lambda lane: lane.cell).items():
        loss = initial.get(_task(group[0]))
        threshold = threshold_of(learnt_by, loss)
        rates = {lane.lr for lane in chosen[cell]}
        sensitivities = {name: sensitivity(group, split, name, loss) for name in dict.fromkeys((metric, "loss"))}
        facts.append(
            CellFacts(
                cell=cell,
                lr=rates.pop() if len(rates) == 1 else None,
                value=lanes_spread(chosen[cell], split, metric),
                steps=None if threshold is None else reached(chosen[cell], valid, learnt_by, threshold),
                sensitivity={name: found for name, found in sensitivities.items() if found is not None},
                lanes=len(group),
                finished=sum(lane.finished for lane in group),
                diverged=sum(lane.diverged_at is not None for lane in group),
                dead=0 if loss is None else sum(is_dead(lane, valid, loss) for lane in group),
            )
        )
    return facts
