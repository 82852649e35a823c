"""Which cells of a study are compared, and what is shown of each two.

The rule: where the score varies, every score is compared with `scaled_dot` (with the first score, where there is none)
and `additive` with `dot` besides, at each value of the other axes. Where it does not vary, the first other axis that
does, leaving out d_k and the task, is compared with its first value. All comparisons of a call are one family.

Values are those of a cell's best rate, chosen on `valid`; with the lanes of one rate alone, those of that rate. A seed
is a pair where both cells have it. A lane that diverged before any evaluation counts as 0 where more is better, as it
does where rates are compared; of a loss, which has no worst value, its pair is left out, and the remark says so. So is
a pair of which both diverged: nothing was measured of either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.report.comparisons import (
    BETTER,
    FEWEST_SEEDS,
    LEVEL,
    TOO_FEW,
    WORSE,
    Difference,
    Verdict,
    difference,
    shown_effect,
    smallest_flip,
    verdicts,
)
from train.report.statistics import (
    LOWER_IS_BETTER,
    LaneResult,
    best_lanes,
    choosing_metric,
    group_by,
    ordered,
    smallest_count,
    varying,
)
from train.report.words import PERCENT_POINTS, SHARE, bounds, named, printable
from train.words import counted

REFERENCE = "scaled_dot"
ALSO = ("additive", "dot")
# Differences that do not matter, in the unit of the metric: a stated choice, not a finding.
MARGIN_SHARE = 0.01
MARGIN_POINTS = 0.5
MARGIN_LOSS = 0.02


@dataclass(frozen=True)
class Comparison:
    """Two cells that differ in one axis. ``place``: the values of the other axes that vary."""

    axis: str
    first: Any
    second: Any
    place: Mapping[str, Any]
    difference: Difference
    verdict: Verdict
    improvement: float | None  # the probability that a run of the first is better than one of the second
    remark: str

    @property
    def pair(self) -> str:
        """Both names, the one that the verdict is on before the other."""
        return f"{named(self.axis, self.first)} against {printable(self.second)}"


def margin_of(metric: str) -> float | None:
    """The difference within which two values of a metric are called equivalent; None where none is stated."""
    if metric == "loss":
        return MARGIN_LOSS
    return {SHARE: MARGIN_SHARE, PERCENT_POINTS: MARGIN_POINTS}.get(bounds(metric))


def compared_axis(lanes: Sequence[LaneResult]) -> str:
    """The axis whose values are compared; "" where no axis but d_k and the task varies."""
    changing = varying(lanes)
    others = [axis for axis in changing if axis not in ("d_k", "task")]
    return "score" if "score" in changing else others[0] if others else ""


def pairs_of(axis: str, values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Which values of an axis are compared, as the top of this file says."""
    reference = REFERENCE if axis == "score" and REFERENCE in values else values[0]
    pairs = [(value, reference) for value in values if value != reference]
    if axis == "score" and set(ALSO) <= set(values) and not {ALSO, ALSO[::-1]} & set(pairs):
        pairs.append(ALSO)
    return pairs


def _lost(lane: LaneResult, split: str, metric: str) -> bool:
    """Whether the lane diverged before any evaluation: it has no value, and none is to be waited for."""
    ended = split in lane.counting or not lane.best_step
    return lane.value(split, metric) is None and lane.diverged_at is not None and ended


def _pair(two: Sequence[LaneResult], split: str, metric: str) -> list[float | None]:
    """The values of a seed: a lost lane counts as 0 beside one that is not, where more is better."""
    lost = [_lost(lane, split, metric) for lane in two]
    if metric in LOWER_IS_BETTER or all(lost):
        return [lane.value(split, metric) for lane in two]
    return [0.0 if gone else lane.value(split, metric) for lane, gone in zip(two, lost, strict=True)]


def _remarks(
    cells: Mapping[Any, Mapping[int, LaneResult]], found: Difference, split: str, metric: str, margin: float | None
) -> list[str]:
    remarks = []
    for name, lanes in cells.items():
        lost = sum(_lost(lane, split, metric) for lane in lanes.values())
        if lost:
            counts = "left out" if metric in LOWER_IS_BETTER else "counted as 0 beside one that did not"
            remarks.append(f"{lost} of {counted(len(lanes), 'lane')} of {printable(name)} diverged: {counts}")
        waiting = sum(split not in lane.counting and not _lost(lane, split, metric) for lane in lanes.values())
        if waiting:
            remarks.append(f"no {split} row yet in {waiting} of {counted(len(lanes), 'lane')} of {printable(name)}")
    first, second = (set(lanes) for lanes in cells.values())
    if first != second:
        remarks.append(f"{counted(len(first & second), 'seed')} in common of {len(first)} and {len(second)}")
    if found.seeds < FEWEST_SEEDS:
        few = f"{counted(found.seeds, 'seed')}: a verdict takes {FEWEST_SEEDS}"
        remarks.append(few if found.seeds else "no pair of seeds has values")
    if margin is not None and found.low is not None and found.high is not None:
        within = max(abs(found.low), abs(found.high)) < margin
        zero = found.low <= 0 <= found.high
        if within and not zero:
            remarks.append(f"a difference below {margin:g}")
    return remarks


