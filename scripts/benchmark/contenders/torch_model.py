"""The project's encoder-decoder in PyTorch, pre-norm, without dropout.

Two bodies for one function: torch.nn.Transformer, which wants d_k = d_v = d_model / heads, and a module of the same
parts, of any widths, over torch.nn.functional.scaled_dot_product_attention.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

PAD = 0


def positions(length: int, d_model: int) -> Tensor:
    """Sine and cosine codes [t, m]."""
    angle_ti = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle_ti.sin(), angle_ti.cos()], dim=-1).flatten(1)


class Attention(nn.Module):
    """Multi-head attention with free d_k and d_v; projections have no bias. What is attended to is d_source wide."""

    def __init__(self, heads: int, d_model: int, d_k: int, d_v: int, d_source: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(d_model, heads * d_k, bias=False)
        self.key = nn.Linear(d_source, heads * d_k, bias=False)
        self.value = nn.Linear(d_source, heads * d_v, bias=False)
        self.out = nn.Linear(heads * d_v, d_model, bias=False)

    def _by_head(self, projected_btw: Tensor) -> Tensor:
        return projected_btw.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def project_key_value(self, state_bkm: Tensor) -> tuple[Tensor, Tensor]:
        """-> keys and values, [b, h, k, d] and [b, h, k, v]."""
        return self._by_head(self.key(state_bkm)), self._by_head(self.value(state_bkm))

    def attend(self, state_bqm: Tensor, key_value: tuple[Tensor, Tensor], mask_bhqk: Tensor | None) -> Tensor:
        """-> state_bqm. Without a mask the attention is causal; a mask is True where it may attend."""
        query_bhqd = self._by_head(self.query(state_bqm))
        head_bhqv = functional.scaled_dot_product_attention(
            query_bhqd, *key_value, attn_mask=mask_bhqk, is_causal=mask_bhqk is None
        )
        return self.out(head_bhqv.transpose(1, 2).flatten(-2))

    def forward(self, state_bqm: Tensor, state_bkm: Tensor, mask_bhqk: Tensor | None) -> Tensor:
        """`attend` to the projected keys and values of a state."""
        return self.attend(state_bqm, self.project_key_value(state_bkm), mask_bhqk)


class Layer(nn.Module):
    """Self-attention, with `source` attention to the source, feed-forward; layer norm before each."""

    def __init__(self, sizes: dict[str, int], source: bool):
        super().__init__()
        width = sizes["d_model"]
        attention = (sizes["heads"], width, sizes["d_k"], sizes["d_v"], width)
        self.own, self.norms = Attention(*attention), nn.ModuleList(nn.LayerNorm(width) for _ in range(2 + source))
        self.source = Attention(*attention) if source else None
        self.feed_forward = nn.Sequential(nn.Linear(width, sizes["d_ff"]), nn.ReLU(), nn.Linear(sizes["d_ff"], width))

    def forward(
        self, state: Tensor, mask: Tensor | None, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        """-> state [b, t, m]."""
        inner = self.norms[0](state)
        state = state + self.own(inner, inner, mask)
        if self.source is not None:
            state = state + self.source(self.norms[1](state), source, source_mask)
        return state + self.feed_forward(self.norms[-1](state))


class FreeWidths(nn.Module):
    """Encoder and decoder with free d_k and d_v."""

    def __init__(self, sizes: dict[str, int]):
        super().__init__()
        self.encoder = nn.ModuleList(Layer(sizes, source=False) for _ in range(sizes["layers"]))
        self.decoder = nn.ModuleList(Layer(sizes, source=True) for _ in range(sizes["layers"]))
        self.norms = nn.ModuleList(nn.LayerNorm(sizes["d_model"]) for _ in range(2))

    def forward(self, source: Tensor, target: Tensor, padding_bs: Tensor) -> Tensor:
        """-> state [b, t, m]; `padding_bs` is True at padding of the source."""
        mask = ~padding_bs[:, None, None, :]
        for layer in self.encoder:
            source = layer(source, mask)
        source = self.norms[0](source)
        for layer in self.decoder:
            target = layer(target, None, source, mask)
        return self.norms[1](target)


class Standard(nn.Module):
    """torch.nn.Transformer, without the biases of its attention's projections."""

    def __init__(self, sizes: dict[str, int], length: int):
        super().__init__()
        depth = (sizes["heads"], sizes["layers"], sizes["layers"], sizes["d_ff"])
        self.inner = nn.Transformer(sizes["d_model"], *depth, dropout=0.0, batch_first=True, norm_first=True)
        for part in self.inner.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.in_proj_bias = part.out_proj.bias = None
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, source: Tensor, target: Tensor, padding_bs: Tensor) -> Tensor:
        """-> state [b, t, m]; `padding_bs` is True at padding of the source."""
        hidden = {"src_key_padding_mask": padding_bs, "memory_key_padding_mask": padding_bs}
        return self.inner(source, target, tgt_mask=self.causal, tgt_is_causal=True, **hidden)


class Model(nn.Module):
    """Ids to logits; `standard` chooses torch.nn.Transformer."""

    def __init__(self, sizes: dict[str, int], vocabulary: int, length: int, *, standard: bool):
        super().__init__()
        width = sizes["d_model"]
        self.body = Standard(sizes, length) if standard else FreeWidths(sizes)
        self.embeddings = nn.ModuleList(nn.Embedding(vocabulary, width) for _ in range(2))
        for embedding in self.embeddings:
            nn.init.normal_(embedding.weight, std=width**-0.5)
        self.out = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("code", positions(length, width))
        self.factor = math.sqrt(width)

    def forward(self, source_bs: Tensor, input_bt: Tensor) -> Tensor:
        """-> logits [b, t, n]."""
        source, target = (
            embedding(ids) * self.factor + self.code
            for embedding, ids in zip(self.embeddings, (source_bs, input_bt), strict=True)
        )
        return self.out(self.body(source, target, source_bs == PAD))
