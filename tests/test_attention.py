"""Attention: masks, empty rows, 16-bit types, free widths, and which weights are shown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.attention import Attention, causal_mask, masked_softmax, padding_mask
from model.scores import SCORES, Lengths
from tests import reference

EACH_SCORE = pytest.mark.parametrize("name", sorted(SCORES))


def make(name, *, d_model=7, num_heads=2, d_k=3, d_v=5, dropout=0.0, dtype="float32", seed=0):
    attention = Attention(d_model, num_heads, d_k, d_v, name, Lengths(5.0, 7.0), dropout, dtype)
    state = jnp.zeros((1, 2, d_model))
    return attention, attention.init(jax.random.key(seed), state, state, None, deterministic=True)


def normals(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def weights(attention, variables, query, key, mask, **options):
    options = {"deterministic": True} | options
    result, state = attention.apply(variables, query, key, mask, mutable=["attention"], **options)
    return result, state["attention"]["seen"][0].weight_bhqk


@EACH_SCORE
def test_equals_the_reference_for_any_widths_and_lengths(name):
    attention, variables = make(name, d_model=11, num_heads=3, d_k=5, d_v=7)
    query, key = normals(2, 13, 11, seed=1), normals(2, 17, 11, seed=2)
    mask = np.random.default_rng(3).random((2, 1, 13, 17)) < 0.5
    mask[1, :, 4] = False
    result = attention.apply(variables, query, key, jnp.asarray(mask), deterministic=True)
    for row in range(2):
        expected = reference.attention(
            name, variables["params"], np.float64(query[row]), np.float64(key[row]), mask[row, 0]
        )
        np.testing.assert_allclose(result[row], expected, atol=1e-5)


def test_masks():
    assert causal_mask(4).shape == (1, 1, 4, 4)
    np.testing.assert_array_equal(causal_mask(4)[0, 0], np.tril(np.ones((4, 4), bool)))
    assert int(causal_mask(4).sum()) == 10
    real = jnp.array([[True, True, False], [True, False, False]])
    assert padding_mask(real).shape == (2, 1, 1, 3)
    np.testing.assert_array_equal(padding_mask(real)[:, 0, 0], real)


def test_softmax_of_a_row_without_keys_is_zero_with_zero_gradient():
    score = jnp.array([[[[3.0, -2.0], [1.0, 0.5]]]])
    mask = jnp.array([[[[False, False], [True, True]]]])
    weight = masked_softmax(score, mask)
    np.testing.assert_array_equal(weight[0, 0, 0], [0.0, 0.0])
    assert float(weight[0, 0, 1].sum()) == pytest.approx(1.0)
    gradient = jax.grad(lambda score: jnp.sum(masked_softmax(score, mask) * jnp.array([2.0, 7.0])[None, None, None]))(
        score
    )
    np.testing.assert_array_equal(gradient[0, 0, 0], [0.0, 0.0])
    assert np.isfinite(gradient).all()
    assert float(jnp.abs(gradient[0, 0, 1]).min()) > 0.1


def test_no_visible_score_is_low_enough_to_be_beaten_by_a_hidden_one():
    weight = masked_softmax(jnp.array([[[[-1e30, 0.0, -1e30]]]]), jnp.array([[[[True, False, True]]]]))
    np.testing.assert_array_equal(weight[0, 0, 0], [0.5, 0.0, 0.5])


@EACH_SCORE
def test_empty_row_leaves_the_gradient_of_the_other_example_alone(name):
    attention, variables = make(name)
    state = normals(2, 5, 7, seed=1)
    mask = padding_mask(jnp.array([[True] * 4 + [False], [False] * 5]))

    def loss(variables, state, mask):
        return jnp.mean(attention.apply(variables, state, state, mask, deterministic=True)[0] ** 2)

    result, weight = weights(attention, variables, state, state, mask)
    assert not np.asarray(weight[1]).any()
    assert not np.asarray(result[1]).any()
    both = jax.grad(loss)(variables, state, mask)
    alone = jax.grad(loss)(variables, state[:1], mask[:1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5), both, alone)
    whole = jax.grad(lambda v: jnp.sum(attention.apply(v, state, state, mask, deterministic=True)))(variables)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(whole))


@EACH_SCORE
def test_hidden_keys_have_no_influence_at_all(name):
    attention, variables = make(name)
    query, key = normals(1, 3, 7, seed=1), normals(1, 5, 7, seed=2)
    mask = padding_mask(jnp.array([[True, True, True, False, False]]))
    jacobian = jax.jacobian(lambda key: attention.apply(variables, query, key, mask, deterministic=True))(key)
    assert not np.asarray(jacobian[..., 3:, :]).any()
    assert np.abs(np.asarray(jacobian[..., :3, :])).max() > 1e-3


@EACH_SCORE
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit(name, dtype):
    attention, variables = make(name, d_model=31, d_k=13, dtype=dtype)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    state = (5.0 * normals(2, 8, 31, seed=1)).astype(dtype)
    mask = padding_mask(jnp.array([[True] * 3 + [False] * 5, [True] * 8]))
    result, weight = weights(attention, variables, state, state, mask)
    assert result.dtype == jnp.dtype(dtype)
    assert weight.dtype == jnp.float32
    np.testing.assert_array_equal(weight[0, :, :, 3:], 0.0)
    np.testing.assert_allclose(weight.sum(-1), 1.0, atol=1e-6)
    gradient = jax.grad(lambda v: attention.apply(v, state, state, mask, deterministic=True).astype(jnp.float32).sum())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient(variables)))


@EACH_SCORE
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_many_equal_scores(name, dtype):
    attention, variables = make(name, d_model=1, num_heads=1, d_v=1, dtype=dtype)
    params = (
        jax.tree.map(jnp.ones_like, variables["params"]["value"]),
        jax.tree.map(jnp.ones_like, variables["params"]["out"]),
    )
    variables = {"params": {**variables["params"], "value": params[0], "out": params[1]}}
    state = jnp.ones((1, 1024, 1), dtype)
    result, weight = weights(attention, variables, state[:, :1], state, None)
    np.testing.assert_array_equal(weight, 0.0009765625)
    np.testing.assert_allclose(np.float32(result), 1.0, atol=1e-2)


def test_shown_weights_are_those_before_dropout():
    attention, variables = make("scaled_dot", dropout=0.5)
    key_dropout = {"dropout": jax.random.key(1)}
    for length in (1, 5):
        state = normals(3, length, 7, seed=1)
        result, weight = weights(attention, variables, state, state, None, deterministic=False, rngs=key_dropout)
        np.testing.assert_allclose(weight.sum(-1), 1.0, atol=1e-6)
        if length == 1:
            np.testing.assert_array_equal(weight, 1.0)
        assert np.abs(result - attention.apply(variables, state, state, None, deterministic=True)).max() > 1e-3


def test_weights_are_kept_only_where_asked_for():
    attention, variables = make("dot")
    state = normals(1, 3, 7)
    assert set(variables) == {"params"}
    _, kept = attention.apply(variables, state, state, None, deterministic=True, mutable=["other"])
    assert not kept


def test_initial_values_and_names_do_not_depend_on_the_score():
    trees = {name: make(name, d_model=53, num_heads=2, d_k=59, d_v=61)[1]["params"] for name in SCORES}
    for name, tree in trees.items():
        for part, fan_in in (("query", 53), ("key", 53), ("value", 53), ("out", 122)):
            # The one control that is about the query's initial values has them smaller, and otherwise the same.
            factor = 59**-0.5 if (name, part) == ("dot_t5_init", "query") else 1.0
            np.testing.assert_allclose(tree[part]["kernel"], factor * trees["dot"][part]["kernel"], rtol=1e-6)
            assert float(tree[part]["kernel"].var()) * fan_in == pytest.approx(factor**2, rel=0.06)
            assert set(tree[part]) == {"kernel"}
    narrow = make("dot", d_model=53, num_heads=2, d_k=3, d_v=61)[1]["params"]
    np.testing.assert_array_equal(narrow["value"]["kernel"], trees["dot"]["value"]["kernel"])
    np.testing.assert_array_equal(narrow["out"]["kernel"], trees["dot"]["out"]["kernel"])


def test_equal_heads_stay_equal_and_different_heads_do_not():
    attention, variables = make("scaled_dot")
    state = normals(2, 5, 7, seed=1)
    _, weight = weights(attention, variables, state, state, None)
    assert np.abs(weight[:, 0] - weight[:, 1]).max() > 1e-3


@EACH_SCORE
def test_order_of_key_value_pairs_is_of_no_account(name):
    attention, variables = make(name)
    query, key = normals(2, 3, 7, seed=1), normals(2, 11, 7, seed=2)
    order = np.random.default_rng(3).permutation(11)
    straight = attention.apply(variables, query, key, None, deterministic=True)
    shuffled = attention.apply(variables, query, key[:, order], None, deterministic=True)
    np.testing.assert_allclose(straight, shuffled, atol=1e-5)


def test_started_like_t5_the_unscaled_product_is_the_scaled_one_before_the_first_update():
    query, key = normals(2, 13, 7, seed=1), normals(2, 17, 7, seed=2)
    small, scaled = (
        attention.apply(variables, query, key, None, deterministic=True)
        for attention, variables in (make(name, d_k=16) for name in ("dot_t5_init", "scaled_dot"))
    )
    np.testing.assert_allclose(small, scaled, atol=1e-6)
    unscaled, variables = make("dot", d_k=16)
    assert np.abs(small - unscaled.apply(variables, query, key, None, deterministic=True)).max() > 1e-2