def compare(lanes: Sequence[LaneResult], metric: str, split: str) -> list[Comparison]:
    """All comparisons of a study, or of the lanes of one of its rates, in the order of their pairs and places."""
    axis = compared_axis(lanes)
    if not axis:
        return []
    chosen = best_lanes(lanes, choosing_metric(lanes, metric))
    rest = [name for name in varying(lanes) if name != axis]
    margin = margin_of(metric)
    cells = {
        key: {lane.seed: lane for lane in group}
        for key, group in group_by(
            chosen, lambda lane: (lane.axes.get(axis), tuple(lane.axes.get(name) for name in rest))
        ).items()
    }
    places = list(dict.fromkeys(place for _, place in cells))
    for position in reversed(range(len(rest))):
        order = ordered(place[position] for place in places)
        places.sort(key=lambda place: order.index(place[position]))
    made: list[tuple[Any, Any, tuple[Any, ...], Difference, str]] = []
    for first, second in pairs_of(axis, ordered(lane.axes.get(axis) for lane in lanes)):
        for place in places:
            two = {name: cells[name, place] for name in (first, second) if (name, place) in cells}
            if len(two) < 2:
                continue
            seeds = sorted(two[first].keys() & two[second].keys())
            pairs = [_pair([two[name][seed] for name in (first, second)], split, metric) for seed in seeds]
            values = [[pair[side] for pair in pairs] for side in (0, 1)]
            count = smallest_count([lane for each in two.values() for lane in each.values()], split, metric)
            found = difference(values[0], values[1], margin=margin, step=1 / count if count else 0.0)
            made.append((first, second, place, found, "; ".join(_remarks(two, found, split, metric, margin))))
    lower = metric in LOWER_IS_BETTER
    decided = verdicts([found for *_, found, _ in made], lower_is_better=lower)
    return [
        Comparison(
            axis=axis,
            first=first,
            second=second,
            place=dict(zip(rest, place, strict=True)),
            difference=found,
            verdict=verdict,
            improvement=1 - found.larger if lower and found.larger is not None else found.larger,
            remark=remark,
        )
        for (first, second, place, found, remark), verdict in zip(made, decided, strict=True)
    ]


def rules(comparisons: Sequence[Comparison], metric: str) -> list[str]:
    """What a reader has to know of the verdicts that are shown together, a sentence each."""
    tested = [each for each in comparisons if each.verdict.p is not None]
    margin = margin_of(metric)
    percent = f"{100 * LEVEL:g} %"
    lines = [
        f"{BETTER}, {WORSE}: the paired t test over seeds rejects at {percent} after Holm's correction for "
        f"{counted(len(tested), 'comparison')}; no difference shown: it does not, which is no proof that there is none",
        "95 % intervals are each of one comparison alone: one may leave out 0 where the verdict shows no difference",
    ]
    if margin is not None:
        lines.append(f"equivalent: within ±{margin:g}, by two one-sided t tests, corrected alike")
    if tested:
        fewest = min(each.difference.seeds for each in tested)
        least, needed = smallest_flip(fewest), LEVEL / len(tested)
        seeds = counted(fewest, "seed")
        lines.append(
            f"{seeds} and {counted(len(tested), 'comparison')}: the largest difference is shown from an effect of "
            f"{shown_effect(fewest, len(tested)):.1f} on; effect: mean over standard deviation of the differences"
        )
        cannot = f", above the {needed:.2g} that the first of {len(tested)} needs: here it decides nothing"
        lines.append(
            f"flip: exact sign-flip test, uncorrected, shown beside (* as small as it can be); with {seeds} its "
            f"smallest p is {least:.3g}{cannot if least > needed else ''}"
        )
    return lines


def sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """`dot against scaled_dot: worse at d_k 64, 256; no difference shown at 4, 16`, a line a pair and panel.

    Nothing where no comparison has a verdict.
    """
    if all(each.verdict.word == TOO_FEW for each in comparisons):
        return []
    lines = []
    groups = group_by(comparisons, lambda each: (each.pair, tuple(v for k, v in each.place.items() if k != "d_k")))
    for (pair, _), group in groups.items():
        panel = ", ".join(f"{axis}={printable(value)}" for axis, value in group[0].place.items() if axis != "d_k")
        words = []
        name = "d_k "
        for word, alike in group_by(group, lambda each: each.verdict.word).items():
            if "d_k" not in group[0].place:
                words.append(word)
                continue
            words.append(f"{word} at {name}{', '.join(printable(each.place['d_k']) for each in alike)}")
            name = ""
        lines.append(f"{panel + ': ' if panel else ''}{pair}: {'; '.join(words)}")
    return lines
