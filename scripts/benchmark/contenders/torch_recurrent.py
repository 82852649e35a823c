"""The project's recurrent encoder-decoder in PyTorch, on torch.nn.LSTM, without dropout."""

import torch
from contenders.torch_model import PAD, Attention
from torch import Tensor, nn


class Recurrent(nn.Module):
    """Ids to logits: LSTM in both directions, learned bridge, LSTM, attention, tanh of both, output layer.

    The decoder attends after all its steps at once, as Luong et al. 2015 may without input feeding. Sentences of a
    batch are of one length, so nothing is packed.
    """

    def __init__(self, sizes: dict[str, int], vocabulary: int):
        super().__init__()
        width, layers = sizes["d_model"], sizes["layers"]
        self.embeddings = nn.ModuleList(nn.Embedding(vocabulary, width) for _ in range(2))
        self.encoder = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(width, width, layers, batch_first=True)
        self.bridges = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))  # of h, of c
        self.attention = Attention(sizes["heads"], width, sizes["d_k"], sizes["d_v"], d_source=2 * width)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.out = nn.Linear(width, vocabulary, bias=False)

    def forward(self, source_bs: Tensor, input_bt: Tensor) -> Tensor:
        """-> logits [b, t, n]."""
        source_bsw, last = self.encoder(self.embeddings[0](source_bs))
        both = (part.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2) for part in last)  # [layer, b, 2 width]
        first = tuple(torch.tanh(bridge(part)).contiguous() for bridge, part in zip(self.bridges, both, strict=True))
        state_btm, _ = self.decoder(self.embeddings[1](input_bt), first)
        context_btm = self.attention(state_btm, source_bsw, (source_bs != PAD)[:, None, None, :])
        return self.out(torch.tanh(self.combine(torch.cat([state_btm, context_btm], dim=-1))))
