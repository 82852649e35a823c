"""Products and their derivatives against einsum's own, and layer normalisation against Flax's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from model.norm import LayerNorm
from model.products import dense_product, inner, mix, project

DTYPES = pytest.mark.parametrize(("dtype", "relative"), [("float32", 2e-6), ("bfloat16", 2**-7)])


def normals(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def assert_same(function, other, arguments, dtype, relative):
    """Values and gradients, of operands rounded to a type; `other` computes in float32."""
    arguments = jax.tree.map(lambda x: x.astype(dtype), arguments)
    value, pull = jax.vjp(function, *arguments)
    expected, expected_pull = jax.vjp(other, *jax.tree.map(lambda x: x.astype(jnp.float32), arguments))
    cotangent = jax.tree.map(lambda x: normals(*x.shape, seed=7), expected)
    gradients = pull(jax.tree.map(lambda x, like: x.astype(like.dtype), cotangent, value))
    for one, wanted in zip(
        jax.tree.leaves((value, gradients)), jax.tree.leaves((expected, expected_pull(cotangent))), strict=True
    ):
        assert one.shape == wanted.shape
        np.testing.assert_allclose(
            one.astype(jnp.float32), wanted, rtol=0, atol=relative * float(jnp.abs(wanted).max())
        )
    for gradient, argument in zip(jax.tree.leaves(gradients), jax.tree.leaves(arguments), strict=True):
        assert gradient.dtype == argument.dtype
    return value


def by_einsum(axes):
    return lambda *each: jnp.einsum(axes, *each, precision="highest")


@DTYPES
def test_several_projections_of_one_state(dtype, relative):
    state, kernels = normals(3, 5, 7), [normals(7, 11, seed=1), normals(7, 2, seed=2)]

    def other(state, kernels):
        return [by_einsum("bti,io->bto")(state, kernel) for kernel in kernels]

    products = assert_same(project, other, (state, kernels), dtype, relative)
    assert [product.dtype for product in products] == [jnp.float32] * 2


@DTYPES
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (1, 1), (13, 3)])
def test_inner_products_of_heads(queries, keys, dtype, relative):
    arguments = normals(2, queries, 3, 11), normals(2, keys, 3, 11, seed=1)
    score = assert_same(inner, by_einsum("bqhd,bkhd->bhqk"), arguments, dtype, relative)
    assert score.dtype == jnp.float32


@DTYPES
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (1, 1), (13, 3)])
def test_weighted_sums_of_heads(queries, keys, dtype, relative):
    arguments = normals(2, 3, queries, keys), normals(2, keys, 3, 11, seed=1)
    head = assert_same(mix, by_einsum("bhqk,bkhv->bqhv"), arguments, dtype, relative)
    assert head.dtype == jnp.float32


@DTYPES
@pytest.mark.parametrize("axis", [-1, (-2, -1)])
def test_a_dense_layer_is_that_of_flax(axis, dtype, relative):
    arguments = {"features": 5, "axis": axis, "dtype": dtype}
    state = normals(2, 3, 7, 11) if axis != -1 else normals(2, 3, 11)
    plain = nn.DenseGeneral(**arguments | {"dtype": "float32"})
    params = plain.init(jax.random.key(0), state)
    layer = nn.DenseGeneral(**arguments, dot_general=dense_product)
    assert_same(
        lambda state: layer.apply(params, state), lambda state: plain.apply(params, state), (state,), dtype, relative
    )
    assert layer.apply(params, state.astype(dtype)).dtype == dtype


# An offset of 1000 leaves bfloat16 no digits.
@pytest.mark.parametrize(
    ("offset", "dtype", "relative"), [(0.0, "float32", 2e-6), (1000.0, "float32", 2e-6), (0.0, "bfloat16", 2**-7)]
)
def test_layer_norm_is_that_of_flax(offset, dtype, relative):
    state = normals(2, 3, 37) + offset
    plain, layer = nn.LayerNorm(use_fast_variance=False), LayerNorm(dtype)
    params = jax.tree.map(lambda x: x + normals(*x.shape, seed=3), plain.init(jax.random.key(0), state))
    assert jax.tree.structure(params) == jax.tree.structure(layer.init(jax.random.key(0), state))

    def of(module):
        return lambda params, state: module.apply(params, state)

    assert_same(
        lambda state: of(layer)(params, state), lambda state: of(plain)(params, state), (state,), dtype, relative * 10
    )
    assert_same(
        lambda params: of(LayerNorm("float32"))(params, state),
        lambda params: of(plain)(params, state),
        (params,),
        "float32",
        1e-5,
    )
