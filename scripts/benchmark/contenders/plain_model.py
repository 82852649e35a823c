"""The Transformer of the lab as the Flax documentation would have it: pre-norm, scaled product, no dropout.

Dense layers, layer norms and attention are Flax's own and are differentiated automatically. The tree of parameters has
the names of this project's, so that a test can give both the same values.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.positions import POSITIONS


class Attention(nn.Module):
    """Multi-head attention; `nn.MultiHeadDotProductAttention` cannot have a d_k of its own."""

    num_heads: int
    d_k: int
    d_v: int

    @nn.compact
    def __call__(self, state_bqm: jax.Array, state_bkm: jax.Array, mask_bhqk: jax.Array) -> jax.Array:
        """-> state_bqm."""
        query_bqhd = nn.DenseGeneral((self.num_heads, self.d_k), use_bias=False, name="query")(state_bqm)
        key_bkhd = nn.DenseGeneral((self.num_heads, self.d_k), use_bias=False, name="key")(state_bkm)
        value_bkhv = nn.DenseGeneral((self.num_heads, self.d_v), use_bias=False, name="value")(state_bkm)
        head_bqhv = nn.dot_product_attention(query_bqhd, key_bkhd, value_bkhv, mask=mask_bhqk)
        return nn.DenseGeneral(state_bqm.shape[-1], axis=(-2, -1), use_bias=False, name="out")(head_bqhv)


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2."""

    d_ff: int

    @nn.compact
    def __call__(self, state_btm: jax.Array) -> jax.Array:
        """-> state_btm."""
        return nn.Dense(state_btm.shape[-1], name="outer")(nn.relu(nn.Dense(self.d_ff, name="inner")(state_btm)))


class Normalise(nn.Module):
    """Layer norm, at the place in the tree where this project has it."""

    @nn.compact
    def __call__(self, state_btm: jax.Array) -> jax.Array:
        """-> state_btm."""
        return nn.LayerNorm(use_fast_variance=False, name="normalise")(state_btm)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    sizes: dict[str, int]
    d_ff: int

    @nn.compact
    def __call__(self, state_bsm: jax.Array, mask_bhqk: jax.Array) -> jax.Array:
        """-> state_bsm."""
        inner_bsm = Normalise(name="around_attention")(state_bsm)
        state_bsm = state_bsm + Attention(**self.sizes, name="attention")(inner_bsm, inner_bsm, mask_bhqk)
        inner_bsm = Normalise(name="around_feed_forward")(state_bsm)
        return state_bsm + FeedForward(self.d_ff, name="feed_forward")(inner_bsm)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, feed-forward."""

    sizes: dict[str, int]
    d_ff: int

    @nn.compact
    def __call__(
        self, state_btm: jax.Array, source_bsm: jax.Array, mask_bhqk: jax.Array, source_mask_bhqk: jax.Array
    ) -> jax.Array:
        """-> state_btm."""
        inner_btm = Normalise(name="around_self_attention")(state_btm)
        state_btm = state_btm + Attention(**self.sizes, name="self_attention")(inner_btm, inner_btm, mask_bhqk)
        inner_btm = Normalise(name="around_source_attention")(state_btm)
        update_btm = Attention(**self.sizes, name="source_attention")(inner_btm, source_bsm, source_mask_bhqk)
        state_btm = state_btm + update_btm
        inner_btm = Normalise(name="around_feed_forward")(state_btm)
        return state_btm + FeedForward(self.d_ff, name="feed_forward")(inner_btm)


class PlainTransformer(nn.Module):
    """Source ids [b, s] and the decoder's input ids [b, t] -> logits [b, t, n]."""

    source_vocab: int
    target_vocab: int
    d_model: int
    num_heads: int
    d_k: int
    d_v: int
    d_ff: int
    num_layers: int
    pad: int

    @nn.compact
    def __call__(self, source_bs: jax.Array, input_bt: jax.Array) -> jax.Array:
        """-> logits_btn."""
        sizes = {"num_heads": self.num_heads, "d_k": self.d_k, "d_v": self.d_v}
        source_mask_bhqk = (source_bs != self.pad)[:, None, None]
        state_bsm = self._embed("source_embedding_nm", self.source_vocab, source_bs)
        for layer in range(self.num_layers):
            state_bsm = EncoderLayer(sizes, self.d_ff, name=f"encoder_{layer}")(state_bsm, source_mask_bhqk)
        state_bsm = nn.LayerNorm(use_fast_variance=False, name="encoder_norm")(state_bsm)
        state_btm = self._embed("target_embedding_nm", self.target_vocab, input_bt)
        mask_bhqk = nn.make_causal_mask(input_bt, dtype=bool)
        for layer in range(self.num_layers):
            block = DecoderLayer(sizes, self.d_ff, name=f"decoder_{layer}")
            state_btm = block(state_btm, state_bsm, mask_bhqk, source_mask_bhqk)
        state_btm = nn.LayerNorm(use_fast_variance=False, name="decoder_norm")(state_btm)
        init = nn.initializers.lecun_normal()
        return state_btm @ self.param("output_mn", init, (self.d_model, self.target_vocab))

    def _embed(self, name: str, vocab: int, token_bt: jax.Array) -> jax.Array:
        init = nn.initializers.normal(self.d_model**-0.5)
        row_btm = self.param(name, init, (vocab, self.d_model))[token_bt]
        code_tm = POSITIONS["sinusoidal"](jnp.arange(token_bt.shape[1]), self.d_model)
        return row_btm * self.d_model**0.5 + code_tm[None]
