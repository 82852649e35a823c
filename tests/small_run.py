"""A run small enough for any test: copy of short sequences, sizes distinct primes."""

import dataclasses

import numpy as np

import model
from train.plan import Lane
from train.schema import OptimSettings, RunSettings
from train.step import Run
from train.tasks import EOS, PAD, Batch

VOCAB, WIDTH, BATCH = 11, 7, 6

OPTIM = OptimSettings(
    name="adam",
    schedule="constant",
    warmup_steps=5,
    clip=0.0,
    label_smoothing=0.0,
    weight_decay=0.0,
    b1=0.9,
    b2=0.999,
    eps=1e-8,
    accumulate=1,
)
RUN = RunSettings(
    steps=20,
    batch_size=BATCH,
    eval_every=10,
    eval_batch_size=5,
    checkpoint_every=10,
    chunk_steps=8,
    select="loss",
    devices=0,
    patience=600.0,
    memory_gb=0.0,
    diagnose_every=1,
)
MODEL = {
    "score": "scaled_dot",
    "d_model": 13,
    "num_heads": 1,
    "d_k": 5,
    "d_v": 3,
    "d_ff": 17,
    "num_layers": 1,
    "position": "sinusoidal",
    "norm": "pre",
    "dropout": 0.0,
    "tie_embeddings": False,
    "dtype": "float32",
    "attention_bias": False,
    "lengths": model.Lengths(5.0, 7.0),
    "rnn": "gru",
    "bidirectional": True,
    "decoder": "luong",
    "input_feeding": False,
    "bridge": "last",
    "residual": False,
    "initial": "scaled",
}


def make_run(optim: dict | None = None, run: dict | None = None, name: str = "transformer", **fields: object) -> Run:
    """A run with some settings changed."""
    module = model.build(name, source_vocab=VOCAB, target_vocab=VOCAB, pad=PAD, **{**MODEL, **fields})
    return Run(module, dataclasses.replace(OPTIM, **optim or {}), dataclasses.replace(RUN, **run or {}), WIDTH)


def batch(seed: int, step: int, rows: int = BATCH) -> Batch:
    """Copies of 1 to WIDTH - 1 symbols: a function of (seed, step) alone."""
    generator = np.random.default_rng((seed, step))
    source_bs = np.full((rows, WIDTH), PAD, np.int32)
    for row, length in enumerate(generator.integers(1, WIDTH, rows)):
        source_bs[row, :length] = generator.integers(4, VOCAB, length)
        source_bs[row, length] = EOS
    return Batch(source_bs, source_bs.copy())


def batches(seeds: tuple[int, ...], step: int, count: int, chunk: int = RUN.chunk_steps) -> Batch:
    """Of `count` updates for every seed, in arrays that hold `chunk`."""
    source = np.zeros((len(seeds), chunk, BATCH, WIDTH), np.int32)
    for row, seed in enumerate(seeds):
        for ahead in range(count):
            source[row, ahead] = batch(seed, step + ahead).source_bs
    return Batch(source, source.copy())


def lanes(*rates_and_seeds: tuple[float, int]) -> list[Lane]:
    """Numbered from 0."""
    return [Lane(number, lr, seed) for number, (lr, seed) in enumerate(rates_and_seeds)]
