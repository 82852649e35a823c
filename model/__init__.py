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

import dataclasses
from typing import Any

from model.contract import EncoderDecoder
from model.positions import POSITIONS
from model.recurrent import Recurrent
from model.scores import SCORES, Lengths, family
from model.transformer import Transformer

ARCHITECTURES: dict[str, type[EncoderDecoder]] = {"recurrent": Recurrent, "transformer": Transformer}

__all__ = ["ARCHITECTURES", "POSITIONS", "SCORES", "EncoderDecoder", "Lengths", "build", "family", "fields_of"]


def fields_of(name: str) -> frozenset[str]:
    """Names of the fields that an architecture of ARCHITECTURES has. Raises ValueError for an unknown one."""
    if name not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {name!r}; choose from {', '.join(sorted(ARCHITECTURES))}")
    return frozenset(field.name for field in dataclasses.fields(ARCHITECTURES[name]))


def build(name: str, **fields: Any) -> EncoderDecoder:
    """A Flax module of an architecture, with those of the fields that it has: others are for other architectures.

    `score_factor` may be left out: None.
    Raises ValueError for an unknown name and for impossible fields.
    """
    fields = {"score_factor": None} | fields
    known = fields_of(name)
    return ARCHITECTURES[name](**{field: fields[field] for field in known & fields.keys()})
