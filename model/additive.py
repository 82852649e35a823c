"""The additive score in tiles: its hidden layer, of queries x keys x d_k numbers, exists for one tile at a time.

A tile is some examples and heads, or a square of queries and keys of one of them, whichever fills it. The backward pass
makes each tile's hidden layer again; storing it would cost more than its tanh. A hidden layer small enough to stay in
cache until the backward pass is one tile, without any loop, and made once.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Tiling(NamedTuple):
    """float32 numbers of a hidden layer: it is made whole up to `whole`, and otherwise in tiles of about `tile`."""

    whole: int
    tile: int


# A CPU core's second-level cache (1 to 2 MB) holds a tile with its gradient; smaller ones lose more to the loop around
# them. Made whole, the layer waits for the backward pass in the last cache (some MB a core), and its tanh is computed
# once. An accelerator, which keeps no tile near its processor, only has to fit it in memory.
CPU = Tiling(whole=2**20, tile=2**17)
ACCELERATOR = Tiling(whole=2**27, tile=2**27)


@jax.custom_vjp
def _tile(v_id: jax.Array, query_iqd: jax.Array, key_ikd: jax.Array) -> jax.Array:
    """Scores [i, q, k]; i counts pairs of an example and a head."""
    # The barrier keeps tanh out of the loop that sums, which is not vectorised.
    hidden_iqkd = jax.lax.optimization_barrier(_hidden(query_iqd, key_ikd))
    return jnp.sum(hidden_iqkd * v_id[:, None, None], axis=-1)


def _hidden(query_iqd: jax.Array, key_ikd: jax.Array) -> jax.Array:
    return jnp.tanh(query_iqd[:, :, None] + key_ikd[:, None])


def _tile_forward(v_id: jax.Array, query_iqd: jax.Array, key_ikd: jax.Array) -> tuple[jax.Array, tuple]:
    return _tile(v_id, query_iqd, key_ikd), (v_id, query_iqd, key_ikd)


def _tile_backward(saved: tuple, grad_iqk: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients by v, query and key."""
    v_id, query_iqd, key_ikd = saved
    hidden_iqkd = jax.lax.optimization_barrier(_hidden(query_iqd, key_ikd))
    slope_iqkd = jax.lax.optimization_barrier((1.0 - hidden_iqkd * hidden_iqkd) * grad_iqk[..., None])
    (examples, *_, width) = hidden_iqkd.shape
    # Pairs as one axis: an einsum over q and k would turn the hidden layer round first.
    grad_v_i1d = grad_iqk.reshape(examples, 1, -1) @ hidden_iqkd.reshape(examples, -1, width)
    return grad_v_i1d[:, 0], slope_iqkd.sum(axis=2) * v_id[:, None], slope_iqkd.sum(axis=1) * v_id[:, None]


_tile.defvjp(_tile_forward, _tile_backward)


def _part(length: int, most: int) -> int:
    """The size of equal parts of a length, each at most `most`, with the least padding."""
    return -(-length // -(-length // most))


def tile_sizes(examples: int, queries: int, keys: int, width: int, tiling: Tiling) -> tuple[int, int, int]:
    """Examples, queries and keys of a tile."""
    if examples * queries * keys * width <= tiling.whole:
        return examples, queries, keys
    pairs = max(1, tiling.tile // width)
    if queries * keys <= pairs:
        return _part(examples, max(1, pairs // (queries * keys))), queries, keys
    # A square, so that little of queries and keys is read for many pairs; longer where the other side is short.
    side = math.isqrt(pairs)
    query_part = _part(queries, max(side, pairs // keys))
    return 1, query_part, _part(keys, max(1, pairs // query_part))


def _parts(x: jax.Array, axis: int, size: int) -> jax.Array:
    """Split an axis into parts of a size, zeros added to the last; the number of parts becomes the first axis."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % size)
    padded = jnp.pad(x, widths)
    split = padded.reshape(*x.shape[:axis], -1, size, *x.shape[axis + 1 :])
    return jnp.moveaxis(split, axis, 0)


def _over(function: Callable[..., jax.Array], *parts: jax.Array) -> jax.Array:
    """`lax.map` over the first axis; without a loop where there is one part."""
    if len(parts[0]) == 1:
        return function(*(part[0] for part in parts))[None]
    return jax.lax.map(lambda each: function(*each), parts)


def tiled(v_id: jax.Array, query_iqd: jax.Array, key_ikd: jax.Array, tiling: Tiling) -> jax.Array:
    """Scores [i, q, k], tile by tile."""
    (examples, queries, width), keys = query_iqd.shape, key_ikd.shape[1]
    example_part, query_part, key_part = tile_sizes(examples, queries, keys, width, tiling)

    def of_examples(v_id: jax.Array, query_iqd: jax.Array, key_ikd: jax.Array) -> jax.Array:
        queries_piqd = _parts(query_iqd, 1, query_part)

        def of_keys(key_ikd: jax.Array) -> jax.Array:
            return _over(lambda query_iqd: _tile(v_id, query_iqd, key_ikd), queries_piqd)

        return _over(of_keys, _parts(key_ikd, 1, key_part))

    split = (_parts(x, 0, example_part) for x in (v_id, query_iqd, key_ikd))
    # [parts of examples, of keys, of queries, i, q, k]
    score = jnp.transpose(_over(of_examples, *split), (0, 3, 2, 4, 1, 5))
    example_parts, _, query_parts, _, key_parts, _ = score.shape
    score_iqk = score.reshape(example_parts * example_part, query_parts * query_part, key_parts * key_part)
    return score_iqk[:examples, :queries, :keys]


@jax.jit  # without it, a call outside a compiled program would compile its loops anew
def additive_score(v_hd: jax.Array, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """v . tanh(q + k) of each head, [b, h, q, k]; everything float32.

    Args:
      v_hd: of each head.
      query_bqhd, key_bkhd: of any lengths. A bias is added to either before.
    """
    batch, queries, heads, width = query_bqhd.shape
    by_head = [jnp.moveaxis(x, 2, 1).reshape(batch * heads, -1, width) for x in (query_bqhd, key_bkhd)]
    v_id = jnp.broadcast_to(v_hd, (batch, heads, width)).reshape(batch * heads, width)
    score_iqk = jax.lax.platform_dependent(
        v_id, *by_head, cpu=partial(tiled, tiling=CPU), default=partial(tiled, tiling=ACCELERATOR)
    )
    return score_iqk.reshape(batch, heads, queries, -1)
