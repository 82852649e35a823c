"""Closed forms of d weights / d query against automatic differentiation, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model import jacobian
from model.attention import causal_mask, masked_softmax
from model.scores import SCORES, Lengths, Sizes, scores

EACH_SCORE = pytest.mark.parametrize("name", sorted(SCORES))
QUERIES, KEYS, HEADS, WIDTH = 3, 5, 2, 7


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def similarity(name, params, query_d, keys_kd):
    """The raw scores [k] of one query, from the papers' formulas; in the type of what is given."""
    if name.startswith("additive"):
        inside = query_d[None] + keys_kd + params["b_d"][None]
        return (inside if name == "additive_linear" else jnp.tanh(inside)) @ params["v_d"]
    if name == "general":
        return keys_kd @ params["kernel_de"].T @ query_d
    if name == "cosine":
        return keys_kd @ query_d / jnp.linalg.norm(query_d) / jnp.linalg.norm(keys_kd, axis=-1)
    return keys_kd @ query_d


@EACH_SCORE
def test_norm_equals_that_of_the_differentiated_softmax(name):
    with jax.enable_x64(True):
        query, key = (jnp.asarray(normals(2, length, HEADS, WIDTH, seed=length)) for length in (QUERIES, KEYS))
        sizes = Sizes(HEADS, WIDTH, Lengths(5.0, 7.0))
        params = {
            part: jnp.asarray(normals(*init(jax.random.key(0), sizes).shape, seed=11))
            for part, init in SCORES[name].parameters.items()
        }
        mask_qk = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 0, 1, 1]], bool)

        def weights(query_d, row, head, place):
            of_head = {part.replace("_h", "_"): value[head] for part, value in params.items() if "_h" in part}
            score_k = similarity(name, of_head, query_d, key[row, :, head])
            return jax.nn.softmax(jnp.where(mask_qk[place], score_k, -jnp.inf))

        expected = np.zeros((2, HEADS, QUERIES))
        weight = np.zeros((2, HEADS, QUERIES, KEYS))
        for row, head, place in np.ndindex(2, HEADS, QUERIES):
            at = (query[row, place, head], row, head, place)
            weight[row, head, place] = weights(*at)
            expected[row, head, place] = np.linalg.norm(jax.jacobian(weights)(*at))
        norm = SCORES[name].norm(params, query, key, jnp.asarray(weight))
    assert norm.shape == (2, HEADS, QUERIES)
    np.testing.assert_allclose(norm, expected, rtol=1e-5, atol=1e-9)
    if name != "additive_linear":
        assert expected.max() > 1e-2


@pytest.mark.parametrize("gap", [0.0, 10.0, 20.0, 40.0])
def test_the_norm_of_a_nearly_one_hot_row_is_not_rounding(gap):
    """In float32 as in float64, where one weight is 1 but for exp(-gap)."""
    score = normals(1, 1, 2, KEYS, seed=3) + gap * (np.arange(KEYS) == 2)
    key = normals(1, KEYS, 1, 257, seed=1)
    with jax.enable_x64(True):
        exact = np.asarray(jacobian.of_inner(jax.nn.softmax(jnp.asarray(score)), jnp.asarray(key)))
    single = jacobian.of_inner(jax.nn.softmax(jnp.asarray(score, jnp.float32)), jnp.asarray(key, jnp.float32))
    assert exact.max() < 2000 * np.exp(-gap)
    np.testing.assert_allclose(single, exact, rtol=1e-4)


def test_a_row_that_is_one_hot_or_empty_has_norm_zero():
    key = jnp.asarray(normals(1, KEYS, 1, WIDTH, seed=1), jnp.float32)
    for weight_k in (jnp.zeros(KEYS), jnp.zeros(KEYS).at[2].set(1.0)):
        assert float(jacobian.of_inner(weight_k[None, None, None], key)[0, 0, 0]) == 0.0


@EACH_SCORE
def test_under_vmap_and_map_over_lanes(name):
    sizes = Sizes(HEADS, WIDTH, Lengths(5.0, 7.0))
    query, key = (jnp.asarray(normals(3, 2, length, HEADS, WIDTH, seed=length), jnp.float32) for length in (KEYS, KEYS))
    params = {part: init(jax.random.key(0), sizes) for part, init in SCORES[name].parameters.items()}

    def norm(query, key):
        weight = masked_softmax(scores(name, params, query, key).effective_bhqk, causal_mask(KEYS))
        return SCORES[name].norm(params, query, key, weight)

    alone = np.stack([norm(query[lane], key[lane]) for lane in range(3)])
    np.testing.assert_allclose(jax.jit(jax.vmap(norm))(query, key), alone, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.lax.map(lambda both: norm(*both), (query, key)), alone, rtol=1e-4, atol=1e-6)
