"""The encoder-decoder Transformer (Vaswani et al. 2017), with any score, any depth, normalisation before or after."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.attention import Attention, KeyValue, Place, causal_mask, padding_mask
from model.contract import EncoderDecoder
from model.layers import NORMS, DecoderLayer, EncoderLayer, FeedForward
from model.norm import LayerNorm
from model.positions import POSITIONS


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


class Transformer(EncoderDecoder):
    """Positions are added to embeddings; projections and dense layers start LeCun-normal, biases at 0."""

    d_ff: int
    position: str
    norm: str

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        self._check_size("d_ff")
        self._check_choices({"position": POSITIONS, "norm": NORMS})
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
        feed_forward = {"d_model": self.d_model, "d_ff": self.d_ff, "dtype": self.dtype}
        residual = {"norm": self.norm, "dropout": self.dropout, "dtype": self.dtype}
        self.encoder = [
            EncoderLayer(
                attention=Attention(**self._attention_fields), feed_forward=FeedForward(**feed_forward), **residual
            )
            for _ in range(self.num_layers)
        ]
        self.decoder = [
            DecoderLayer(
                self_attention=Attention(**self._attention_fields),
                source_attention=Attention(**self._attention_fields),
                feed_forward=FeedForward(**feed_forward),
                **residual,
            )
            for _ in range(self.num_layers)
        ]
        if self.norm == "pre":
            self.encoder_norm = LayerNorm(self.dtype)
            self.decoder_norm = LayerNorm(self.dtype)
        self.drop = nn.Dropout(self.dropout)
        self._make_embeddings(self._normal_embeddings)

    def _embed(
        self, embedding_nm: jax.Array, token_bt: jax.Array, position_t: jax.Array, *, deterministic: bool
    ) -> jax.Array:
        """Embedding times sqrt(d_model) plus position, then dropout -> state_btm in the compute dtype."""
        row_btm = self._rows(embedding_nm, token_bt)
        code_tm = POSITIONS[self.position](position_t, self.d_model)
        state_btm = (row_btm * math.sqrt(self.d_model) + code_tm[None]).astype(self.dtype)
        return self.drop(state_btm, deterministic=deterministic)

    def _logits(self, state_btm: jax.Array) -> jax.Array:
        """-> logits_btn float32."""
        if self.norm == "pre":
            state_btm = self.decoder_norm(state_btm)
        return self._project_out(state_btm)

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
