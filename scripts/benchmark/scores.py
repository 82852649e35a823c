"""Forward and backward time, operations and memory of the scores, and whole attention beside other libraries.

`score`: the score alone, with gradients by query, key and parameters. `blocked` is the additive score of
model/scores.py, `plain` the same written in one line, differentiated by JAX. `attention`: scores, padding mask,
softmax, weighted sum of values of width d_k, with gradients by query, key and value (and parameters); `jax_attention`
is jax.nn.dot_product_attention (`jax_unscaled`: with scale 1, beside `dot`), `flax_attention` that of flax.linen,
`keras` AdditiveAttention of Keras on JAX, `pytorch` scaled_dot_product_attention of PyTorch. Batch 8 (4 at the largest
size), one head, float32, on one core, which is what a lane has, and on all. XLA counts the operations of a loop's body
once: those of `blocked` are too few. Every process keeps the memory that programs give back, as training does where
they are large (train/allocator.py): otherwise the system's zeroing of new pages is half of the time at length 512.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from measurement import Row, mean, ratio, row
from process import Contender, Measured, measure

WIDTHS = (16, 64, 256, 512)  # d_k
LENGTHS = (20, 64, 128, 512)
KEPT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}  # of glibc
REPEATS = 9
REPEAT_SECONDS = 0.02  # calls are repeated to last so long at least
SECONDS = 30.0  # at one size and number of cores: about three for each function
FACTS = {"operations": "", "transcendentals": "", "temporary memory": "MB", "compilation": "s"}
RATIOS = {
    "score": (("blocked", "plain"), ("blocked", "scaled_dot"), ("plain", "scaled_dot")),
    "attention": (
        ("scaled_dot", "jax_attention"),
        ("scaled_dot", "flax_attention"),
        ("scaled_dot", "pytorch"),
        ("dot", "jax_unscaled"),
        ("blocked", "keras"),
    ),
}


def contenders(spec: dict[str, Any], bench_python: str) -> list[Contender]:
    """Everything in JAX shares one process."""
    return [
        Contender("jax", "jax_scores", (spec,), environment=KEPT),
        Contender("keras", "keras_additive", (spec,), bench_python, KEPT),
        Contender("pytorch", "torch_scores", (spec,), bench_python, KEPT),
    ]


def times(measured: Measured) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of a call in every round, by (quantity, contender); children say "quantity contender": seconds."""
    return {
        (name.split()[0], name.split()[1]): [1e3 * value for value in measured.values(child, name)]
        for child, rounds in measured.rounds.items()
        for name in (rounds[0][0] if rounds else ())
    }


def rows_of(measured: Measured, sizes: dict[str, int]) -> list[Row]:
    """Times and their ratios at one size."""
    found = times(measured)
    out = [row("scores", name, quantity, "ms", values, sizes) for (quantity, name), values in found.items()]
    for quantity, pairs in RATIOS.items():
        for one, other in pairs:
            over, under = found.get((quantity, one)), found.get((quantity, other))
            if over and under:
                out.append(ratio("scores", f"{one}/{other}", f"time of the {quantity}", over, under, sizes))
    return out


def facts_of(measured: Measured, sizes: dict[str, int]) -> list[Row]:
    """What XLA says of the compiled functions at one size."""
    out = []
    for child in measured.rounds:
        for fact in measured.ready[child][0]["facts"]["programs"]:
            quantity, name = fact["program"].split()
            for kind, unit in FACTS.items():
                if fact.get(kind) is not None:
                    out.append(row("scores", name, f"{kind} of the {quantity}", unit, [fact[kind]], sizes))
    return out


def rows(options: Namespace) -> list[Row]:
    """Measure every size; with --quick the smallest, once."""
    sizes = [(length, d_k) for length in LENGTHS for d_k in WIDTHS][: 1 if options.quick else None]
    repeats = options.repeats or (1 if options.quick else REPEATS)
    every = sorted(os.sched_getaffinity(0))
    places = [every[:count] for count in sorted({1, len(every)})]
    out: list[Row] = []
    for length, d_k in sizes:
        print(f"length {length}, d_k {d_k}", file=sys.stderr, flush=True)
        batch = 4 if (length, d_k) == (LENGTHS[-1], WIDTHS[-1]) else 8
        spec = {"batch": batch, "heads": 1, "length": length, "d_k": d_k, "seconds": REPEAT_SECONDS}
        for cores in places:
            measured = measure(contenders({**spec, "cores": cores}, options.python), repeats, seconds=SECONDS)
            out += rows_of(measured, {"length": length, "d_k": d_k, "cores": len(cores)})
        out += facts_of(measured, {"length": length, "d_k": d_k})
    return out + averages(out)


def averages(rows: Sequence[Row]) -> list[Row]:
    """Geometric means of the ratios over lengths and widths."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for one in rows:
        if one.unit == "times":
            groups.setdefault((one.quantity, one.contender, one.sizes["cores"]), []).append(one)
    return [mean(group, {"cores": group[0].sizes["cores"]}, geometric=True) for group in groups.values()]
