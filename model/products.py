"""Matrix products of a layer. The values are those of `jnp.einsum`; only the derivatives are spelt out.

A weight's gradient wants its operand turned round. Left to itself XLA turns it inside the loop that made it, which it
runs again for the purpose and against the grain of the cache; likewise it lays out the products of attention, which are
small and many, the slow way round. Here every operand is made once, turned once where a CPU needs it, and multiplied:
an update of the smaller models takes a quarter less time (docs/performance.md). Sums are float32 whatever the operands
are. Only reverse-mode derivatives exist.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

# Operands that are to be made before, and not inside, each of the loops that use them.
made = jax.lax.optimization_barrier


def einsum(axes: str, *operands: jax.Array) -> jax.Array:
    """`jnp.einsum`, float32 whatever the operands are."""
    return jnp.einsum(axes, *operands, preferred_element_type=jnp.float32)


@jax.custom_vjp
def project(state_bti: jax.Array, kernels_io: Sequence[jax.Array]) -> list[jax.Array]:
    """One state times several matrices -> a float32 [b, t, o] for each. Kernels may have different widths o.

    Together, because their gradients share the turned state.
    """
    return [einsum("bti,io->bto", state_bti, kernel_io) for kernel_io in kernels_io]


def _project_forward(state_bti: jax.Array, kernels_io: Sequence[jax.Array]) -> tuple[list[jax.Array], tuple]:
    return project(state_bti, kernels_io), (state_bti, kernels_io)


def _project_backward(saved: tuple, grads_bto: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
    state_bti, kernels_io = saved
    # With the gradients, so that the state is not turned, and kept, as early as in the forward pass.
    state_bti, grads_bto = made((state_bti, [grad_bto.astype(state_bti.dtype) for grad_bto in grads_bto]))
    pairs = zip(grads_bto, kernels_io, strict=True)
    grad_bti = sum(einsum("bto,io->bti", grad_bto, kernel_io) for grad_bto, kernel_io in pairs)
    grads_io = [einsum("bti,bto->io", state_bti, grad_bto) for grad_bto in grads_bto]
    return (
        jnp.asarray(grad_bti, state_bti.dtype),
        [grad_io.astype(kernel_io.dtype) for grad_io, kernel_io in zip(grads_io, kernels_io, strict=True)],
    )


project.defvjp(_project_forward, _project_backward)


def dense_product(
    state: jax.Array,
    kernel: jax.Array,
    dimension_numbers: tuple,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """`project` as the `dot_general` of a Flax layer: the last axes of a state [b, ..., i] with the first of a kernel.

    The result has the operands' type, as Flax expects.
    """
    del precision, preferred_element_type
    inner = len(dimension_numbers[0][0])
    batch, *rows = state.shape[: state.ndim - inner]
    kernel_io = kernel.reshape(math.prod(kernel.shape[:inner]), -1)
    (product_bto,) = project(state.reshape(batch, math.prod(rows), kernel_io.shape[0]), [kernel_io])
    return product_bto.reshape(batch, *rows, *kernel.shape[inner:]).astype(state.dtype)


def _by_head(x_bthd: jax.Array) -> jax.Array:
    """[b, t, h, d] -> [i, t, d]; i counts pairs of an example and a head."""
    batch, length, heads, width = x_bthd.shape
    return jnp.moveaxis(x_bthd, 2, 1).reshape(batch * heads, length, width)


def _turned(x_iqk: jax.Array) -> jax.Array:
    """[i, q, k] -> [i, k, q], in memory too."""
    return made(jnp.swapaxes(x_iqk, 1, 2))


@jax.custom_vjp
def _inner_by_head(query_iqd: jax.Array, key_ikd: jax.Array) -> jax.Array:
    return einsum("iqd,ikd->iqk", query_iqd, key_ikd)


def _inner_forward(query_iqd: jax.Array, key_ikd: jax.Array) -> tuple[jax.Array, tuple]:
    return _inner_by_head(query_iqd, key_ikd), (query_iqd, key_ikd)


def _inner_backward(saved: tuple, grad_iqk: jax.Array) -> tuple[jax.Array, jax.Array]:
    query_iqd, key_ikd = saved
    grad_iqk = made(grad_iqk)
    grad_iqd = einsum("iqk,ikd->iqd", grad_iqk, key_ikd)
    grad_ikd = einsum("ikq,iqd->ikd", _turned(grad_iqk), query_iqd)
    return grad_iqd.astype(query_iqd.dtype), grad_ikd.astype(key_ikd.dtype)


_inner_by_head.defvjp(_inner_forward, _inner_backward)


def inner(query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """Inner products of queries and keys, head by head -> [b, h, q, k] float32."""
    batch, length, heads, _ = query_bqhd.shape
    return _inner_by_head(_by_head(query_bqhd), _by_head(key_bkhd)).reshape(batch, heads, length, -1)


@jax.custom_vjp
def _mix_by_head(weight_iqk: jax.Array, value_ikv: jax.Array) -> jax.Array:
    return einsum("iqk,ikv->iqv", weight_iqk, value_ikv)


def _mix_forward(weight_iqk: jax.Array, value_ikv: jax.Array) -> tuple[jax.Array, tuple]:
    return _mix_by_head(weight_iqk, value_ikv), (weight_iqk, value_ikv)


def _mix_backward(saved: tuple, grad_iqv: jax.Array) -> tuple[jax.Array, jax.Array]:
    weight_iqk, value_ikv = saved
    grad_iqk = einsum("iqv,ikv->iqk", grad_iqv, value_ikv)
    grad_ikv = einsum("ikq,iqv->ikv", _turned(weight_iqk), grad_iqv)
    return grad_iqk.astype(weight_iqk.dtype), grad_ikv.astype(value_ikv.dtype)


_mix_by_head.defvjp(_mix_forward, _mix_backward)


def mix(weight_bhqk: jax.Array, value_bkhv: jax.Array) -> jax.Array:
    """Sums of values, weighted, head by head -> [b, q, h, v] float32."""
    batch, heads, length, _ = weight_bhqk.shape
    weight_iqk = weight_bhqk.reshape(batch * heads, length, -1)
    head_iqv = _mix_by_head(weight_iqk, _by_head(value_bkhv))
    return jnp.moveaxis(head_iqv.reshape(batch, heads, length, -1), 1, 2)
