"""How far a query moves its weights: the norm of d weights / d query of every row, in closed form.

With S = d score / d query of a row, of keys x d_k numbers, the softmax gives d weights / d query = (diag(p) - p p^T) S.
Its Frobenius norm is that of the rows p_k (S_k - mean S), the mean being weighted by p. Functions take queries and keys
as the score sees them, and the weights p after the mask; a hidden key has weight 0 and counts nowhere. Factors that a
row's scores have in common are left to the caller: the norm is proportional to them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def _norm(weight_qk: jax.Array, slope_qkd: jax.Array) -> jax.Array:
    """sqrt(sum_k p_k^2 |S_k - mean S|^2) -> [q].

    Measured from the slope of the row's heaviest key: where that key has nearly all the weight, S_k - mean S is nearly
    0 for it, and the difference of two large numbers would leave rounding alone. Norms of 1e-12 are to be told.
    """
    heaviest_q = jnp.argmax(weight_qk, axis=-1)
    shifted_qkd = slope_qkd - jnp.take_along_axis(slope_qkd, heaviest_q[:, None, None], axis=1)
    mean_qd = jnp.einsum("qk,qkd->qd", weight_qk, shifted_qkd, precision="highest")
    square_qk = jnp.sum((shifted_qkd - mean_qd[:, None]) ** 2, axis=-1)
    return jnp.sqrt(jnp.sum(weight_qk**2 * square_qk, axis=-1))


def _by_head(slope: Callable[..., jax.Array], weight_bhqk: jax.Array, *sides_bthd: jax.Array) -> jax.Array:
    """-> norm_bhq. `slope`: from the sides [t, d] of an example and head to its slope_qkd, which exists by itself."""
    batch, heads, queries, keys = weight_bhqk.shape
    sides_itd = [jnp.moveaxis(side, 2, 1).reshape(batch * heads, *side.shape[1:2], -1) for side in sides_bthd]
    weight_iqk = weight_bhqk.reshape(batch * heads, queries, keys)
    norm_iq = jax.lax.map(lambda each: _norm(each[0], slope(*each[1:])), (weight_iqk, *sides_itd))
    return norm_iq.reshape(batch, heads, queries)


def of_inner(weight_bhqk: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """Score q . k: S_k is the key. -> norm_bhq."""
    queries = weight_bhqk.shape[2]
    return _by_head(lambda key_kd: jnp.broadcast_to(key_kd, (queries, *key_kd.shape)), weight_bhqk, key_bkhd)


def of_cosine(weight_bhqk: jax.Array, length_bqh: jax.Array, unit_bqhd: jax.Array, unit_bkhd: jax.Array) -> jax.Array:
    """Score cos(q, k): S_k = (k - cos(q, k) q) / |q| for unit q and k, the part of k that is across q. -> norm_bhq.

    length_bqh: |q|. unit_bqhd, unit_bkhd: queries and keys of length 1.
    """

    def slope(unit_qd: jax.Array, unit_kd: jax.Array) -> jax.Array:
        cosine_qk = unit_qd @ unit_kd.T
        return unit_kd[None] - cosine_qk[..., None] * unit_qd[:, None]

    return _by_head(slope, weight_bhqk, unit_bqhd, unit_bkhd) / jnp.swapaxes(length_bqh, 1, 2)


def of_hidden(weight_bhqk: jax.Array, v_hd: jax.Array, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """Score v . tanh(q + k): S_k = v (1 - tanh^2(q + k)). -> norm_bhq."""

    def slope(v_1d: jax.Array, query_qd: jax.Array, key_kd: jax.Array) -> jax.Array:
        return v_1d[None] * (1.0 - jnp.tanh(query_qd[:, None] + key_kd[None]) ** 2)

    v_b1hd = jnp.broadcast_to(v_hd, (len(weight_bhqk), 1, *v_hd.shape))
    return _by_head(slope, weight_bhqk, v_b1hd, query_bqhd, key_bkhd)


def of_constant(weight_bhqk: jax.Array) -> jax.Array:
    """A score whose differences between keys do not depend on the query: 0. -> norm_bhq."""
    return jnp.zeros_like(weight_bhqk[..., 0])
