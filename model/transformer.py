"""The encoder-decoder Transformer (Vaswani et al. 2017), with any score, any depth, normalisation before or after.

Contract of an architecture: `__call__` and `encode` + `decode` run whole sequences (teacher forcing); `start` + `step`
decode one token at a time from a cache, and give the same logits; `places` says where its attentions stand.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.attention import Attention, KeyValue, Place, causal_mask, padding_mask
from model.layers import NORMS, DecoderLayer, EncoderLayer, FeedForward
from model.norm import LayerNorm
from model.positions import POSITIONS
from model.products import project
from model.scores import SCORES, Lengths

DTYPES = ("float32", "bfloat16", "float16")


class Encoded(NamedTuple):
    """What the decoder sees of the source: states [b, s, m], and True [b, s] at real tokens."""

    state_bsm: jax.Array
    mask_bs: jax.Array


class Cache(NamedTuple):
    """State of decoding. All leaves start with the batch axis but `position`, a scalar: the tokens taken so far."""

    source: tuple[KeyValue, ...]
    target: tuple[KeyValue, ...]
    mask_bs: jax.Array
    position: jax.Array


class Transformer(nn.Module):
    """Token ids in, logits out. `num_layers` is the depth of the encoder and of the decoder.

    Initial values: embeddings N(0, 1/d_model), multiplied by sqrt(d_model) on use, positions added after; projections
    and dense layers LeCun-normal, biases 0. `tie_embeddings` uses one matrix for source, target and output.
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
    d_ff: int
    num_layers: int
    score: str
    position: str
    norm: str
    dropout: float
    tie_embeddings: bool
    dtype: str
    pad: int
    lengths: Lengths
    score_factor: jax.Array | float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        sizes = ("source_vocab", "target_vocab", "d_model", "num_heads", "d_k", "d_v", "d_ff", "num_layers")
        for field in sizes:
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, not {getattr(self, field)}")
        choices = {
            "score": sorted(SCORES),
            "position": sorted(POSITIONS),
            "norm": sorted(NORMS),
            "dtype": sorted(DTYPES),
        }
        for field, names in choices.items():
            if getattr(self, field) not in names:
                raise ValueError(f"{field} must be one of {', '.join(names)}, not {getattr(self, field)!r}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        if self.tie_embeddings and self.source_vocab != self.target_vocab:
            raise ValueError(
                f"tie_embeddings needs equal vocabularies, not source_vocab {self.source_vocab} "
                f"and target_vocab {self.target_vocab}"
            )
        super().__post_init__()

    @property
    def places(self) -> tuple[Place, ...]:
        """Of every attention: where it stands in the tree of modules, and what attends to what there."""
        layers = range(self.num_layers)
        return (
            *(Place((f"encoder_{i}", "attention"), "encoder_self", i) for i in layers),
            *(Place((f"decoder_{i}", "self_attention"), "decoder_self", i) for i in layers),
            *(Place((f"decoder_{i}", "source_attention"), "cross", i) for i in layers),
        )

    def setup(self) -> None:
        """Embeddings, layers, output projection."""
        attention = {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_k": self.d_k,
            "d_v": self.d_v,
            "score": self.score,
            "lengths": self.lengths,
            "dropout": self.dropout,
            "dtype": self.dtype,
            "score_factor": self.score_factor,
        }
        feed_forward = {"d_model": self.d_model, "d_ff": self.d_ff, "dtype": self.dtype}
        residual = {"norm": self.norm, "dropout": self.dropout, "dtype": self.dtype}
        self.encoder = [
            EncoderLayer(attention=Attention(**attention), feed_forward=FeedForward(**feed_forward), **residual)
            for _ in range(self.num_layers)
        ]
        self.decoder = [
            DecoderLayer(
                self_attention=Attention(**attention),
                source_attention=Attention(**attention),
                feed_forward=FeedForward(**feed_forward),
                **residual,
            )
            for _ in range(self.num_layers)
        ]
        if self.norm == "pre":
            self.encoder_norm = LayerNorm(self.dtype)
            self.decoder_norm = LayerNorm(self.dtype)
        self.drop = nn.Dropout(self.dropout)

        embedding_init = nn.initializers.normal(1.0 / math.sqrt(self.d_model))
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

    def _embed(
        self, embedding_nm: jax.Array, token_bt: jax.Array, position_t: jax.Array, *, deterministic: bool
    ) -> jax.Array:
        """Embedding times sqrt(d_model) plus position, then dropout -> state_btm in the compute dtype."""
        row_btm = embedding_nm.at[token_bt].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        code_tm = POSITIONS[self.position](position_t, self.d_model)
        state_btm = (row_btm * math.sqrt(self.d_model) + code_tm[None]).astype(self.dtype)
        return self.drop(state_btm, deterministic=deterministic)

    def _logits(self, state_btm: jax.Array) -> jax.Array:
        """-> logits_btn float32."""
        if self.norm == "pre":
            state_btm = self.decoder_norm(state_btm)
        return project(state_btm, [self.output_mn.astype(self.dtype)])[0]

    def __call__(self, source_bs: jax.Array, input_bt: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [b, t, n] float32 for the token after each of `input_bt`: BOS and the target shifted right."""
        encoded = self.encode(source_bs, deterministic=deterministic)
        return self.decode(encoded, input_bt, deterministic=deterministic)

    def encode(self, source_bs: jax.Array, *, deterministic: bool) -> Encoded:
        """Source ids [b, s], padded with `pad`, which no state attends to."""
        mask_bs = source_bs != self.pad
        position_s = jnp.arange(source_bs.shape[1])
        state_bsm = self._embed(self.source_embedding_nm, source_bs, position_s, deterministic=deterministic)
        for layer in self.encoder:
            state_bsm = layer(state_bsm, padding_mask(mask_bs), deterministic=deterministic)
        if self.norm == "pre":
            state_bsm = self.encoder_norm(state_bsm)
        return Encoded(state_bsm, mask_bs)

    def decode(self, encoded: Encoded, input_bt: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [b, t, n] at once. Padding of the target comes last: the causal mask hides it from real tokens."""
        length = input_bt.shape[1]
        mask_bhqk, source_mask_bhqk = causal_mask(length), padding_mask(encoded.mask_bs)
        state_btm = self._embed(self.target_embedding_nm, input_bt, jnp.arange(length), deterministic=deterministic)
        for layer in self.decoder:
            source = layer.source_attention.project_key_value(encoded.state_bsm)
            state_btm, _ = layer(state_btm, mask_bhqk, source, source_mask_bhqk, deterministic=deterministic)
        return self._logits(state_btm)

    def start(self, encoded: Encoded, max_length: int) -> Cache:
        """A cache for `max_length` steps. Keys and values of the source are projected here, once."""
        batch = encoded.state_bsm.shape[0]
        source = tuple(layer.source_attention.project_key_value(encoded.state_bsm) for layer in self.decoder)
        target = KeyValue(
            jnp.zeros((batch, max_length, self.num_heads, self.d_k), self.dtype),
            jnp.zeros((batch, max_length, self.num_heads, self.d_v), self.dtype),
        )
        return Cache(source, (target,) * self.num_layers, encoded.mask_bs, jnp.zeros((), jnp.int32))

    def step(self, cache: Cache, token_b: jax.Array) -> tuple[jax.Array, Cache]:
        """Logits [b, n] for what follows `token_b`, and the cache one token on. Past its `max_length`: NaN logits."""
        max_length = cache.target[0].key_bkhd.shape[1]
        mask_bhqk = (jnp.arange(max_length) <= cache.position)[None, None, None]
        source_mask_bhqk = padding_mask(cache.mask_bs)
        state_btm = self._embed(self.target_embedding_nm, token_b[:, None], cache.position[None], deterministic=True)
        targets = []
        for layer, source, past in zip(self.decoder, cache.source, cache.target, strict=True):
            state_btm, target = layer(
                state_btm, mask_bhqk, source, source_mask_bhqk, past, cache.position, deterministic=True
            )
            targets.append(target)
        logits_bn = self._logits(state_btm)[:, 0]
        # A write past the end lands in the last slot without a word, and a compiled program cannot raise.
        logits_bn = jnp.where(cache.position < max_length, logits_bn, jnp.nan)
        return logits_bn, cache._replace(target=tuple(targets), position=cache.position + 1)
