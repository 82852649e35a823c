"""Pure mathematics: (parameters, arrays) -> arrays. No files, no config objects, no optimizer, no token text.

The suffix of an array's name is its einsum operand: `score_bhqk = jnp.einsum("bqhd,bkhd->bhqk", query_bqhd, key_bkhd)`.

b  batch                     d  width of query and key per head: d_k
s  source position           v  width of value per head: d_v
t  target position           m  model width: d_model
q  query position            f  feed-forward width: d_ff
k  key position              n  vocabulary
h  head                      r  lane (only where lanes exist)

A *score* is before the softmax, a *weight* after it. A mask is boolean, True = may attend.
"""

from collections.abc import Callable
from typing import Any

from model.positions import POSITIONS
from model.scores import SCORES, Lengths, family
from model.transformer import Transformer

ARCHITECTURES: dict[str, Callable[..., Any]] = {"transformer": Transformer}

__all__ = ["ARCHITECTURES", "POSITIONS", "SCORES", "Lengths", "build", "family"]


def build(name: str, **fields: Any) -> Any:
    """A Flax module of an architecture of ARCHITECTURES, with its fields.

    Raises ValueError for an unknown name and for impossible fields.
    """
    if name not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {name!r}; choose from {', '.join(sorted(ARCHITECTURES))}")
    return ARCHITECTURES[name](**fields)
