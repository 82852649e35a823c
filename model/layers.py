"""The layers of the Transformer (Vaswani et al. 2017): sublayers, each inside its residual connection."""

import jax
from flax import linen as nn

from model.attention import Attention, KeyValue
from model.norm import LayerNorm
from model.products import dense_product

NORMS = ("pre", "post")


class Residual(nn.Module):
    """The residual connection around one sublayer: x + f(norm(x)) with norm "pre", norm(x + f(x)) with norm "post"."""

    norm: str
    dropout: float
    dtype: str

    def setup(self) -> None:
        """Normalisation and dropout."""
        self.normalise = LayerNorm(self.dtype)
        self.drop = nn.Dropout(self.dropout)

    def enter(self, state_btm: jax.Array) -> jax.Array:
        """What the sublayer gets."""
        return self.normalise(state_btm) if self.norm == "pre" else state_btm

    def leave(self, state_btm: jax.Array, update_btm: jax.Array, *, deterministic: bool) -> jax.Array:
        """What follows, from the state before the sublayer and the sublayer's result."""
        state_btm = state_btm + self.drop(update_btm, deterministic=deterministic)
        return state_btm if self.norm == "pre" else self.normalise(state_btm)


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2, at each position alone (Vaswani et al. 2017, equation 2)."""

    d_model: int
    d_ff: int
    dtype: str

    @nn.compact
    def __call__(self, state_btm: jax.Array) -> jax.Array:
        """-> state_btm."""
        inner = nn.Dense(self.d_ff, dtype=self.dtype, dot_general=dense_product, name="inner")
        outer = nn.Dense(self.d_model, dtype=self.dtype, dot_general=dense_product, name="outer")
        return outer(nn.relu(inner(state_btm)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each inside its residual connection."""

    attention: Attention
    feed_forward: FeedForward
    norm: str
    dropout: float
    dtype: str

    def setup(self) -> None:
        """One residual connection a sublayer."""
        self.around_attention = Residual(self.norm, self.dropout, self.dtype)
        self.around_feed_forward = Residual(self.norm, self.dropout, self.dtype)

    def __call__(self, state_bsm: jax.Array, mask_bhqk: jax.Array, *, deterministic: bool) -> jax.Array:
        """-> state_bsm."""
        inner_bsm = self.around_attention.enter(state_bsm)
        update_bsm = self.attention(inner_bsm, None, mask_bhqk, deterministic=deterministic)
        state_bsm = self.around_attention.leave(state_bsm, update_bsm, deterministic=deterministic)

        update_bsm = self.feed_forward(self.around_feed_forward.enter(state_bsm))
        return self.around_feed_forward.leave(state_bsm, update_bsm, deterministic=deterministic)


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, feed-forward, each inside its residual connection."""

    self_attention: Attention
    source_attention: Attention
    feed_forward: FeedForward
    norm: str
    dropout: float
    dtype: str

    def setup(self) -> None:
        """One residual connection a sublayer."""
        self.around_self_attention = Residual(self.norm, self.dropout, self.dtype)
        self.around_source_attention = Residual(self.norm, self.dropout, self.dtype)
        self.around_feed_forward = Residual(self.norm, self.dropout, self.dtype)

    def __call__(
        self,
        state_btm: jax.Array,
        mask_bhqk: jax.Array,
        source: KeyValue,
        source_mask_bhqk: jax.Array,
        past: KeyValue | None = None,
        position: jax.Array | int = 0,
        *,
        deterministic: bool,
    ) -> tuple[jax.Array, KeyValue]:
        """-> state_btm, and the keys and values of the self-attention.

        `source`: keys and values of the encoder's states. With `past`, its slots from `position` on are overwritten by
        the keys and values of the states given, and all of its slots that `mask_bhqk` shows are attended to.
        """
        inner_btm = self.around_self_attention.enter(state_btm)
        query_bqhd, target = self.self_attention.project_all(inner_btm)
        if past is not None:
            target = jax.tree.map(
                lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, position, axis=1), past, target
            )
        update_btm = self.self_attention.attend(query_bqhd, target, mask_bhqk, deterministic=deterministic)
        state_btm = self.around_self_attention.leave(state_btm, update_btm, deterministic=deterministic)

        query_bqhd = self.source_attention.project_query(self.around_source_attention.enter(state_btm))
        update_btm = self.source_attention.attend(query_bqhd, source, source_mask_bhqk, deterministic=deterministic)
        state_btm = self.around_source_attention.leave(state_btm, update_btm, deterministic=deterministic)

        update_btm = self.feed_forward(self.around_feed_forward.enter(state_btm))
        return self.around_feed_forward.leave(state_btm, update_btm, deterministic=deterministic), target
