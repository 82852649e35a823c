"""Compatibility functions between query and key: SCORES. The only file in which a scale on q.k appears.

A score of an attention is similarity x gain x factor. Each is formed per head from the *projected* query and key, of
any lengths, in float32 whatever the compute dtype, before mask and softmax: `query_bqhd`, `key_bkhd` -> `score_bhqk`.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from model import jacobian
from model.additive import additive_score
from model.products import inner

Params = Mapping[str, jax.Array]


class Lengths(NamedTuple):
    """Tokens of the sentences trained on, both sides, EOS included: the median, and the 97.5th percentile."""

    median: float
    long: float


class Sizes(NamedTuple):
    """What the initial values of a score may depend on."""

    num_heads: int
    d_k: int
    lengths: Lengths


Initializer = Callable[[jax.Array, Sizes], jax.Array]
Similarity = Callable[[Params, jax.Array, jax.Array], jax.Array]
Gain = Callable[[Params, jax.Array], jax.Array]
Norm = Callable[[Params, jax.Array, jax.Array, jax.Array], jax.Array]


def _one(d_k: int) -> float:
    del d_k
    return 1.0


class Score(NamedTuple):
    """An entry of SCORES.

    similarity: (parameters, query_bqhd, key_bkhd) -> similarity_bhqk, the raw score.
    norm: (parameters, query_bqhd, key_bkhd, weight_bhqk) -> norm_bhq of d weights / d query, for gain and factor 1.
    parameters: trainable arrays by name, each from (key, Sizes); float32.
    gain: (parameters, visible_bhq1) -> what multiplies the similarities of a row, [b, h, q, 1] or less; visible: keys
      that the row sees. None: 1.
    factor: d_k -> a number that multiplies all scores. It stands apart so that a compiled program can take it as a
      number: entries that differ only in it and in initial values share one.
    query_init: d_k -> factor on the initial values of the query's projection.
    """

    similarity: Similarity
    norm: Norm
    parameters: Mapping[str, Initializer] = {}
    gain: Gain | None = None
    factor: Callable[[int], float] = _one
    query_init: Callable[[int], float] = _one


def _wide(x: jax.Array) -> jax.Array:
    """In float32, or wider where it is so already."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


# Inner products.


