"""Means and intervals over seeds: hand-computed numbers, SciPy's, and values at the end of their range."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from train.report.intervals import LOG, interquartile_mean, log_odds, scale_of, spread

COUNT = 1013


def test_spread_of_hand_computed_numbers() -> None:
    result = spread([1.0, 2.0, 6.0])
    assert (result.mean, result.minimum, result.maximum, result.half_spread) == (3.0, 1.0, 6.0, 2.5)
    assert result.sd == pytest.approx(math.sqrt(7), rel=1e-12)
    # t(0.975, 2) = 4.302653
    assert result.low == pytest.approx(3 - 4.302653 * math.sqrt(7 / 3), rel=1e-6)
    assert (result.lanes, result.finite, result.reason) == (3, 3, "")


@pytest.mark.parametrize("values", [[0.1, 0.4], [0.9, 0.91, 0.87, 0.3, 0.5]])
def test_interval_is_scipys(values: list[float]) -> None:
    result = spread(values)
    scale = stats.sem(values)
    expected = stats.t.interval(0.95, len(values) - 1, loc=result.mean, scale=scale)
    assert (result.low, result.high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("values", "diverged", "reason"),
    [
        ([], 0, "no lane yet"),
        ([None, None], 2, "no finite value in 2 lanes, 2 diverged"),
        ([math.nan], 0, "no finite value in 1 lane"),
        ([0.5], 0, "one finite lane: no interval"),
        ([0.5, None, math.inf], 1, "one finite lane: no interval"),
        ([1.7e308, 1.7e308], 0, "too large to average"),
        ([0.5, 0.5, 0.5], 0, "every lane has the same value: no interval"),
    ],
)
def test_what_cannot_be_computed_has_a_reason(values: list[float | None], diverged: int, reason: str) -> None:
    result = spread(values, diverged)
    assert result.reason == reason
    assert (result.low, result.high, result.sd if len(values) < 2 else None) == (None, None, None)


def test_a_mean_never_leaves_its_values() -> None:
    result = spread([0.1, 0.1, 0.1])
    assert result.mean == 0.1


@pytest.mark.parametrize("seeds", [1, 2, 3, 5, 7, 8, 20])
def test_the_interquartile_mean_is_that_of_each_seed_four_times(seeds: int) -> None:
    values = np.random.default_rng(seeds).standard_normal(seeds)
    assert interquartile_mean(list(values)) == pytest.approx(stats.trim_mean(np.repeat(values, 4), 0.25), abs=1e-12)
    if seeds % 4 == 0:
        assert interquartile_mean(list(values)) == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-12)


def test_one_outlier_of_five_does_not_move_the_interquartile_mean() -> None:
    assert spread([0.9, 0.9, 0.9, 0.9, 0.1]).iqm == pytest.approx(0.9)
    assert spread([0.1, 0.4, 0.7]).iqm == pytest.approx((0.1 / 4 + 0.4 + 0.7 / 4) / 1.5)


def test_an_interval_of_accuracies_is_students_on_their_log_odds() -> None:
    right = np.asarray([1000, 1008, 990, 1012, 1013])
    result = spread([float(value) for value in right / COUNT], metric="token_accuracy", count=COUNT)
    odds = np.log((right + 0.5) / (COUNT - right + 0.5))
    share = 1 / (1 + np.exp(-odds.mean()))
    rounding = 1 / (share * (COUNT + 1)) + 1 / ((1 - share) * (COUNT + 1))
    standard_error = math.sqrt((odds.var(ddof=1) + rounding**2 / 12) / 5)
    ends = stats.t.interval(0.95, 4, loc=odds.mean(), scale=standard_error)
    assert result.low is not None
    assert result.high is not None
    for end, place in ((result.low, ends[0]), (result.high, ends[1])):
        assert math.log((end * COUNT + 0.5) / ((1 - end) * COUNT + 0.5)) == pytest.approx(place, rel=1e-9)
    assert result.low < (result.typical or 0) < result.high <= 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_seeds_that_are_all_at_the_end_of_the_range_are_not_certain(share: float) -> None:
    result = spread([share] * 5, metric="token_accuracy", count=COUNT)
    assert (result.mean, result.typical, result.reason) == (share, pytest.approx(share, abs=1e-12), "")
    assert result.low is not None
    assert result.high is not None
    ends = (result.low, result.high) if share == 0 else (1 - result.high, 1 - result.low)
    assert ends[0] == pytest.approx(0, abs=1e-12)
    assert 0.1 / COUNT < ends[1] < 2 / COUNT


def test_in_the_middle_of_the_range_the_scale_makes_no_difference() -> None:
    values = [0.50, 0.51, 0.49, 0.52, 0.48]
    odds, plain = spread(values, metric="token_accuracy", count=10**6), spread(values)
    assert (odds.low, odds.typical, odds.high) == pytest.approx((plain.low, plain.mean, plain.high), abs=1e-4)


def test_an_interval_of_losses_is_students_on_their_logarithms() -> None:
    losses = [0.01, 0.02, 0.08]
    result = spread(losses, metric="loss")
    ends = stats.t.interval(0.95, 2, loc=np.log(losses).mean(), scale=stats.sem(np.log(losses)))
    assert (result.low, result.high) == pytest.approx(tuple(np.exp(ends)))
    assert result.typical == pytest.approx(stats.gmean(losses))
    assert spread([0.0, 0.01], metric="loss").low is not None


@pytest.mark.parametrize("values", [[0.0, 0.25, 0.5, 1.0], [1 / COUNT, 1 - 1 / COUNT]])
def test_a_scale_is_undone(values: Sequence[float]) -> None:
    scale = log_odds(COUNT)
    assert scale.backward(scale.forward(np.asarray(values))) == pytest.approx(values, abs=1e-12)
    assert LOG.backward(LOG.forward(np.asarray([0.3, 7.0]))) == pytest.approx([0.3, 7.0])


def test_an_accuracy_of_which_nobody_counted_is_left_as_it_is() -> None:
    values = [0.9, 0.95, 0.99]
    assert scale_of("loss", None) is LOG
    assert spread(values, metric="token_accuracy").low == spread(values).low == spread(values, metric="bleu").low
