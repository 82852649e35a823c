"""Unit-normal queries and keys: computed anchors, 32 keys a row (200,000 rows elsewhere; here fewer)."""

import math

import numpy as np
import pytest

from model.scores import SCORES
from model.unit_normal import sample, summary

ROWS = 6000
# score, d_k: variance, variance within a row, entropy, max p, 1 - sum p^2, share of rows above .99, then of the norm of
# d p / d q: mean, median, 10 %, 90 %.
ANCHORS = {
    ("dot", 4): (4.0, 4.0, 0.656, 0.343, 0.789, 0.0012, 0.545, 0.523, 0.38, 0.754),
    ("dot", 16): (16, 16, 0.328, 0.629, 0.497, 0.033, 1.11, 1.23, 0.25, 1.70),
    ("dot", 64): (64, 64, 0.1436, 0.817, 0.257, 0.235, 1.55, 1.24, 0.010, 3.48),
    ("dot", 256): (256, 256, 0.0661, 0.910, 0.1286, 0.5225, 1.79, 0.21, 9.5e-6, 6.62),
    ("scaled_dot", 4): (1, 1, 0.875, 0.158, 0.925, 0, 0.235, 0.220, 0.18, 0.311),
    ("scaled_dot", 64): (1, 1, 0.870, 0.164, 0.927, 0, 0.241, 0.236, 0.21, 0.275),
    ("scaled_dot_mup", 4): (0.25, 0.25, 0.966, 0.078, 0.960, 0, 0.097, 0.094, None, None),
    ("scaled_dot_mup", 64): (0.0156, 0.0156, 0.998, 0.040, 0.968, 0, 0.022, 0.022, None, None),
    ("additive", 4): (0.52, 0.284, 0.962, 0.076, 0.959, 0, 0.058, 0.054, 0.028, 0.092),
    ("additive", 16): (0.52, 0.284, 0.961, 0.083, 0.959, 0, 0.062, 0.061, 0.044, 0.079),
    ("additive", 256): (0.52, 0.284, 0.961, 0.083, 0.959, 0, 0.062, 0.061, 0.059, 0.066),
}


@pytest.fixture(scope="module")
def found():
    widths = sorted({d_k for _, d_k in ANCHORS})
    names = {d_k: [name for name, width in ANCHORS if width == d_k] for d_k in widths}
    return {
        (name, d_k): summary(one)
        for d_k in widths
        for name, one in sample(names[d_k], d_k, keys=32, rows=ROWS, seed=1).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", ANCHORS)
def test_anchors(found, place):
    one = found[place]
    variance, within, entropy, most, omsp2, saturated, mean, median, low, high = ANCHORS[place]
    # The variance about 0 is over rows that each share a query: at d_k 4 its standard error is 1 %, at more less.
    assert one["variance"] == pytest.approx(variance, rel=0.05)
    assert one["variance_within"] == pytest.approx(within, rel=0.05)
    assert one["entropy"] == pytest.approx(entropy, rel=0.03)
    # Three digits are given: half of the last is allowed on top.
    assert one["max_weight"] == pytest.approx(most, rel=0.05, abs=5e-4)
    assert one["one_minus_sum_p2"] == pytest.approx(omsp2, rel=0.05)
    assert one["share_saturated"] == pytest.approx(saturated, rel=0.1, abs=4 * math.sqrt(saturated / ROWS) + 1e-3)
    assert one["jacobian_mean"] == pytest.approx(mean, rel=0.05, abs=5e-4)
    heavy = 0.3 if place == ("dot", 256) else 0.1
    assert one["jacobian_q50"] == pytest.approx(median, rel=heavy, abs=5e-4)
    if low is not None:
        tail = {("dot", 64): 0.4, ("dot", 256): 0.9}.get(place, 0.1)
        assert one["jacobian_q10"] == pytest.approx(low, rel=tail, abs=1e-7)
        assert one["jacobian_q90"] == pytest.approx(high, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("d_k", "entropy"), [(4, 0.41), (16, 0.54), (64, 0.81), (256, 0.95)])
def test_cosine_flattens_as_the_width_grows(d_k, entropy):
    """Its initial factor, log2(32^2 - 32) = 9.95, knows the length and not the width."""
    one = summary(sample(["cosine"], d_k, keys=32, rows=2000, seed=2)["cosine"])
    assert one["entropy"] == pytest.approx(entropy, abs=0.02)


def test_all_scores_see_the_same_queries_and_keys():
    drawn = sample(sorted(SCORES), 5, keys=7, rows=60, seed=3)
    product = drawn["dot"].raw_rk
    np.testing.assert_allclose(drawn["scaled_dot"].effective_rk, product / math.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(drawn["learned_temperature"].effective_rk, product / math.sqrt(5), rtol=1e-5)
    np.testing.assert_allclose(drawn["scaled_dot_log_n"].effective_rk, product / math.sqrt(5), rtol=1e-5)
    np.testing.assert_array_equal(drawn["scaled_dot_mup"].raw_rk, product)
    np.testing.assert_allclose(drawn["dot_t5_init"].effective_rk, product / math.sqrt(5), rtol=1e-5, atol=1e-6)
    for quantity, of_smaller_query in drawn["dot_t5_init"].numbers.items():
        expected = drawn["scaled_dot"].numbers[quantity] * (math.sqrt(5) if quantity == "jacobian" else 1)
        np.testing.assert_allclose(of_smaller_query, expected, rtol=1e-4, atol=1e-7)
    for one in drawn.values():
        assert one.weight_rk.shape == (60, 7)
        np.testing.assert_allclose(one.weight_rk.sum(-1), 1.0, rtol=1e-5)
        assert all(each.shape == (60,) for each in one.numbers.values())
    again = sample(["additive"], 5, keys=7, rows=60, seed=3)["additive"]
    np.testing.assert_array_equal(again.effective_rk[:, 0] == drawn["additive"].effective_rk[:, 0], True)


def test_more_rows_than_are_drawn_at_a_time_are_all_different(monkeypatch):
    monkeypatch.setattr("model.unit_normal.ROWS", 16)
    one = sample(["dot"], 5, keys=7, rows=40, seed=3)["dot"]
    assert one.raw_rk.shape == (48, 7)
    assert len(np.unique(one.raw_rk[:, 0])) == 48
