"""Time against the length of a sentence: the recurrent model beside the Transformer.

Copy of exactly so many symbols, 1+1 layers of width 64, one head, d_k 64, the scaled product, an LSTM with an encoder
of two directions. `update`: one training update, everything in it. `decoding`: source encoded, then as many steps from
a cache as the target has tokens, one after another. Milliseconds a sentence, and microseconds a token of the target. A
batch of 32 on one core, which is what a lane has, and on all; a sentence alone on one core and on all.
"""

import os
import sys
from argparse import Namespace

from measurement import Row, ratio, row
from process import Contender, Measured, measure

LENGTHS = (10, 20, 40, 80, 160)
BATCHES = (32, 1)
ARCHITECTURES = ("recurrent", "transformer")
REPEATS = 5
SECONDS = 0.2  # a repeat of either quantity


def contender(arch: str, length: int, batch: int, cores: list[int], seconds: float) -> Contender:
    """A model at one length."""
    knobs = [f"model.name={arch}", f"run.batch_size={batch}"]
    knobs += [f"task.{name}={length}" for name in ("min_length", "max_length")]
    return Contender(arch, "sentences", ({"knobs": knobs, "seconds": seconds, "cores": cores},))


def rows_of(measured: Measured, length: int, batch: int, cores: int) -> list[Row]:
    """Times of a sentence and of a token, and ratios, at one size."""
    sizes = {"length": length, "batch": batch, "cores": cores}
    out = []
    for quantity in ("update", "decoding"):
        of_call = {arch: measured.values(arch, quantity) for arch in measured.rounds}
        for arch, values in of_call.items():
            out.append(row("length", arch, f"{quantity}, a sentence", "ms", [1e3 * x / batch for x in values], sizes))
        for arch, values in of_call.items():
            tokens = batch * (length + 1)
            out.append(row("length", arch, f"{quantity}, a token", "us", [1e6 * x / tokens for x in values], sizes))
        if len(of_call) == len(ARCHITECTURES):
            name = "/".join(ARCHITECTURES)
            out.append(ratio("length", name, quantity, *(of_call[arch] for arch in ARCHITECTURES), sizes))
    return out


def rows(options: Namespace) -> list[Row]:
    """Measure every length; with --quick the shortest, once."""
    every = sorted(os.sched_getaffinity(0))
    places = [(batch, every[:count]) for batch in BATCHES for count in sorted({1, len(every)})]
    seconds, repeats = (SECONDS / 5, 1) if options.quick else (SECONDS, REPEATS)
    out: list[Row] = []
    for length in LENGTHS[: 1 if options.quick else None]:
        for batch, cores in places[: 1 if options.quick else None]:
            print(f"length {length}, batch {batch}, cores {len(cores)}", file=sys.stderr, flush=True)
            both = [contender(arch, length, batch, cores, seconds) for arch in ARCHITECTURES]
            out += rows_of(measure(both, options.repeats or repeats), length, batch, len(cores))
    return out
