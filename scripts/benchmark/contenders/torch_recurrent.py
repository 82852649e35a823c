"""The project's recurrent encoder-decoder in PyTorch, on torch.nn.LSTM, without dropout."""

import torch
from contenders.torch_model import PAD, Attention
from torch import Tensor, nn


class Recurrent(nn.Module):
    """Ids to logits: LSTM in both directions, learned bridge, LSTM, attention, tanh of both, output layer.

    The decoder attends after all its steps at once, as Luong et al. 2015 may without input feeding; with it
    (sizes["feeding"]) a loop in Python makes a step of torch.nn.LSTMCell and attends, keys and values projected once.
    Sentences of a batch are of one length, so nothing is packed.
    """

    def __init__(self, sizes: dict[str, int], vocabulary: int):
        super().__init__()
        width, layers = sizes["d_model"], sizes["layers"]
        self.embeddings = nn.ModuleList(nn.Embedding(vocabulary, width) for _ in range(2))
        self.encoder = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.feeding = bool(sizes["feeding"])
        self.decoder = (
            nn.LSTMCell(2 * width, width) if self.feeding else nn.LSTM(width, width, layers, batch_first=True)
        )
        self.bridges = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))  # of h, of c
        self.attention = Attention(sizes["heads"], width, sizes["d_k"], sizes["d_v"], d_source=2 * width)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.out = nn.Linear(width, vocabulary, bias=False)

    def forward(self, source_bs: Tensor, input_bt: Tensor) -> Tensor:
        """-> logits [b, t, n]."""
        source_bsw, last = self.encoder(self.embeddings[0](source_bs))
        both = (part.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2) for part in last)  # [layer, b, 2 width]
        first = tuple(torch.tanh(bridge(part)).contiguous() for bridge, part in zip(self.bridges, both, strict=True))
        embedded_btm, mask = self.embeddings[1](input_bt), (source_bs != PAD)[:, None, None, :]
        key_value = self.attention.project_key_value(source_bsw)
        if self.feeding:
            return self.out(self._in_turn(embedded_btm, tuple(part[0] for part in first), key_value, mask))
        state_btm, _ = self.decoder(embedded_btm, first)
        return self.out(self._combined(state_btm, key_value, mask))

    def _combined(self, state_btm: Tensor, key_value: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """h~ of states that attend."""
        context_btm = self.attention.attend(state_btm, key_value, mask)
        return torch.tanh(self.combine(torch.cat([state_btm, context_btm], dim=-1)))

    def _in_turn(self, embedded_btm: Tensor, state: tuple, key_value: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """h~ of all steps, each an input of the next."""
        fed_b1m, out = torch.zeros_like(embedded_btm[:, :1]), []
        for embedded_bm in embedded_btm.unbind(1):
            state = self.decoder(torch.cat([embedded_bm, fed_b1m[:, 0]], dim=-1), state)
            fed_b1m = self._combined(state[0][:, None], key_value, mask)
            out.append(fed_b1m)
        return torch.cat(out, dim=1)
