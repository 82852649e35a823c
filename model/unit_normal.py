"""Scores and weights of queries and keys that are drawn, not trained: independent entries of mean 0 and variance 1.

The premise under which Vaswani et al. (2017, footnote 4) derive the factor 1/sqrt(d_k). A score that starts the query's
projection smaller (`query_init`) gets such queries.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model.diagnostics import QUANTILES, of_rows
from model.scores import SCORES, Lengths, Sizes, scores

CHUNK = 2**23  # numbers of keys drawn at a time
ROWS = 2**14  # rows drawn at a time, at most
PARAMETERS = 2**22  # numbers of parameters drawn at a time, for a score of many


class Sample(NamedTuple):
    """Rows of one query and some keys each, for one score.

    raw_rk, effective_rk, weight_rk: of each row. numbers: each [r], of `of_rows`, and `jacobian`, the norm of
    d weights / d query.
    """

    raw_rk: np.ndarray
    effective_rk: np.ndarray
    weight_rk: np.ndarray
    numbers: dict[str, np.ndarray]


def _draws(name: str, sizes: Sizes, rows: int) -> int:
    """How often the parameters are drawn for so many rows: for every row, unless that is too many numbers."""
    inits = SCORES[name].parameters.values()
    shapes = jax.eval_shape(lambda key_init: [init(key_init, sizes) for init in inits], jax.random.key(0))
    numbers = sum(math.prod(one.shape) for one in shapes)
    draws = min(rows, max(1, PARAMETERS // max(1, numbers)))
    return next(count for count in range(draws, 0, -1) if rows % count == 0)


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _chunk(key_chunk: jax.Array, names: tuple[str, ...], d_k: int, keys: int, rows: int) -> dict[str, tuple]:
    """All names on the same queries and keys."""
    key_query, key_keys, key_params = jax.random.split(key_chunk, 3)
    query_rd = jax.random.normal(key_query, (rows, d_k))
    key_rkd = jax.random.normal(key_keys, (rows, keys, d_k))
    lengths = Lengths(keys, keys)
    found = {}
    for name in names:
        draws = _draws(name, Sizes(1, d_k, lengths), rows)
        params = {
            part: init(jax.random.fold_in(key_params, index), Sizes(draws, d_k, lengths))
            for index, (part, init) in enumerate(SCORES[name].parameters.items())
        }
        # A draw of the parameters is a head; what shares a draw are examples of it.
        query_bqhd = SCORES[name].query_init(d_k) * query_rd.reshape(-1, 1, draws, d_k)
        key_bkhd = jnp.moveaxis(key_rkd.reshape(-1, draws, keys, d_k), 2, 1)
        raw_bhqk, effective_bhqk, gain_bhq1 = scores(name, params, query_bqhd, key_bkhd)
        weight_bhqk = jax.nn.softmax(effective_bhqk)
        norm_bhq = jnp.abs(gain_bhq1[..., 0]) * SCORES[name].norm(params, query_bqhd, key_bkhd, weight_bhqk)
        numbers = of_rows(effective_bhqk, weight_bhqk, jnp.ones(weight_bhqk.shape, bool)) | {"jacobian": norm_bhq}
        by_row = [x.reshape(rows, keys) for x in (raw_bhqk, effective_bhqk, weight_bhqk)]
        found[name] = (*by_row, {key: value.reshape(rows) for key, value in numbers.items()})
    return found


def sample(names: Sequence[str], d_k: int, *, keys: int, rows: int, seed: int) -> dict[str, Sample]:
    """At least so many rows, of the same draws for all names; parameters start as a model's do."""
    size = max(1, min(rows, ROWS, CHUNK // (keys * d_k)))
    key_rows = jax.random.fold_in(jax.random.key(seed), d_k)
    chunks = [
        jax.device_get(_chunk(jax.random.fold_in(key_rows, index), tuple(names), d_k, keys, size))
        for index in range(-(-rows // size))
    ]
    return {
        name: Sample(*jax.tree.map(lambda *parts: np.concatenate(parts), *(chunk[name] for chunk in chunks)))
        for name in names
    }


def summary(one: Sample) -> dict[str, float]:
    """Of a sample: the variance of its effective scores about 0, means over rows, and QUANTILES of the Jacobian."""
    norm_r = one.numbers["jacobian"]
    means = {name: float(each_r.mean(dtype=np.float64)) for name, each_r in one.numbers.items()}
    return {
        "variance": float(np.mean(np.square(one.effective_rk, dtype=np.float64))),
        **{name: mean for name, mean in means.items() if name != "jacobian"},
        "jacobian_mean": means["jacobian"],
        **{f"jacobian_q{round(100 * q)}": float(np.quantile(norm_r, q)) for q in QUANTILES},
    }
