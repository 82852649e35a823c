"""What an attention does, in numbers a head: pure functions of what it compared and of the rows that count.

A row is a query that stands at a real token and sees at least two keys: a row of one key has weight 1 whatever its
score, and says nothing of the score. Moments are over the pairs of such a query and a key it sees; quantiles, means and
shares are over rows, of all sentences together.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from model.attention import Seen

SATURATED = 0.99
QUANTILES = (0.1, 0.5, 0.9)

Numbers = dict[str, jax.Array]  # by name


def _mean(value: jax.Array, counts: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Of the values that count; NaN where none does. `counts` has the shape of `value`."""
    total = jnp.sum(jnp.where(counts, value, 0.0), axis=axes)
    number = jnp.sum(counts, axis=axes, dtype=jnp.float32)
    return jnp.where(number > 0, total / jnp.maximum(number, 1.0), jnp.nan)


def _moments(name: str, score_bhqk: jax.Array, pair_bhqk: jax.Array) -> Numbers:
    """Mean and variance of each head's scores; in two passes, since scores may be far from 0."""
    mean_h = _mean(score_bhqk, pair_bhqk, (0, 2, 3))
    variance_h = _mean((score_bhqk - mean_h[None, :, None, None]) ** 2, pair_bhqk, (0, 2, 3))
    return {f"{name}_mean": mean_h, f"{name}_variance": variance_h}


def entropy(weight: jax.Array) -> jax.Array:
    """-sum p log p over the last axis, in nats; 0 log 0 = 0."""
    return -jnp.sum(weight * jnp.log(jnp.where(weight > 0, weight, 1.0)), axis=-1)


def of_rows(effective_bhqk: jax.Array, weight_bhqk: jax.Array, visible_bhqk: jax.Array) -> Numbers:
    """Of each row [b, h, q] what `of_attention` gives in the mean over rows; rows see at least two keys.

    variance_within: of the scores of the row. share_saturated: 1 where a weight is above SATURATED, else 0.
    """
    count_bhq = jnp.maximum(jnp.sum(visible_bhqk, axis=-1, dtype=jnp.float32), 2.0)
    mean_bhq = jnp.sum(jnp.where(visible_bhqk, effective_bhqk, 0.0), axis=-1) / count_bhq
    square_bhqk = jnp.where(visible_bhqk, (effective_bhqk - mean_bhq[..., None]) ** 2, 0.0)
    most_bhq = jnp.max(weight_bhqk, axis=-1)
    return {
        # Divided by one less than the keys: without bias, however few there are.
        "variance_within": jnp.sum(square_bhqk, axis=-1) / (count_bhq - 1.0),
        "entropy": entropy(weight_bhqk) / jnp.log(count_bhq),
        "max_weight": most_bhq,
        "one_minus_sum_p2": 1.0 - jnp.sum(weight_bhqk**2, axis=-1),
        "share_saturated": (most_bhq > SATURATED).astype(jnp.float32),
    }


def effective_rank(weight_bhqk: jax.Array) -> jax.Array:
    """(sum s^2)^2 / sum s^4 of the singular values s, their participation ratio -> [b, h]; 0 for zeros.

    The exponential of the entropy of Renyi's order 2 of s^2, as Roy & Vetterli (2007) take that of Shannon's of s: both
    are n for n equal values. This one needs no singular values: sum s^4 is the square length of W W^T. Two programs
    that decompose batches of matrices at once can wait for each other for ever on a CPU (LAPACK in jax 0.9.2).
    """
    gram_bhqp = jnp.einsum("bhqk,bhpk->bhqp", weight_bhqk, weight_bhqk)
    square_bh = jnp.sum(weight_bhqk**2, axis=(-2, -1))
    fourth_bh = jnp.sum(gram_bhqp**2, axis=(-2, -1))
    return square_bh**2 / jnp.maximum(fourth_bh, jnp.finfo(jnp.float32).tiny)


def _quantiles(name: str, value_bhq: jax.Array, row_bhq: jax.Array) -> Numbers:
    """Mean and QUANTILES over rows, of each head."""
    value_hr = jnp.moveaxis(jnp.where(row_bhq, value_bhq, jnp.nan), 1, 0).reshape(value_bhq.shape[1], -1)
    quantile_ih = jnp.nanquantile(value_hr, jnp.asarray(QUANTILES), axis=1)
    numbers = {f"{name}_mean": _mean(value_bhq, row_bhq, (0, 2))}
    return numbers | {f"{name}_q{round(100 * q)}": quantile_ih[i] for i, q in enumerate(QUANTILES)}


