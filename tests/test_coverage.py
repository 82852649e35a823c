"""Whether 95 % are 95 %: intervals and verdicts on studies simulated by the thousand, with the figures of the README.

`python -m pytest tests/test_coverage.py -s` prints what it measures.
"""

from collections.abc import Callable

import numpy as np
import pytest

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
