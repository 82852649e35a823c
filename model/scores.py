"""Compatibility functions between query and key: SCORES. The only file in which a scale on q.k appears.

Every function takes the *projected* query and key, of any lengths, and returns raw scores in float32 whatever the
compute dtype, before mask and softmax. Scores are formed per head: `query_bqhd`, `key_bkhd` -> `score_bhqk`.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

Shape = Callable[[int, int], tuple[int, ...]]
Initializer = Callable[[jax.Array, tuple[int, ...]], jax.Array]


class Parameter(NamedTuple):
    """A trainable array of a score: its shape from (num_heads, d_k), and its initial value from (key, shape)."""

    shape: Shape
    init: Initializer


class Score(NamedTuple):
    """An entry of SCORES: its parameters by name, and (parameters, query_bqhd, key_bkhd) -> score_bhqk float32."""

    parameters: Mapping[str, Parameter]
    function: Callable[[Mapping[str, jax.Array], jax.Array, jax.Array], jax.Array]


def _hidden(query_qd: jax.Array, key_kd: jax.Array) -> jax.Array:
    """tanh(q + k) of one example and head, [q, k, d]."""
    return jnp.tanh(query_qd[:, None] + key_kd[None])


@jax.custom_vjp
def _additive_one(v_d: jax.Array, query_qd: jax.Array, key_kd: jax.Array) -> jax.Array:
    """Scores [q, k] of one example and head."""
    # The barrier keeps tanh out of the loop that sums: a third faster with jax 0.12.0.1, no different with 0.9.2.
    hidden_qkd = jax.lax.optimization_barrier(_hidden(query_qd, key_kd))
    return jnp.sum(hidden_qkd * v_d[None, None], axis=-1)


def _additive_one_forward(
    v_d: jax.Array, query_qd: jax.Array, key_kd: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return _additive_one(v_d, query_qd, key_kd), (v_d, query_qd, key_kd)


def _additive_one_backward(saved: tuple[jax.Array, ...], grad_qk: jax.Array) -> tuple[jax.Array, ...]:
    """Gradients by v, query and key. The hidden layer is made again: cheaper than to store it for every example."""
    v_d, query_qd, key_kd = saved
    hidden_qkd = _hidden(query_qd, key_kd)
    slope_qkd = (1.0 - hidden_qkd * hidden_qkd) * grad_qk[..., None]
    grad_v_d = grad_qk.reshape(-1) @ hidden_qkd.reshape(-1, v_d.size)
    return grad_v_d, slope_qkd.sum(axis=1) * v_d[None], slope_qkd.sum(axis=0) * v_d[None]


_additive_one.defvjp(_additive_one_forward, _additive_one_backward)


def _one_by_one(v_id: jax.Array, query_iqd: jax.Array, key_ikd: jax.Array) -> jax.Array:
    """Scores [i, q, k]; i counts pairs of an example and a head."""
    return jax.lax.map(lambda one: _additive_one(*one), (v_id, query_iqd, key_ikd))


@jax.jit  # without it, a call outside a compiled program would compile its loop anew
def additive(params: Mapping[str, jax.Array], query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """v . tanh(q + k + b): a feed-forward net with one hidden layer of width d_k (Bahdanau et al. 2014, A.1.2).

    `params`: v_hd, b_hd. |score| <= sum |v|, whatever d_k. Everything is float32. The hidden layer has q * k * h * d
    numbers an example.
    """
    batch, length, heads, width = query_bqhd.shape
    query_bqhd = query_bqhd.astype(jnp.float32) + params["b_hd"][None, None]
    rows = [jnp.moveaxis(x, 2, 1).reshape(batch * heads, -1, width) for x in (query_bqhd, key_bkhd.astype(jnp.float32))]
    v_id = jnp.broadcast_to(params["v_hd"], (batch, heads, width)).reshape(batch * heads, width)
    # A CPU core keeps the hidden layer of one example and head in its cache, and is about twice as fast so (forward
    # and backward, d_k 256); an accelerator wants the whole batch at once.
    score_iqk = jax.lax.platform_dependent(v_id, *rows, cpu=_one_by_one, default=jax.vmap(_additive_one))
    return score_iqk.reshape(batch, heads, length, -1)


def dot(params: Mapping[str, jax.Array], query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """q . k, without a scale (Luong et al. 2015, "dot"): variance d_k for independent unit-variance entries."""
    del params
    return jnp.einsum("bqhd,bkhd->bhqk", query_bqhd, key_bkhd, preferred_element_type=jnp.float32)


def scaled_dot(params: Mapping[str, jax.Array], query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """q . k / sqrt(d_k) (Vaswani et al. 2017, equation 1): `dot` with the scale, and nothing else."""
    return dot(params, query_bqhd, key_bkhd) / math.sqrt(query_bqhd.shape[-1])


def _per_head_width(num_heads: int, d_k: int) -> tuple[int, ...]:
    return (num_heads, d_k)


def _unit_sum(key_init: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Normal with variance 1/d_k, so that the variance of an additive score does not grow with d_k."""
    return jax.random.normal(key_init, shape, jnp.float32) / math.sqrt(shape[-1])


def _zeros(key_init: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    del key_init
    return jnp.zeros(shape, jnp.float32)


SCORES: dict[str, Score] = {
    "additive": Score(
        {"v_hd": Parameter(_per_head_width, _unit_sum), "b_hd": Parameter(_per_head_width, _zeros)}, additive
    ),
    "dot": Score({}, dot),
    "scaled_dot": Score({}, scaled_dot),
}
