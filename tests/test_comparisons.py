"""Comparisons of two scores: SciPy's numbers, the smallest p there is, verdicts, and what a study can hold."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from train.report.comparisons import (
    BETTER,
    EQUIVALENT,
    NO_DIFFERENCE,
    TOO_FEW,
    WORSE,
    Difference,
    difference,
    holm,
    sign_flip,
    smallest_flip,
    verdicts,
)


def drawn(seeds: int, apart: float = 0.0) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(seeds)
    shared = random.standard_normal(seeds)
    first, second = shared + apart + 0.3 * random.standard_normal((2, seeds))
    return first.tolist(), (second - apart).tolist()


@pytest.mark.parametrize("seeds", [2, 3, 5, 11])
def test_the_numbers_are_scipys(seeds: int) -> None:
    first, second = drawn(seeds, 0.1)
    found = difference(first, second, margin=0.2)
    expected = stats.ttest_rel(first, second)
    each = np.subtract(first, second)
    assert found.t == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.mean == pytest.approx(each.mean())
    assert found.effect == pytest.approx(each.mean() / each.std(ddof=1))
    assert (found.first, found.second) == pytest.approx((np.mean(first), np.mean(second)))
    u = stats.mannwhitneyu(first, second).statistic
    assert found.larger == pytest.approx(u / seeds**2)
    one_sided = [
        stats.ttest_1samp(each, -0.2, alternative="greater").pvalue,
        stats.ttest_1samp(each, 0.2, alternative="less").pvalue,
    ]
    assert found.equivalent == pytest.approx(max(one_sided))


@pytest.mark.parametrize("seeds", [2, 3, 5, 8])
def test_the_sign_flip_test_is_scipys_permutation_test(seeds: int) -> None:
    first, second = drawn(seeds, 0.2)
    expected = stats.permutation_test(
        (first, second), lambda a, b: np.mean(a - b), permutation_type="samples", n_resamples=np.inf, vectorized=False
    )
    assert sign_flip(np.subtract(first, second).tolist()) == pytest.approx(expected.pvalue)


@pytest.mark.parametrize("seeds", [1, 3, 5, 8, 16, 17, 20])
def test_no_p_of_the_sign_flip_test_is_smaller_than_it_says(seeds: int) -> None:
    far = [1.0 + i / 100 for i in range(seeds)]
    assert sign_flip(far) == pytest.approx(smallest_flip(seeds), rel=1e-9 if seeds <= 16 else 3)
    assert sign_flip(far) >= smallest_flip(seeds) * (1 - 1e-12)
    assert smallest_flip(5) == 0.0625


def test_drawn_signs_agree_with_all_of_them() -> None:
    values = [0.9, -0.4, 0.3, 0.8, -0.2] * 3 + [0.1]
    every = sign_flip(values)
    assert sign_flip([*values, 1e-9]) == pytest.approx(every, abs=0.01)


def test_holm_of_hand_computed_numbers() -> None:
    assert holm([0.01, None, 0.04, 0.03, 0.005]) == pytest.approx([0.03, None, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_rejects_what_its_steps_reject() -> None:
    random = np.random.default_rng(3)
    for p_values in random.random((100, 7)) ** 4:
        order = np.argsort(p_values)
        steps = [p_values[i] * (7 - rank) <= 0.05 for rank, i in enumerate(order)]
        rejected = set(order[: sum(itertools.accumulate(steps, lambda a, b: a and b))])
        corrected = holm(p_values.tolist())
        assert {i for i, p in enumerate(corrected) if p is not None and p <= 0.05} == rejected


Values = Sequence[float | None]


def words(*pairs: tuple[Values, Values], margin: float | None = 0.01) -> list[str]:
    found = [difference(first, second, margin=margin) for first, second in pairs]
    return [verdict.word for verdict in verdicts(found, lower_is_better=False)]


HIGH: Values = [0.99, 0.98, 0.985, 0.99, 0.987]
LOW: Values = [0.40, 0.45, 0.38, 0.42, 0.44]
WIDE: Values = [0.99, 0.2, 0.9, 0.95, 0.7]


def test_verdicts_say_what_is_shown() -> None:
    assert words((HIGH, LOW), (LOW, HIGH), (WIDE, HIGH), (HIGH, HIGH)) == [BETTER, WORSE, NO_DIFFERENCE, EQUIVALENT]
    assert words((HIGH, HIGH), margin=None) == [NO_DIFFERENCE]
    losses = [difference(LOW, HIGH), difference(HIGH, LOW)]
    assert [verdict.word for verdict in verdicts(losses, lower_is_better=True)] == [BETTER, WORSE]


def test_a_family_raises_the_bar() -> None:
    first, second = [0.1, 0.2, 0.15, 0.1, 0.2], [0.05, 0.16, 0.14, 0.06, 0.12]
    single = difference(first, second)
    assert single.t is not None
    assert 0.01 < single.t < 0.05
    assert verdicts([single], lower_is_better=False)[0].word == BETTER
    assert verdicts([single] + [difference(WIDE, HIGH)] * 6, lower_is_better=False)[0].word == NO_DIFFERENCE


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_few_seeds_give_no_verdict(seeds: int) -> None:
    assert words((HIGH[:seeds], LOW[:seeds])) == [TOO_FEW]
    assert words(([*HIGH[:seeds], None, 0.5], [*LOW[:seeds], 0.5, None])) == [TOO_FEW]
    assert difference(HIGH[:1], LOW[:1]) == Difference(1, 0.99, 0.4, 0.99 - 0.4)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_seeds_that_are_all_equal_make_no_difference(value: float) -> None:
    found = difference([value] * 5, [value] * 5, margin=0.01)
    assert (found.mean, found.t, found.flip, found.larger) == (0, 1, 1, 0.5)
    assert words(([value] * 5, [value] * 5)) == [EQUIVALENT]


def test_equal_differences_are_as_certain_as_their_counts() -> None:
    step = 1 / 512
    near = difference([1.0] * 5, [1 - step] * 5, step=step)
    assert near.effect == pytest.approx(math.sqrt(6))
    assert near.t == pytest.approx(2 * stats.t.sf(math.sqrt(30), 4))
    far = difference([1.0] * 5, [0.25] * 5, step=step)
    assert far.t is not None
    assert 0 < far.t < 1e-9


def test_very_small_and_very_large_values_have_numbers() -> None:
    for scale in (1e-30, 1e30):
        first, second = ([value * scale for value in values] for values in drawn(5, 1.0))
        found = difference(first, second)
        assert found.effect is not None
        assert math.isfinite(found.effect)
