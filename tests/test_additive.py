"""Tiles of the additive score: the sums of the plain form, whatever the sizes, lengths, masks and lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.additive import CPU, Tiling, additive_score, tile_sizes, tiled
from model.attention import masked_softmax
from model.scores import scores


def normals(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def plain(v_id, query_iqd, key_ikd):
    hidden_iqkd = jnp.tanh(query_iqd[:, :, None] + key_ikd[:, None])
    return jnp.einsum("iqkd,id->iqk", hidden_iqkd, v_id, precision="highest")


def value_and_gradients(function, *arguments):
    shape = jax.eval_shape(function, *arguments).shape
    target = normals(*shape, seed=9)
    value, pull = jax.vjp(function, *arguments)
    return value, *pull(target)


def assert_close(found, expected, relative=1e-5):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=0, atol=relative * float(jnp.abs(other).max()))


# One tile; several examples a tile, with one left over; rows and columns of tiles, of which the last are not full.
SIZES = [
    (3, 5, 7, 11, 2000),
    (5, 5, 7, 11, 800),
    (2, 13, 17, 5, 200),
    (2, 17, 3, 5, 50),
    (1, 3, 29, 7, 60),
    (2, 5, 3, 11, 1),
]


@pytest.mark.parametrize(("examples", "queries", "keys", "width", "most"), SIZES)
def test_equals_the_plain_form_and_its_gradients(examples, queries, keys, width, most):
    arguments = normals(examples, width), normals(examples, queries, width, seed=1), normals(examples, keys, width)
    found = value_and_gradients(lambda *each: tiled(*each, tiling=Tiling(0, most)), *arguments)
    assert_close(found, value_and_gradients(plain, *arguments))


@pytest.mark.parametrize(("examples", "queries", "keys", "width", "most"), SIZES)
def test_a_tile_is_no_larger_than_asked_for(examples, queries, keys, width, most):
    part = tile_sizes(examples, queries, keys, width, Tiling(0, most))
    assert all(1 <= size <= whole for size, whole in zip(part, (examples, queries, keys), strict=True))
    assert np.prod(part) * width <= max(most, width)


def test_what_may_be_whole_is_one_tile():
    sizes = {"examples": 3, "queries": 5, "keys": 7, "width": 11}
    hidden = 3 * 5 * 7 * 11
    assert tile_sizes(**sizes, tiling=Tiling(whole=hidden, tile=11)) == (3, 5, 7)
    assert tile_sizes(**sizes, tiling=Tiling(whole=hidden - 1, tile=11)) == (1, 1, 1)


@pytest.mark.parametrize(("most", "times"), [(2 * 16 * 16 * 64, 1), (2 * 16 * 16 * 64 - 1, 2)])
def test_a_whole_hidden_layer_is_made_once_and_tiles_twice(most, times):
    """XLA counts the operations of one turn of a loop: here of one example, forward and backward."""
    tiling = Tiling(whole=most, tile=16 * 16 * 64)
    query, key, v = normals(2, 16, 64), normals(2, 16, 64, seed=1), normals(2, 64, seed=2)
    gradients = jax.jit(jax.value_and_grad(lambda *each: tiled(*each, tiling=tiling).sum(), argnums=(0, 1, 2)))
    tanhs = gradients.lower(v, query, key).compile().cost_analysis()["transcendentals"]
    assert tanhs == times * 16 * 16 * 64 * (2 if times == 1 else 1)


def test_no_more_of_the_hidden_layer_than_a_tile_is_ever_in_memory():
    shape = jax.ShapeDtypeStruct((1, 257, 1, 256), jnp.float32)
    v_hd = jax.ShapeDtypeStruct((1, 256), jnp.float32)
    gradients = jax.grad(lambda *each: additive_score(*each).sum(), argnums=(0, 1, 2))
    memory = jax.jit(gradients).lower(v_hd, shape, shape).compile().memory_analysis().temp_size_in_bytes
    hidden = 4 * 257 * 257 * 256
    assert memory < 8 * 4 * CPU.tile < hidden / 10


@pytest.mark.parametrize(
    "lanes_by", [jax.vmap, lambda function: lambda *each: jax.lax.map(lambda a: function(*a), each)]
)
def test_lanes_equal_the_lane_alone(lanes_by):
    stacks = normals(3, 2, 5), normals(3, 2, 13, 5, seed=1), normals(3, 2, 17, 5, seed=2)

    def one(*each):
        return value_and_gradients(lambda *own: tiled(*own, tiling=Tiling(0, 200)), *each)

    together = jax.jit(lanes_by(one))(*stacks)
    for lane in range(3):
        alone = one(*(stack[lane] for stack in stacks))
        assert_close([leaf[lane] for leaf in together], alone, 1e-6)


def test_a_masked_key_gets_no_gradient_from_a_tile():
    params = {"v_hd": normals(1, 13), "b_hd": normals(1, 13, seed=1)}
    query, key = normals(1, 401, 1, 13, seed=2), normals(1, 211, 1, 13, seed=3)
    mask = (jnp.arange(211) < 200)[None, None, None]

    def loss(key):
        weight_bhqk = masked_softmax(scores("additive", params, query, key).effective_bhqk, mask)
        return jnp.sum(weight_bhqk**2)

    assert CPU.whole < 401 * 211 * 13
    gradient = jax.grad(loss)(key)
    assert float(jnp.abs(gradient[:, 200:]).max()) == 0.0 < float(jnp.abs(gradient[:, :200]).min())


def test_sixteen_bit_inputs_are_rounded_and_nothing_else():
    params = {"v_hd": normals(2, 11), "b_hd": normals(2, 11, seed=1)}
    query, key = normals(3, 5, 2, 11, seed=2), normals(3, 7, 2, 11, seed=3)
    short = [x.astype(jnp.bfloat16) for x in (query, key)]

    def function(params, query, key):
        return scores("additive", params, query, key).effective_bhqk

    found = value_and_gradients(lambda *each: function(params, *each), *short)
    assert [leaf.dtype for leaf in found] == [jnp.float32, jnp.bfloat16, jnp.bfloat16]
    expected = value_and_gradients(lambda *each: function(params, *each), *(x.astype(jnp.float32) for x in short))
    assert_close(found[0], expected[0])
    assert_close([leaf.astype(jnp.float32) for leaf in found[1:]], expected[1:], 2**-8)
