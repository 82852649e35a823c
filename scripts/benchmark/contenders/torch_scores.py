"""Whole attention in PyTorch: scaled_dot_product_attention, forward and backward."""

import time
from typing import Any

import torch
from serve import Prepared, calls_for, seconds_of
from torch.nn import functional


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat says seconds a call; spec: "batch", "heads", "length", "d_k", "seconds", "cores"."""
    torch.set_num_threads(len(spec["cores"]))
    started = time.perf_counter()
    batch, length = spec["batch"], spec["length"]
    shape = (batch, spec["heads"], length, spec["d_k"])
    inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    cotangent_bhqv = torch.randn(shape)
    mask_bhqk = torch.ones(batch, 1, 1, length, dtype=torch.bool)

    def call() -> None:
        head_bhqv = functional.scaled_dot_product_attention(*inputs, attn_mask=mask_bhqk)
        torch.autograd.grad(head_bhqv, inputs, cotangent_bhqv)

    call()
    compile_seconds = time.perf_counter() - started
    calls = calls_for(spec["seconds"], call)
    return Prepared(lambda: {"attention pytorch": seconds_of(call, calls) / calls}, {"programs": []}, compile_seconds)
