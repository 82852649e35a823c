"""Whether 95 % are 95 %: intervals and verdicts on studies simulated by the thousand, with the figures of the README.

`python -m pytest tests/test_coverage.py -s` prints what it measures.
"""

from collections.abc import Callable

import numpy as np
import pytest

from train.report.comparisons import BETTER, LEVEL, WORSE, Difference, difference, verdicts
from train.report.intervals import PLAIN, Array, Scale, log_odds, t_interval

STUDIES = 20_000
ERROR = 0.005  # three standard errors of a share of 0.95 in as many
COUNT = 10_752  # tokens of the test set of configs/dk_quick.py
ODDS = log_odds(COUNT)

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 27 + 0.4 * random.standard_normal(shape)


def counted_right(wrong: Array, random: np.random.Generator) -> Array:
    """Accuracies as an evaluation counts them, from the probability of a wrong token."""
    return 1 - random.binomial(COUNT, np.minimum(wrong, 1)) / COUNT


def near_one(typical_wrong: float, width: float = 1.0) -> Draw:
    """Log-normal error rates: at width 1 one seed in six has 2.7 times as many errors as the typical one."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return counted_right(typical_wrong * np.exp(width * random.standard_normal(shape)), random)

    return draw


def exponential(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return counted_right(random.exponential(0.005, shape), random)


def some_fail(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """One seed in ten does not learn at all."""
    return counted_right(np.where(random.random(shape) < 0.1, 0.9, 0.003), random)


def coverage(draw: Draw, scale: Scale, seeds: int) -> float:
    """The share of studies whose interval holds the centre, on its scale, of very many seeds."""
    random = np.random.default_rng(seeds)
    centre = scale.backward(scale.forward(draw(random, (1, 2_000_000))).mean(-1))
    low, _, high = t_interval(draw(random, (STUDIES, seeds)), scale)
    return float(np.mean((low <= centre) & (centre <= high)))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10, 20])
@pytest.mark.parametrize(
    ("name", "draw", "scale", "lowest", "highest"),
    [
        ("normal", normal, PLAIN, 0.945, 0.955),
        ("0.5 % wrong, width 0.5", near_one(0.005, 0.5), ODDS, 0.945, 0.955),
        ("0.2 % wrong, width 1", near_one(0.002), ODDS, 0.945, 0.955),
        ("1 token wrong, width 1", near_one(1 / COUNT), ODDS, 0.945, 0.97),
        # Where most seeds have nothing wrong, rounding is all there is to see: too wide, never too narrow.
        ("1 token in 10 seeds wrong", near_one(0.1 / COUNT), ODDS, 0.97, 1.0),
        # Errors that are not alike on both sides on the log scale either: a little too narrow.
        ("exponential, 0.5 % wrong", exponential, ODDS, 0.925, 0.955),
        # What five seeds do not show, no interval of five seeds holds.
        ("1 seed in 10 fails", some_fail, ODDS, 0.35, 0.9),
        # What the scale is for.
        ("0.2 % wrong, width 1, plain mean", near_one(0.002), PLAIN, 0.8, 0.9),
    ],
)
def test_coverage_of_the_interval(
    name: str, draw: Draw, scale: Scale, lowest: float, highest: float, seeds: int
) -> None:
    share = coverage(draw, scale, seeds)
    print(f"{name}, {seeds} seeds: {100 * share:.1f} %")
    assert lowest - ERROR <= share <= highest + ERROR


def exchangeable(draw: Draw, random: np.random.Generator, rates: int, seeds: int) -> list[Difference]:
    """A study in which the score makes no difference: three scores, four d_k, each at the best of its rates."""
    every = draw(random, (4, 3, rates, seeds))
    best = every.mean(-1).argmax(-1)  # chosen on the values that are reported: with all the luck there can be
    values = np.take_along_axis(every, best[..., None, None], axis=2)[:, :, 0]
    pairs = [(at[one], at[other]) for at in values for one, other in ((0, 2), (1, 2), (1, 0))]
    return [difference(a.tolist(), b.tolist(), margin=0.01, step=1 / COUNT) for a, b in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("rates", [1, 3])
@pytest.mark.parametrize("seeds", [3, 5, 10, 20])
@pytest.mark.parametrize(
    ("name", "draw"),
    [("normal", normal), ("0.2 % wrong, width 1", near_one(0.002)), ("1 seed in 10 fails", some_fail)],
)
def test_a_study_without_a_difference_has_none_in_95_of_100(name: str, draw: Draw, seeds: int, rates: int) -> None:
    random = np.random.default_rng(seeds)
    studies = 1000
    false = 0
    for _ in range(studies):
        found = verdicts(exchangeable(draw, random, rates, seeds), lower_is_better=False)
        false += any(verdict.word in (BETTER, WORSE) for verdict in found)
    print(
        f"{name}, {seeds} seeds, best rate of {rates}: better or worse in {100 * false / studies:.1f} % of the studies"
    )
    assert false / studies <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / studies)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10, 20])
def test_a_difference_of_the_margin_is_no_equivalence(seeds: int) -> None:
    random = np.random.default_rng(seeds)
    studies = 1000
    false = 0
    for _ in range(studies):
        values = random.normal(0.5, 0.003, (12, 2, seeds))
        pairs = [difference((one + 0.01).tolist(), other.tolist(), margin=0.01) for one, other in values]
        found = [verdict.equivalent for verdict in verdicts(pairs, lower_is_better=False)]
        false += any(p is not None and p <= LEVEL for p in found)
    print(f"{seeds} seeds: equivalence at the level in {100 * false / studies:.1f} % of the studies")
    assert false / studies <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / studies)


def steady(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 0.95 + 0.0005 * random.standard_normal(shape)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [5, 10, 20])
@pytest.mark.parametrize(
    ("name", "first", "second", "lowest", "highest"),
    [
        ("both normal", normal, normal, 0.945, 0.955),
        ("both 0.5 % wrong, width 0.5", near_one(0.005, 0.5), near_one(0.005, 0.5), 0.945, 0.965),
        # Differences of the same skewed values lie alike around 0 with long tails: never too narrow.
        ("both 0.2 % wrong, width 1", near_one(0.002), near_one(0.002), 0.95, 0.98),
        # The mean of skewed values beside a score whose seeds agree: too narrow, as for the mean alone.
        ("0.2 % wrong, width 1, and a steady score", near_one(0.002), steady, 0.8, 0.9),
    ],
)
def test_coverage_of_the_interval_of_a_difference(
    name: str, first: Draw, second: Draw, lowest: float, highest: float, seeds: int
) -> None:
    random = np.random.default_rng(seeds)
    centre = first(random, (2_000_000,)).mean() - second(random, (2_000_000,)).mean()
    low, _, high = t_interval(first(random, (STUDIES, seeds)) - second(random, (STUDIES, seeds)), PLAIN)
    share = np.mean((low <= centre) & (centre <= high))
    print(f"difference, {name}, {seeds} seeds: {100 * share:.1f} %")
    assert lowest - ERROR <= share <= highest + ERROR
