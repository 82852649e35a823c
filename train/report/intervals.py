"""The seeds of one cell as one number and an interval: means, and the scale on which Student's t is right.

An interval of Student's t is right where the seeds' values lie around their centre alike on both sides. Accuracies near
1 and losses near 0 do not: most seeds crowd at the bound and some lag, and at five seeds the interval of the plain mean
then covers it in 82 of 100 studies. So the interval is computed on a scale that has no bound, and its ends are brought
back:

- an accuracy whose log says of how many it is a share: the log odds, with half a count on both sides (the empirical
  logit: Cox 1970, *The Analysis of Binary Data*, 3.2), so that exactly 1 is finite;
- a loss: its logarithm;
- anything else (BLEU, chrF): itself.

What such an interval covers is the **typical** seed: the centre of the seeds on that scale, brought back; their median
where they lie alike around it. It is not their mean, which one seed that lags moves by far more, and which may lie
outside. In the middle of the range both are the same to a digit. The coverage, and where it fails, is measured by
tests/test_coverage.py.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, stdtrit

from train.words import counted

CONFIDENCE = 0.95
SMALLEST_LOSS = 1e-7  # nats: what float32 can tell from 0 beside 1

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """Where seeds lie alike around their centre.

    forward: values -> scale; backward: the reverse. rounding: at a place of the scale, the standard deviation that
    comes from counting in whole numbers alone; it keeps seeds that all count the same from being called certain.
    """

    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    rounding: Callable[[Array], Array]


def _none(place: Array) -> Array:
    return np.zeros_like(place)


def log_odds(count: float) -> Scale:
    """Shares of ``count``: log((k + 1/2) / (count - k + 1/2)) of k right ones. A count is uniform within ± 1/2."""

    def forward(shares: Array) -> Array:
        right = np.clip(shares, 0, 1) * count
        return np.log((right + 0.5) / (count - right + 0.5))

    def backward(place: Array) -> Array:
        shares: Array = (expit(place) * (count + 1) - 0.5) / count
        return np.clip(shares, 0, 1)

    def rounding(place: Array) -> Array:
        per_count: Array = (1 / expit(place) + 1 / expit(-place)) / (count + 1)
        return per_count / math.sqrt(12)

    return Scale(forward, backward, rounding)


PLAIN = Scale(lambda values: values, lambda place: place, _none)
LOG = Scale(lambda values: np.log(np.maximum(values, SMALLEST_LOSS)), np.exp, _none)


def scale_of(metric: str, count: float | None) -> Scale:
    """The scale that suits a metric; ``count``: of how many it is a share, None where the log does not say."""
    if metric.endswith("accuracy") and count:
        return log_odds(count)
    return LOG if metric == "loss" else PLAIN


def finite(value: Any) -> float | None:
    """The value as a finite float, or None where it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half, by weight: a quarter of the seeds is cut on each side, of one seed a part if need be.

    Agarwal et al. 2021, section 4.3, without rounding the quarter to whole seeds, which at three would cut nothing.
    """
    edges = np.arange(len(values) + 1) / len(values)
    weights = np.diff(np.clip(edges, 0.25, 0.75)) * 2
    return float(weights @ np.sort(np.asarray(values, np.float64)))


def t_interval(values: Array, scale: Scale) -> tuple[Array, Array, Array]:
    """Low end, centre and high end of the typical seed, over the last axis, which must have two values at least.

    The variance of rounding is added to that of the seeds: where few seeds have an error to count, the interval is
    wider than it need be, never narrower.
    """
    place = scale.forward(values)
    seeds = values.shape[-1]
    centre = place.mean(-1)
    variance = (place.var(-1, ddof=1) + scale.rounding(centre) ** 2) / seeds
    half = float(stdtrit(seeds - 1, (1 + CONFIDENCE) / 2)) * np.sqrt(variance)
    return scale.backward(centre - half), scale.backward(centre), scale.backward(centre + half)


@dataclass(frozen=True)
class Spread:
    """Statistics over the lanes of one cell at one rate, which differ in their seed only."""

    lanes: int
    finite: int
    diverged: int
    mean: float | None = None
    iqm: float | None = None  # interquartile mean
    sd: float | None = None  # of a sample: divides by n - 1
    low: float | None = None  # 95 % interval of the typical seed
    typical: float | None = None
    high: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    reason: str = ""  # why a number above is None; empty where none is

    @property
    def half_spread(self) -> float | None:
        """Half the distance from the smallest to the largest seed; None for fewer than two finite lanes."""
        if self.finite < 2 or self.minimum is None or self.maximum is None:
            return None
        return (self.maximum - self.minimum) / 2

    @property
    def lost(self) -> bool:
        """Whether there is no value and every lane diverged, so that none is to be waited for."""
        return not self.finite and 0 < self.lanes == self.diverged


def _within(number: float | None, smallest: float, largest: float) -> float | None:
    """The rounding of a sum may step over the largest value by its last bit."""
    return None if number is None else min(max(number, smallest), largest)


def spread(
    values: Sequence[float | None], diverged: int = 0, *, metric: str = "", count: float | None = None
) -> Spread:
    """Means, sample sd, 95 % interval and extremes of the finite values, and the reason for what is missing.

    ``metric`` and ``count`` choose the scale of the interval, see `scale_of`.
    """
    known = [value for value in map(finite, values) if value is not None]
    lanes = len(values)
    if not known:
        reason = "no lane yet" if not lanes else f"no finite value in {counted(lanes, 'lane')}"
        reason += f", {diverged} diverged" if diverged else ""
        return Spread(lanes, 0, diverged, reason=reason)
    array = np.asarray(known, dtype=np.float64)
    smallest, largest = min(known), max(known)
    low = typical = high = sd = None
    reason = ""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = _within(finite(float(array.mean())), smallest, largest)
        iqm = _within(finite(interquartile_mean(known)), smallest, largest)
        if len(known) == 1:
            reason = "one finite lane: no interval"
        else:
            sd = finite(float(array.std(ddof=1)))
            scale = scale_of(metric, count)
            low, typical, high = (finite(float(end)) for end in t_interval(array, scale))
            if mean is None or sd is None:
                low = typical = high = None
                reason = "too large to average"
            elif low == high:
                low = high = None
                reason = "every lane has the same value: no interval"
    return Spread(lanes, len(known), diverged, mean, iqm, sd, low, typical, high, smallest, largest, reason)
