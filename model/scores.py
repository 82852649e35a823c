"""Compatibility functions between query and key: SCORES. The only file in which a scale on q.k appears.

Every function takes the *projected* query and key, of any lengths, and returns raw scores in float32 whatever the
compute dtype, before mask and softmax. Scores are formed per head: `query_bqhd`, `key_bkhd` -> `score_bhqk`.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from model.additive import additive_score
from model.products import inner

Shape = Callable[[int, int], tuple[int, ...]]
Initializer = Callable[[jax.Array, tuple[int, ...]], jax.Array]


class Parameter(NamedTuple):
    """A trainable array of a score: its shape from (num_heads, d_k), and its initial value from (key, shape)."""

    shape: Shape
    init: Initializer


def _one(d_k: int) -> float:
    del d_k
    return 1.0


class Score(NamedTuple):
    """An entry of SCORES: its parameters by name, (parameters, query_bqhd, key_bkhd) -> score_bhqk, d_k -> factor.

    The factor stands apart from the function so that a compiled program can take it as a number: entries with the same
    function share one.
    """

    parameters: Mapping[str, Parameter]
    function: Callable[[Mapping[str, jax.Array], jax.Array, jax.Array], jax.Array]
    scale: Callable[[int], float] = _one


def additive(params: Mapping[str, jax.Array], query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """v . tanh(q + k + b): a feed-forward net with one hidden layer of width d_k (Bahdanau et al. 2014, A.1.2).

    `params`: v_hd, b_hd. |score| <= sum |v|, whatever d_k. Everything is float32. The hidden layer has q * k * h * d
    numbers an example, of which only a tile is in memory at a time.
    """
    query_bqhd = query_bqhd.astype(jnp.float32) + params["b_hd"][None, None]
    return additive_score(params["v_hd"], query_bqhd, key_bkhd.astype(jnp.float32))


def dot(params: Mapping[str, jax.Array], query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """q . k, without a scale (Luong et al. 2015, "dot"): variance d_k for independent unit-variance entries."""
    del params
    return inner(query_bqhd, key_bkhd)


def _root(d_k: int) -> float:
    """1/sqrt(d_k) (Vaswani et al. 2017, equation 1): brings the variance of q . k back to 1."""
    return 1.0 / math.sqrt(d_k)


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
    "scaled_dot": Score({}, dot, scale=_root),
}


def scores(
    name: str,
    params: Mapping[str, jax.Array],
    query_bqhd: jax.Array,
    key_bkhd: jax.Array,
    scale: jax.Array | float | None = None,
) -> jax.Array:
    """Scores score_bhqk float32 of an entry of SCORES, with its own factor, or with `scale` in its place."""
    entry = SCORES[name]
    return entry.function(params, query_bqhd, key_bkhd) * (
        entry.scale(query_bqhd.shape[-1]) if scale is None else scale
    )


def family(name: str) -> str:
    """The first entry of SCORES with the same function: given the factor as a number, it is the same program."""
    return next(first for first, entry in SCORES.items() if entry.function is SCORES[name].function)
