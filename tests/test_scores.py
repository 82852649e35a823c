"""Scores: every entry against the slow reference, known values, and variance on unit-normal queries and keys."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.attention import causal_mask, masked_softmax
from model.scores import SCORES, Lengths, Sizes, scores
from tests import reference

EACH_SCORE = pytest.mark.parametrize("name", sorted(SCORES))
LENGTHS = Lengths(median=7.0, long=31.0)


def make_params(name, num_heads, d_k, seed=0, lengths=LENGTHS):
    entry = SCORES[name]
    keys = jax.random.split(jax.random.key(seed), max(1, len(entry.parameters)))
    return {
        part: init(key_init, Sizes(num_heads, d_k, lengths))
        for key_init, (part, init) in zip(keys, entry.parameters.items(), strict=False)
    }


def effective(name, params, query_bqhd, key_bkhd, mask=None, factor=None):
    return scores(name, params, query_bqhd, key_bkhd, mask, factor).effective_bhqk


def normals(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@EACH_SCORE
@pytest.mark.parametrize(("heads", "queries", "keys", "d_k"), [(1, 1, 1, 1), (3, 5, 7, 11), (2, 13, 3, 1)])
def test_equals_the_reference(name, heads, queries, keys, d_k):
    params = make_params(name, heads, d_k)
    params = {part: value + 0.3 for part, value in params.items()}  # a bias of 0 would hide a missing bias
    query, key = normals(2, queries, heads, d_k, seed=1), normals(2, keys, heads, d_k, seed=2)
    mask = np.random.default_rng(3).random((2, 1, queries, keys)) < 0.7
    score_bhqk = effective(name, params, query, key, jnp.asarray(mask))
    assert score_bhqk.shape == (2, heads, queries, keys)
    for row in range(2):
        for head in range(heads):
            sides = np.float64(query[row, :, head]), np.float64(key[row, :, head])
            expected = reference.score(name, params, *sides, head, mask[row, 0])
            np.testing.assert_allclose(score_bhqk[row, head], expected, rtol=2e-5, atol=2e-5)


@EACH_SCORE
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_is_float32_whatever_the_compute_dtype(name, dtype):
    params = make_params(name, 2, 257)
    query, key = 30.0 * normals(1, 3, 2, 257, seed=1), 30.0 * normals(1, 5, 2, 257, seed=2)
    query, key = query.astype(dtype), key.astype(dtype)
    score = effective(name, params, query, key)
    assert score.dtype == jnp.float32
    # Products of rounded entries, summed in float32: no further rounding to 16 bits, and no overflow at 65504.
    wide = effective(name, params, query.astype(jnp.float32), key.astype(jnp.float32))
    np.testing.assert_allclose(score, wide, rtol=1e-4, atol=1e-4 * float(jnp.abs(wide).max()))


@EACH_SCORE
def test_gradients_equal_finite_differences(name):
    params = make_params(name, 2, 5)
    query, key = normals(3, 7, 2, 5, seed=1), normals(3, 11, 2, 5, seed=2)
    target = normals(3, 2, 7, 11, seed=3)

    def loss(params, query, key):
        return jnp.sum(effective(name, params, query, key) * target)

    arguments = (params, query, key)
    gradient = jax.grad(loss, argnums=(0, 1, 2))(*arguments)
    rng = np.random.default_rng(4)
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), arguments)
    slope = sum(
        float(jnp.sum(g * d)) for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    h = 1e-2
    ahead = loss(*jax.tree.map(lambda x, d: x + h * d, arguments, direction))
    behind = loss(*jax.tree.map(lambda x, d: x - h * d, arguments, direction))
    assert float(ahead - behind) / (2 * h) == pytest.approx(slope, rel=5e-3, abs=1e-2)


@EACH_SCORE
def test_vmap_over_lanes_equals_the_loop(name):
    params = [make_params(name, 2, 3, seed=seed) for seed in range(3)]
    query, key = normals(3, 2, 5, 2, 3, seed=1), normals(3, 2, 7, 2, 3, seed=2)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
    together = jax.jit(jax.vmap(functools.partial(effective, name)))(stacked, query, key)
    for lane in range(3):
        alone = effective(name, params[lane], query[lane], key[lane])
        np.testing.assert_allclose(together[lane], alone, rtol=1e-6, atol=1e-6)


def one_row(name, query, keys, params=None):
    query_bqhd = jnp.asarray(query, jnp.float32)[None, None, None]
    key_bkhd = jnp.asarray(keys, jnp.float32)[None, :, None]
    return masked_softmax(effective(name, params or {}, query_bqhd, key_bkhd), None)[0, 0, 0]


def test_weights_of_ten_against_zero():
    query, keys = [1, 2, 3, 4], [[1, 1, 1, 1], [0, 0, 0, 0]]
    assert one_row("dot", query, keys)[0] == pytest.approx(0.9999546, abs=1e-7)
    assert one_row("scaled_dot", query, keys)[0] == pytest.approx(0.9933071, abs=1e-7)


def test_additive_weights_of_width_one():
    params = {"v_hd": jnp.ones((1, 1)), "b_hd": jnp.zeros((1, 1))}
    np.testing.assert_allclose(one_row("additive", [0.5], [[0.5], [-0.5]], params), [0.6817, 0.3183], atol=5e-5)


def test_scaled_dot_is_dot_divided_by_the_root_of_the_width():
    query, key = normals(2, 3, 2, 64, seed=1), normals(2, 5, 2, 64, seed=2)
    np.testing.assert_array_equal(effective("scaled_dot", {}, query, key), effective("dot", {}, query, key) / 8)
    query, key = query[..., :1], key[..., :1]
    np.testing.assert_array_equal(effective("scaled_dot", {}, query, key), effective("dot", {}, query, key))


def test_additive_is_bounded_by_the_sum_of_v():
    params = make_params("additive", 1, 53)
    query, key = 1e4 * normals(1, 3, 1, 53, seed=1), 1e4 * normals(1, 5, 1, 53, seed=2)
    score = effective("additive", params, query, key)
    assert float(jnp.abs(score).max()) <= float(jnp.abs(params["v_hd"]).sum()) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("name", "d_k", "variance"),
    [("dot", 4, 4.0), ("dot", 64, 64.0), ("dot", 256, 256.0)]
    + [("scaled_dot", d_k, 1.0) for d_k in (4, 64, 256)]
    + [("additive", d_k, 0.52) for d_k in (4, 64, 256)]
    + [("scaled_dot_mup", d_k, 1.0 / d_k) for d_k in (4, 64)]
    + [("additive_unnormalised", d_k, 0.52 * d_k) for d_k in (4, 64)],
)
def test_variance_for_unit_normal_queries_and_keys(name, d_k, variance):
    rows, keys = 1009, 31  # one query a row; heads stand in for rows, so that v is drawn anew for each
    params = make_params(name, rows, d_k, seed=5)
    score = effective(name, params, normals(1, 1, rows, d_k, seed=6), normals(1, keys, rows, d_k, seed=7))
    assert abs(float(score.mean())) < 0.05 * variance**0.5
    # 31289 scores; at d_k 4 those of a row share one heavy-tailed |q|^2 or v, so that the standard error is up to 3 %.
    assert float(score.var()) == pytest.approx(variance, rel=0.1)


def test_parameters():
    shapes = {name: {part: value.shape for part, value in make_params(name, 3, 7).items()} for name in SCORES}
    hidden = {"b_hd": (3, 7), "v_hd": (3, 7)}
    assert shapes == {
        "additive": hidden,
        "additive_linear": hidden,
        "additive_unnormalised": hidden,
        "cosine": {"scale_1": (1,)},
        "dot": {},
        "dot_t5_init": {},
        "general": {"kernel_hde": (3, 7, 7)},
        "learned_temperature": {"scale_h": (3,)},
        "scaled_dot": {},
        "scaled_dot_log_n": {"scale_h": (3,)},
        "scaled_dot_mup": {},
    }
    params = make_params("additive", 101, 97)
    assert float(params["v_hd"].var()) * 97 == pytest.approx(1.0, rel=0.05)
    assert float(jnp.abs(params["b_hd"]).max()) == 0.0
    assert float(make_params("additive_unnormalised", 101, 97)["v_hd"].var()) == pytest.approx(1.0, rel=0.05)
    assert float(make_params("general", 3, 97)["kernel_hde"].var()) * 97 == pytest.approx(1.0, rel=0.05)


# What defines each control.


@pytest.mark.parametrize("name", ["learned_temperature", "scaled_dot_log_n"])
def test_starts_as_scaled_dot(name):
    """With its trained factor as it starts, at rows that see as many keys as the median sentence has."""
    query, key = normals(2, 3, 2, 11, seed=1), normals(2, 7, 2, 11, seed=2)
    np.testing.assert_allclose(
        effective(name, make_params(name, 2, 11), query, key), effective("scaled_dot", {}, query, key), rtol=1e-6
    )


def test_the_factor_of_each_head_is_its_own():
    query, key = normals(2, 3, 2, 11, seed=1), normals(2, 7, 2, 11, seed=2)
    for name in ("learned_temperature", "scaled_dot_log_n"):
        params = make_params(name, 2, 11)
        before, after = effective(name, params, query, key), None
        after = effective(name, {"scale_h": params["scale_h"].at[1].mul(3.0)}, query, key)
        np.testing.assert_array_equal(after[:, 0], before[:, 0])
        np.testing.assert_allclose(after[:, 1], 3.0 * before[:, 1], rtol=1e-6)


def test_log_n_counts_the_keys_that_a_row_sees():
    query, key = normals(2, 5, 3, 11, seed=1), normals(2, 5, 3, 11, seed=2)
    params = make_params("scaled_dot_log_n", 3, 11)
    score_bhqk = effective("scaled_dot_log_n", params, query, key, causal_mask(5))
    raw_bhqk = effective("dot", {}, query, key)
    for row in range(5):
        scale = np.log(row + 1) / np.log(7.0) / np.sqrt(11)
        np.testing.assert_allclose(score_bhqk[:, :, row], scale * raw_bhqk[:, :, row], rtol=1e-5, atol=1e-6)
    empty = effective("scaled_dot_log_n", params, query, key, jnp.zeros((2, 1, 5, 5), bool))
    assert np.isfinite(empty).all()


def test_mup_divides_by_the_width():
    query, key = normals(2, 3, 2, 64, seed=1), normals(2, 5, 2, 64, seed=2)
    np.testing.assert_array_equal(effective("scaled_dot_mup", {}, query, key), effective("dot", {}, query, key) / 64)


def test_cosine_is_blind_to_lengths_and_starts_as_its_paper_says():
    query, key = normals(2, 3, 2, 11, seed=1), normals(2, 5, 2, 11, seed=2)
    params = make_params("cosine", 2, 11)
    assert float(params["scale_1"][0]) == pytest.approx(np.log2(31**2 - 31))
    score = effective("cosine", params, query, key)
    np.testing.assert_allclose(effective("cosine", params, 100 * query, key / 7), score, rtol=1e-4, atol=1e-5)
    assert float(jnp.abs(score).max()) <= float(params["scale_1"][0]) * (1 + 1e-6)
    gradient = jax.grad(lambda query: jnp.sum(effective("cosine", params, query, key)))(jnp.zeros_like(query))
    assert np.isfinite(gradient).all()


def test_general_with_the_unit_matrix_is_dot():
    query, key = normals(2, 3, 2, 11, seed=1), normals(2, 5, 2, 11, seed=2)
    params = {"kernel_hde": jnp.broadcast_to(jnp.eye(11), (2, 11, 11))}
    np.testing.assert_allclose(
        effective("general", params, query, key), effective("dot", {}, query, key), rtol=1e-5, atol=1e-5
    )


def test_weights_of_additive_linear_do_not_depend_on_the_query():
    params = {part: value + 0.3 for part, value in make_params("additive_linear", 2, 11).items()}
    key = normals(2, 5, 2, 11, seed=2)
    one, other = (
        masked_softmax(effective("additive_linear", params, normals(2, 3, 2, 11, seed=seed), key), None)
        for seed in (1, 7)
    )
    np.testing.assert_allclose(one, other, atol=1e-6)
    assert np.abs(one - 0.2).max() > 0.05  # they do depend on the keys
    with_tanh = [
        masked_softmax(effective("additive", params, normals(2, 3, 2, 11, seed=seed), key), None) for seed in (1, 7)
    ]
    assert np.abs(with_tanh[0] - with_tanh[1]).max() > 0.01


@EACH_SCORE
def test_effective_scores_are_raw_ones_times_the_gain(name):
    params = make_params(name, 2, 5)
    scored = scores(name, params, normals(3, 7, 2, 5, seed=1), normals(3, 7, 2, 5, seed=2), causal_mask(7), 0.25)
    np.testing.assert_allclose(scored.effective_bhqk, scored.raw_bhqk * scored.gain_bhq1, rtol=1e-6)
    full = scores(name, params, normals(3, 7, 2, 5, seed=1), normals(3, 7, 2, 5, seed=2), causal_mask(7), 1.0)
    np.testing.assert_allclose(scored.effective_bhqk, full.effective_bhqk / 4, rtol=1e-6)
