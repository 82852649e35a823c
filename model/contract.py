"""What all architectures have in common: fields, the bounds of them, embeddings and the output layer.

Contract of an architecture: `__call__` and `encode` + `decode` run whole sequences (teacher forcing); `start` + `step`
decode one token at a time from a cache, and give the same logits; `places` says where its attentions stand. Positions
after the end of a sentence hold `pad`, and change nothing.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.attention import Place
from model.products import project
from model.scores import SCORES, Lengths

DTYPES = ("float32", "bfloat16", "float16")


class EncoderDecoder(nn.Module):
    """Token ids in, logits out. `num_layers` is the depth of the encoder and of the decoder.

    Initial values: embeddings N(0, 1/d_model), multiplied by sqrt(d_model) on use; the output layer LeCun-normal.
    `tie_embeddings` uses one matrix for source, target and output.
    Parameters are float32; `dtype` is that of the computation, but scores, softmax, normalisation statistics and logits
    are float32.
    Raises ValueError, when it is made, for a field outside its range and for tied embeddings with unequal vocabularies.
    Ids have to be in range: a compiled program cannot raise, so an id outside makes all logits of its sentence NaN.
    `lengths`: of the sentences trained on, EOS included; only initial values of some scores depend on them.
    `score_factor`: factor on all scores, an array where a compiled program shall serve several; None: the score's own.
    """

    source_vocab: int
    target_vocab: int
    d_model: int
    num_heads: int
    d_k: int
    d_v: int
    num_layers: int
    score: str
    attention_bias: bool
    dropout: float
    tie_embeddings: bool
    dtype: str
    pad: int
    lengths: Lengths
    score_factor: jax.Array | float | None

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        for field in ("source_vocab", "target_vocab", "d_model", "num_heads", "d_k", "d_v", "num_layers"):
            self._check_size(field)
        self._check_choices({"score": SCORES, "dtype": DTYPES})
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        if self.tie_embeddings and self.source_vocab != self.target_vocab:
            raise ValueError(
                f"tie_embeddings needs equal vocabularies, not source_vocab {self.source_vocab} "
                f"and target_vocab {self.target_vocab}"
            )
        super().__post_init__()

    def _check_size(self, field: str) -> None:
        if getattr(self, field) < 1:
            raise ValueError(f"{field} must be at least 1, not {getattr(self, field)}")

    def _check_choices(self, choices: Mapping[str, Collection[str]]) -> None:
        for field, names in choices.items():
            if getattr(self, field) not in names:
                raise ValueError(f"{field} must be one of {', '.join(sorted(names))}, not {getattr(self, field)!r}")

    @property
    def places(self) -> tuple[Place, ...]:
        """Of every attention: where it stands in the tree of modules, and what attends to what there."""
        raise NotImplementedError

    @property
    def _attention_fields(self) -> dict[str, Any]:
        names = ("d_model", "num_heads", "d_k", "d_v", "score", "lengths", "dropout", "dtype", "score_factor")
        return {name: getattr(self, name) for name in names} | {"bias": self.attention_bias}

    def _make_embeddings(self, embedding_init: nn.initializers.Initializer) -> None:
        """The matrices on both ends, [n, m] and [m, n]."""
        if self.tie_embeddings:
            embedding_nm = self.param("embedding_nm", embedding_init, (self.source_vocab, self.d_model))
            self.source_embedding_nm = self.target_embedding_nm = embedding_nm
            self.output_mn = embedding_nm.T
        else:
            self.source_embedding_nm = self.param(
                "source_embedding_nm", embedding_init, (self.source_vocab, self.d_model)
            )
            self.target_embedding_nm = self.param(
                "target_embedding_nm", embedding_init, (self.target_vocab, self.d_model)
            )
            self.output_mn = self.param("output_mn", nn.initializers.lecun_normal(), (self.d_model, self.target_vocab))

    @property
    def _normal_embeddings(self) -> nn.initializers.Initializer:
        """N(0, 1/d_model)."""
        return nn.initializers.normal(1.0 / math.sqrt(self.d_model))

    def _rows(self, embedding_nm: jax.Array, token_bt: jax.Array) -> jax.Array:
        """[b, t, m] float32, as they are in the matrix; NaN for ids outside the vocabulary."""
        return embedding_nm.at[token_bt].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)

    def _project_out(self, state_btm: jax.Array) -> jax.Array:
        """-> logits_btn float32."""
        return project(state_btm, [self.output_mn.astype(self.dtype)])[0]

    def __call__(self, source_bs: jax.Array, input_bt: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [b, t, n] float32 for the token after each of `input_bt`: BOS and the target shifted right."""
        encoded = self.encode(source_bs, deterministic=deterministic)
        return self.decode(encoded, input_bt, deterministic=deterministic)

    def encode(self, source_bs: jax.Array, *, deterministic: bool) -> Any:
        """What the decoder sees of the source ids [b, s]."""
        raise NotImplementedError

    def decode(self, encoded: Any, input_bt: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [b, t, n] at once."""
        raise NotImplementedError

    def start(self, encoded: Any, max_length: int) -> Any:
        """A cache for at most `max_length` steps, with everything that depends on the source alone."""
        raise NotImplementedError

    def step(self, cache: Any, token_b: jax.Array) -> tuple[jax.Array, Any]:
        """Logits [b, n] for what follows `token_b`, and the cache one token on."""
        raise NotImplementedError