def _dot(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """q . k: variance d_k for independent entries of variance 1 (Vaswani et al. 2017, footnote 4)."""
    del params
    return inner(query_bqhd, key_bkhd)


def _dot_norm(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array, weight_bhqk: jax.Array) -> jax.Array:
    del params, query_bqhd
    return jacobian.of_inner(weight_bhqk, _wide(key_bkhd))


def _root(d_k: int) -> float:
    """1/sqrt(d_k) (Vaswani et al. 2017, equation 1): brings the variance of q . k back to 1."""
    return 1.0 / math.sqrt(d_k)


def _inverse(d_k: int) -> float:
    """1/d_k (Yang et al. 2022, definition 4.1): for keys that have come to point along their query."""
    return 1.0 / d_k


def _root_per_head(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    """1/sqrt(d_k) for each head."""
    del key_init
    return jnp.full((sizes.num_heads,), _root(sizes.d_k), jnp.float32)


def _scale_gain(params: Params, visible_bhq1: jax.Array) -> jax.Array:
    """The trained factor of each head."""
    del visible_bhq1
    return params["scale_h"][None, :, None, None]


def _log_n_per_head(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    """s with s log n = 1/sqrt(d_k) at the median training length; of at least 2, since log 1 = 0."""
    del key_init
    scale = _root(sizes.d_k) / math.log(max(2.0, sizes.lengths.median))
    return jnp.full((sizes.num_heads,), scale, jnp.float32)


def _log_n_gain(params: Params, visible_bhq1: jax.Array) -> jax.Array:
    """s log n, n the number of keys the row sees; 0 for one key, whose weight is 1 whatever its score."""
    return params["scale_h"][None, :, None, None] * jnp.log(jnp.maximum(visible_bhq1, 1.0))


# Products of other vectors than q and k themselves.


def _through(params: Params, key_bkhd: jax.Array) -> jax.Array:
    """W k, head by head."""
    return jnp.einsum("hde,bkhe->bkhd", _wide(params["kernel_hde"]), _wide(key_bkhd))


def _general(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """q . W k (Luong et al. 2015, "general")."""
    return inner(_wide(query_bqhd), _through(params, key_bkhd))


def _general_norm(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array, weight_bhqk: jax.Array) -> jax.Array:
    del query_bqhd
    return jacobian.of_inner(weight_bhqk, _through(params, key_bkhd))


def _square_per_head(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    """LeCun-normal, as every other projection: variance 1/d_k."""
    shape = (sizes.num_heads, sizes.d_k, sizes.d_k)
    return jax.random.normal(key_init, shape, jnp.float32) / math.sqrt(sizes.d_k)


TINY = 1e-12  # added to squared lengths, so that a vector of zeros has a direction, 0, and a gradient


def _length(x_bthd: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(_wide(x_bthd) ** 2, axis=-1) + TINY)


def _unit(x_bthd: jax.Array) -> jax.Array:
    return _wide(x_bthd) / _length(x_bthd)[..., None]


def _cosine(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """q . k of vectors brought to length 1 (Henry et al. 2020, section 3)."""
    del params
    return inner(_unit(query_bqhd), _unit(key_bkhd))


def _cosine_norm(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array, weight_bhqk: jax.Array) -> jax.Array:
    del params
    return jacobian.of_cosine(weight_bhqk, _length(query_bqhd), _unit(query_bqhd), _unit(key_bkhd))


def _one_gain(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    """log2(L^2 - L), L the 97.5th percentile of training lengths (Henry et al. 2020, section 3); at least 2."""
    del key_init
    long = max(2.0, sizes.lengths.long)
    return jnp.full((1,), math.log2(long * long - long), jnp.float32)


def _shared_gain(params: Params, visible_bhq1: jax.Array) -> jax.Array:
    """The trained factor of all heads."""
    del visible_bhq1
    return params["scale_1"][None, :, None, None]


# A hidden layer.


def _shifted(params: Params, query_bqhd: jax.Array) -> jax.Array:
    return _wide(query_bqhd) + params["b_hd"][None, None]


def _additive(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """v . tanh(q + k + b): a feed-forward net with one hidden layer of width d_k (Bahdanau et al. 2014, A.1.2).

    |score| <= sum |v|, whatever d_k. The hidden layer has q * k * h * d numbers an example, of which only a tile is in
    memory at a time.
    """
    return additive_score(params["v_hd"], _shifted(params, query_bqhd), _wide(key_bkhd))


def _additive_norm(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array, weight_bhqk: jax.Array) -> jax.Array:
    return jacobian.of_hidden(weight_bhqk, params["v_hd"], _shifted(params, query_bqhd), _wide(key_bkhd))


def _linear(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """v . (q + k + b)."""
    query_bhq = jnp.einsum("hd,bqhd->bhq", params["v_hd"], _shifted(params, query_bqhd))
    key_bhk = jnp.einsum("hd,bkhd->bhk", params["v_hd"], _wide(key_bkhd))
    return query_bhq[..., None] + key_bhk[:, :, None]


def _linear_norm(params: Params, query_bqhd: jax.Array, key_bkhd: jax.Array, weight_bhqk: jax.Array) -> jax.Array:
    del params, query_bqhd, key_bkhd
    return jacobian.of_constant(weight_bhqk)


def _unit_sum(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    """Normal with variance 1/d_k, so that the variance of an additive score does not grow with d_k."""
    return _unit_entries(key_init, sizes) / math.sqrt(sizes.d_k)


def _unit_entries(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    """Normal with variance 1."""
    return jax.random.normal(key_init, (sizes.num_heads, sizes.d_k), jnp.float32)


def _zeros(key_init: jax.Array, sizes: Sizes) -> jax.Array:
    del key_init
    return jnp.zeros((sizes.num_heads, sizes.d_k), jnp.float32)


SCORES: dict[str, Score] = {
    # The three of the question.
    "additive": Score(_additive, _additive_norm, {"v_hd": _unit_sum, "b_hd": _zeros}),
    "dot": Score(_dot, _dot_norm),
    "scaled_dot": Score(_dot, _dot_norm, factor=_root),
    # Controls; each separates one thing.
    # Is the unscaled product too large at the start, or in training? Started as scaled_dot, it is so no longer at the
    # start (Raffel et al. 2020, whose query kernels start 1/sqrt(d_k) smaller). The one entry whose point is a scale
    # in an initial value: the same function as scaled_dot before the first update, other steps of Adam after it.
    "dot_t5_init": Score(_dot, _dot_norm, query_init=_root),
    # Does it have to be the root? Divided by d_k, scores are nearly equal at the start.
    "scaled_dot_mup": Score(_dot, _dot_norm, factor=_inverse),
    # Would training find the factor by itself? A factor a head, started where scaled_dot is.
    "learned_temperature": Score(_dot, _dot_norm, {"scale_h": _root_per_head}, _scale_gain),
    # Does the factor have to know how many keys there are (Nakanishi 2025)? Trained, started where scaled_dot is.
    "scaled_dot_log_n": Score(_dot, _dot_norm, {"scale_h": _log_n_per_head}, _log_n_gain),
    # Do q and k grow longer, or do they turn to each other? Lengths are taken away; a factor is trained.
    "cosine": Score(_cosine, _cosine_norm, {"scale_1": _one_gain}, _shared_gain),
    # Is it the product, or that it has no parameters of its own? A matrix between q and k, no scale.
    "general": Score(_general, _general_norm, {"kernel_hde": _square_per_head}),
    # Does additive survive by its form or by its initial values? v of variance 1: scores of variance 0.5 d_k.
    "additive_unnormalised": Score(_additive, _additive_norm, {"v_hd": _unit_entries, "b_hd": _zeros}),
    # What is the tanh for? Without it the query's part is the same for all keys: weights cannot depend on the query.
    "additive_linear": Score(_linear, _linear_norm, {"v_hd": _unit_sum, "b_hd": _zeros}),
}


class Scored(NamedTuple):
    """Scores [b, h, q, k] float32: as compared (raw), and as the softmax gets them; and their ratio, [b, h, q, 1]."""

    raw_bhqk: jax.Array
    effective_bhqk: jax.Array
    gain_bhq1: jax.Array


def scores(
    name: str,
    params: Params,
    query_bqhd: jax.Array,
    key_bkhd: jax.Array,
    mask_bhqk: jax.Array | None = None,
    factor: jax.Array | float | None = None,
) -> Scored:
    """Of an entry of SCORES, with its own factor, or with `factor` in its place.

    `mask_bhqk` tells how many keys each row sees, for entries that depend on it; None: all. It hides nothing here.
    """
    entry = SCORES[name]
    raw_bhqk = entry.similarity(params, query_bqhd, key_bkhd)
    gain = jnp.asarray(entry.factor(query_bqhd.shape[-1]) if factor is None else factor, raw_bhqk.dtype)
    gain_bhq1 = gain.reshape((1, 1, 1, 1))
    if entry.gain is not None:
        gain_bhq1 *= entry.gain(params, _visible(mask_bhqk, key_bkhd.shape[1]))
    return Scored(raw_bhqk, raw_bhqk * gain_bhq1, gain_bhq1)


def _visible(mask_bhqk: jax.Array | None, keys: int) -> jax.Array:
    """Keys that a row sees, float32 [b, h, q, 1] or with axes of 1 where the mask has them."""
    if mask_bhqk is None:
        return jnp.full((1, 1, 1, 1), keys, jnp.float32)
    return jnp.sum(mask_bhqk, axis=-1, keepdims=True, dtype=jnp.float32)


def family(name: str) -> str:
    """The first entry of SCORES that differs in factor and initial values only: the same program for both."""
    entry = SCORES[name]
    return next(
        first
        for first, other in SCORES.items()
        if other.similarity is entry.similarity
        and other.gain is entry.gain
        and other.parameters.keys() == entry.parameters.keys()
    )
