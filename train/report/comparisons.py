"""Two scores on the same seeds: the difference with its interval, two tests, and a verdict. Pure functions of numbers.

A seed gives both scores the same data and, where shapes agree, the same initial values; what is tested is the mean of
the differences within a seed. Where both scores are alike, exchanging them changes nothing, so the differences lie
alike around 0 however skewed the values are: there Student's t test rejects no more often than it says, and the
sign-flip test beside it is exact. The t test decides, since with n seeds no p of the sign-flip test is below 2 / 2^n:
at five it never reaches 5 %. All tests are corrected after Holm (1979) for the number of comparisons made together.

Equivalence is shown by two one-sided t tests (Schuirmann 1987): that the difference is above minus a margin and below
the margin. They are a family of their own, corrected alike.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

LEVEL = 0.05
FEWEST_SEEDS = 3  # of two, the t test is that of a Cauchy variable: its interval is 9 standard deviations wide
MOST_FLIPPED = 16  # seeds up to which all 2^n signs are tried; above, DRAWN of them
DRAWN = 2**14

BETTER, WORSE = "better", "worse"
EQUIVALENT = "equivalent"
NO_DIFFERENCE = "no difference shown"
TOO_FEW = "not enough seeds"


@dataclass(frozen=True)
class Difference:
    """The differences of the first score's values and the second's, one a seed. None where there is no such number.

    Attributes:
      seeds: pairs in which both have a value.
      first, second: means of the values of these pairs.
      mean: of the differences, with its 95 % t interval from low to high.
      effect: mean over standard deviation of the differences (d_z).
      larger: the probability that a run of the first gives the larger value than one of the second, ties as half, over
        all pairs of runs (Agarwal et al. 2021, appendix A.5).
      t, flip: two-sided p of the two tests.
      equivalent: p of equivalence, None where no margin is known.
    """

    seeds: int
    first: float | None = None
    second: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    larger: float | None = None
    t: float | None = None
    flip: float | None = None
    equivalent: float | None = None


def smallest_flip(seeds: int) -> float:
    """The smallest p that the sign-flip test of this many seeds can give."""
    return 2.0 ** (1 - seeds) if seeds <= MOST_FLIPPED else 1 / (1 + DRAWN)


@functools.lru_cache(maxsize=4)
def _signs(seeds: int) -> NDArray[np.float64]:
    """All signs of which the first is +, for the others mirror these; of many seeds, DRAWN from a fixed key."""
    if seeds <= MOST_FLIPPED:
        return np.asarray(list(itertools.product((1.0, -1.0), repeat=seeds))[: 2 ** (seeds - 1)])
    return np.random.default_rng(0).choice((1.0, -1.0), size=(DRAWN, seeds))


def shown_effect(seeds: int, comparisons: int) -> float:
    """The effect from which on the t test rejects the first of so many comparisons at LEVEL, after Holm."""
    return float(stdtrit(seeds - 1, 1 - LEVEL / comparisons / 2)) / math.sqrt(seeds)


def sign_flip(differences: Sequence[float]) -> float:
    """Two-sided p of a mean of differences that lie alike around 0: the share of signs that take it as far from 0.

    Up to MOST_FLIPPED seeds all signs are tried. Of more, DRAWN are, and the signs that were seen count as one draw
    too, so that p is never 0 (Phipson and Smyth 2010).
    """
    values = np.asarray(differences, np.float64)
    reach = abs(values.sum()) - 1e-12 * np.abs(values).sum()  # sums that differ by their rounding only are equal
    as_far = np.abs(_signs(len(values)) @ values) >= reach
    return float(np.mean(as_far)) if len(values) <= MOST_FLIPPED else float((1 + np.sum(as_far)) / (1 + DRAWN))


def probability_larger(first: Sequence[float], second: Sequence[float]) -> float:
    """The share of all pairs, one of each, in which the first is larger; ties count half."""
    apart = np.sign(np.asarray(first, np.float64)[:, None] - np.asarray(second, np.float64)[None, :])
    return float(np.mean(apart + 1) / 2)


def difference(
    first: Sequence[float | None], second: Sequence[float | None], *, margin: float | None = None, step: float = 0.0
) -> Difference:
    """Compare values in the order of their seeds. A pair that lacks a value is left out.

    Args:
      first, second: one value a seed, None where there is none.
      margin: the difference that does not matter, in the unit of the values.
      step: what two values differ by at least, if at all (a share of 512 sentences: 1 / 512). Each is known to half a
        step, and the variance of that is added to that of the seeds: seeds that happen to differ by the same number
        of counts prove nothing.
    """
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not pairs:
        return Difference(0)
    n = len(pairs)
    values = np.asarray(pairs, np.float64)
    each = values[:, 0] - values[:, 1]
    ones, twos = values[:, 0].tolist(), values[:, 1].tolist()
    mean = float(each.mean())
    means = {"first": math.fsum(ones) / n, "second": math.fsum(twos) / n, "mean": mean}
    if n < 2:
        return Difference(n, **means)
    step = max(step, float(np.finfo(np.float32).eps * np.abs(values).max()))  # measured in float32
    sd = math.sqrt(float(each.var(ddof=1)) + 2 * step**2 / 12)
    if sd == 0:  # every value is 0
        return Difference(n, **means, larger=0.5, t=1.0, flip=1.0, equivalent=None if margin is None else 0.0)
    error = sd / math.sqrt(n)
    half = float(stdtrit(n - 1, 1 - LEVEL / 2)) * error
    equivalent = None
    if margin is not None:
        equivalent = float(stdtr(n - 1, (abs(mean) - margin) / error))
    return Difference(
        n,
        **means,
        low=mean - half,
        high=mean + half,
        effect=mean / sd,
        larger=probability_larger(ones, twos),
        t=2 * float(stdtr(n - 1, -abs(mean) / error)),
        flip=sign_flip(each.tolist()),
        equivalent=equivalent,
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p values that hold for all tests together: the smallest times their number, the next times one less, and so on.

    Never falling, never above 1 (Holm 1979). None, a test that was not made, stays None and is not counted.
    """
    known = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, i) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[i] = largest
    return corrected


@dataclass(frozen=True)
class Verdict:
    """What a comparison shows: one of BETTER, WORSE, EQUIVALENT, NO_DIFFERENCE, TOO_FEW, and the p it rests on.

    p: of the t test, equivalent: of the two one-sided tests, both corrected for all comparisons made together; None
    where the test was not made.
    """

    word: str
    p: float | None
    equivalent: float | None


def verdicts(differences: Sequence[Difference], *, lower_is_better: bool) -> list[Verdict]:
    """A verdict on the first score of each comparison; ``differences`` are all that are made together.

    Fewer than FEWEST_SEEDS pairs give none. A difference at the corrected LEVEL is BETTER or WORSE, however small;
    otherwise equivalence at the corrected LEVEL is EQUIVALENT; otherwise the study shows neither.
    """
    enough = [each.seeds >= FEWEST_SEEDS for each in differences]
    p_values = holm([each.t if some else None for each, some in zip(differences, enough, strict=True)])
    equivalents = holm([each.equivalent if some else None for each, some in zip(differences, enough, strict=True)])
    found = []
    for each, p, equivalent in zip(differences, p_values, equivalents, strict=True):
        if p is None or each.mean is None:
            word = TOO_FEW
        elif p <= LEVEL:
            word = WORSE if (each.mean > 0) == lower_is_better else BETTER
        elif equivalent is not None and equivalent <= LEVEL:
            word = EQUIVALENT
        else:
            word = NO_DIFFERENCE
        found.append(Verdict(word, p, equivalent))
    return found