def of_attention(seen: Seen, real_bq: jax.Array, to_itself: jax.Array | bool) -> Numbers:
    """Each quantity of one attention, [h] float32; NaN where no row counts.

    Args:
      seen: of some sentences.
      real_bq: True at queries of real tokens.
      to_itself: whether queries and keys are the same tokens. The diagonal, of a token with itself, is then told apart:
        it is left out of the moments of the scores, which are joined by its own.

    The quantities:
      raw_mean, raw_variance, effective_mean, effective_variance: of scores as compared, and as the softmax gets them.
      variance_within: of effective scores of a row, the diagonal too, in the mean over rows: all a softmax sees of it.
      raw_diagonal_mean, ...: of the diagonal; NaN without `to_itself`.
      entropy: in the mean over rows, over the log of the number of visible keys: 1 is uniform, 0 one-hot.
      max_weight, one_minus_sum_p2: in the mean over rows. share_saturated: of rows with a weight above SATURATED.
      jacobian_mean, jacobian_q10, jacobian_q50, jacobian_q90: of the norm of d weights / d query of a row.
      query_norm, key_norm: root of the mean square length, of queries of rows and of the keys that any of them sees.
      alignment: root of the mean square cosine of a query and a key, as in moments; 1/sqrt(d_k) for random directions.
      effective_rank: of a sentence's weights, rows that do not count left out; in the mean over sentences.
    """
    weight_bhqk, visible_bhqk = seen.weight_bhqk, seen.visible_bhqk
    *_, queries, keys = weight_bhqk.shape
    count_bhq = jnp.sum(visible_bhqk, axis=-1, dtype=jnp.float32)
    row_bhq = real_bq[:, None] & (count_bhq >= 2)
    pair_bhqk = visible_bhqk & row_bhq[..., None]
    same_bhqk = jnp.broadcast_to(to_itself & jnp.eye(queries, keys, dtype=bool), weight_bhqk.shape)
    apart_bhqk, diagonal_bhqk = pair_bhqk & ~same_bhqk, pair_bhqk & same_bhqk

    query_bqhd, key_bkhd = seen.query_bqhd.astype(jnp.float32), seen.key_bkhd.astype(jnp.float32)
    query_bhq = jnp.moveaxis(jnp.sum(query_bqhd**2, axis=-1), 1, 2)
    key_bhk = jnp.moveaxis(jnp.sum(key_bkhd**2, axis=-1), 1, 2)
    product_bhqk = jnp.einsum("bqhd,bkhd->bhqk", query_bqhd, key_bkhd)
    length_bhqk = jnp.sqrt(query_bhq[..., None] * key_bhk[:, :, None])
    cosine_bhqk = product_bhqk / jnp.maximum(length_bhqk, jnp.finfo(jnp.float32).tiny)

    rows_bhqk = jnp.where(row_bhq[..., None], weight_bhqk, 0.0)
    sentence_bh = jnp.any(row_bhq, axis=-1)

    def over_rows(value_bhq: jax.Array) -> jax.Array:
        return _mean(value_bhq, row_bhq, (0, 2))

    return {
        **_moments("raw", seen.raw_bhqk, apart_bhqk),
        **_moments("effective", seen.effective_bhqk, apart_bhqk),
        **_moments("raw_diagonal", seen.raw_bhqk, diagonal_bhqk),
        **_moments("effective_diagonal", seen.effective_bhqk, diagonal_bhqk),
        **{name: over_rows(each) for name, each in of_rows(seen.effective_bhqk, weight_bhqk, visible_bhqk).items()},
        **_quantiles("jacobian", seen.norm_bhq, row_bhq),
        "query_norm": jnp.sqrt(over_rows(query_bhq)),
        "key_norm": jnp.sqrt(_mean(key_bhk, jnp.any(pair_bhqk, axis=2), (0, 2))),
        "alignment": jnp.sqrt(_mean(cosine_bhqk**2, apart_bhqk, (0, 2, 3))),
        "effective_rank": _mean(effective_rank(rows_bhqk), sentence_bh, (0,)),
    }


def of_attentions(each: Sequence[tuple[Seen, jax.Array, bool]]) -> list[Numbers]:
    """`of_attention` of each; those whose arrays are alike in one loop, so that they are one piece to compile."""
    alike: dict[Any, list[int]] = {}
    for index, arguments in enumerate(each):
        alike.setdefault(tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arguments[:2])), []).append(index)
    found: dict[int, Numbers] = {}
    for indices in alike.values():
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(each[index] for index in indices))
        numbers = jax.lax.map(lambda arguments: of_attention(*arguments), stacked)
        found |= {index: {name: value[i] for name, value in numbers.items()} for i, index in enumerate(indices)}
    return [found[index] for index in range(len(each))]


def of_groups(**trees: Any) -> dict[str, Numbers]:
    """The norm of every array of some trees alike, [] float32: {group: {name of the tree + "_norm": norm}}.

    A group is the module that owns the arrays, as a path: "encoder_0/attention/query". Names: of the trees.
    """
    squares: dict[str, dict[str, jax.Array]] = {}
    for name, tree in trees.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            owner = "/".join(str(part.key) for part in (path[:-1] or path))
            group = squares.setdefault(owner, {})
            group[f"{name}_norm"] = group.get(f"{name}_norm", 0.0) + jnp.sum(jnp.square(leaf.astype(jnp.float32)))
    return {group: {name: jnp.sqrt(square) for name, square in found.items()} for group, found in squares.items()}
