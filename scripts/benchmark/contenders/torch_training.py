"""The same encoder-decoder trained with PyTorch: eager, float32, fused Adam."""

import time
from typing import Any

import numpy as np
import torch
from contenders.torch_model import PAD, Model
from contenders.torch_recurrent import Recurrent
from serve import Prepared, calls_for, seconds_of
from torch import Tensor, nn
from torch.nn import functional

BOS, EOS, FIRST_SYMBOL = 1, 2, 4
BATCHES = 50  # made beforehand, taken in turn


def copy_batch(random: np.random.Generator, batch: int, symbols: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source ids, the decoder's input and its target, [b, length + 1] each, of the copy task."""
    symbol = random.integers(FIRST_SYMBOL, FIRST_SYMBOL + symbols, (batch, length))
    target = np.pad(symbol, ((0, 0), (0, 1)), constant_values=EOS)
    shifted = np.pad(symbol, ((0, 0), (1, 0)), constant_values=BOS)
    return torch.from_numpy(target), torch.from_numpy(shifted), torch.from_numpy(target)


def make_network(spec: dict[str, Any]) -> nn.Module:
    """What spec["network"] names: "transformer", that of torch.nn as "nn_transformer", "recurrent"."""
    vocabulary = FIRST_SYMBOL + spec["symbols"]
    if spec["network"] == "recurrent":
        return Recurrent(spec["sizes"], vocabulary)
    return Model(spec["sizes"], vocabulary, spec["length"] + 1, standard=spec["network"] == "nn_transformer")


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat is as many updates as last about spec["seconds"].

    spec: "cores", a thread on each; "symbols", "length", "batch"; "sizes": d_model, heads, d_k, d_v, d_ff, layers;
    "network": see `make_network`.
    """
    torch.set_num_threads(len(spec["cores"]))
    started = time.perf_counter()
    network = make_network(spec)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    random = np.random.default_rng(0)
    batches = [copy_batch(random, spec["batch"], spec["symbols"], spec["length"]) for _ in range(BATCHES)]

    def update(source_bs: Tensor, input_bt: Tensor, target_bt: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        logits_btn = network(source_bs, input_bt)
        functional.cross_entropy(logits_btn.flatten(0, 1), target_bt.flatten(), ignore_index=PAD).backward()
        optimizer.step()

    update(*batches[0])
    compile_seconds = time.perf_counter() - started

    def some_updates() -> None:
        for batch in batches:
            update(*batch)

    calls = calls_for(spec["seconds"], some_updates)

    def repeat() -> dict[str, float]:
        return {"seconds": seconds_of(some_updates, calls), "count": calls * BATCHES}

    facts = {"parameters": sum(parameter.numel() for parameter in network.parameters())}
    return Prepared(repeat, facts, compile_seconds)
