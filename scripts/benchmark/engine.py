"""Training updates a second: this project's lanes beside a plain JAX loop and PyTorch.

Updates are those of one run, summed over the runs that train at once. The copy task (20 of 32 symbols, batch 32), 1+1
layers, one head, the scaled product, d_v 64, d_ff twice d_model, float32. `lanes`: this project, 2 rates x a seed a
core. `plain_jax`: a loop over one compiled step of the same model in plain Flax, one run. `pytorch_threads`: eager
PyTorch with fused Adam, one run on all cores; `pytorch_processes`: a run a core at once, a thread each;
`pytorch_nn_...`: the same with torch.nn.Transformer, where it can have the widths; `pytorch`: the best of these.
`matrix`: the machine's rate on products of square matrices. The share of it is updates a second x XLA's count of
operations of an update / that rate.

--arch=recurrent: the recurrent model instead (LSTM, an encoder of two directions, attention after each step), beside
the same on torch.nn.LSTM, in target tokens a second; `feeding` 1 is with input feeding (model.input_feeding), where
PyTorch's decoder is a loop over torch.nn.LSTMCell. There is no plain JAX loop and no share, since XLA counts what is in
a loop over time once.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from measurement import Row, mean, ratio, row
from process import Contender, Measured, measure

from train.errors import UserError

_RECURRENT = ((32, 64), (64, 64), (64, 256), (128, 64), (256, 64))
SIZES: dict[str, list[dict[str, int]]] = {
    "transformer": [{"d_model": m, "d_k": k} for m, k in ((64, 16), (64, 64), (64, 256), (128, 64), (256, 64))],
    "recurrent": [{"d_model": m, "d_k": k, "feeding": feeding} for feeding in (0, 1) for m, k in _RECURRENT],
}
REPEATS = 9
SECONDS = 1.0  # a repeat; of --quick a fifth
BATCH, SYMBOLS, LENGTH, D_V = 32, 32, 20, 64


def pytorch(spec: dict[str, Any], cores: Sequence[int], network: str, python: str) -> list[Contender]:
    """One run on all cores, and a run a core at once; `network`: see contenders/torch_training.py."""
    name = "pytorch_nn" if network == "nn_transformer" else "pytorch"
    spec = {**spec, "network": network}
    together = {**spec, "cores": cores}
    alone = tuple({**spec, "cores": [core]} for core in cores)
    return [
        Contender(f"{name}_threads", "torch_training", (together,), python),
        Contender(f"{name}_processes", "torch_training", alone, python),
    ]


def contenders(arch: str, size: dict[str, int], seconds: float, bench_python: str) -> list[Contender]:
    """All that are measured at one size, of SIZES."""
    cores = sorted(os.sched_getaffinity(0))
    d_model, d_k = size["d_model"], size["d_k"]
    sizes = {"d_model": d_model, "d_k": d_k, "d_v": D_V, "d_ff": 2 * d_model}
    task = {"symbols": SYMBOLS, "min_length": LENGTH, "max_length": LENGTH}
    knobs = [f"model.{name}={value}" for name, value in sizes.items()]
    knobs += [f"task.{name}={value}" for name, value in task.items()]
    knobs += [f"model.name={arch}", f"run.batch_size={BATCH}", "lanes.lr=1e-3,3e-3"]
    knobs.append(f"model.input_feeding={bool(size.get('feeding'))}")
    knobs.append("lanes.seed=" + ",".join(map(str, range(len(cores)))))
    ours: dict[str, Any] = {"knobs": knobs, "devices": 0, "seconds": seconds}
    torch: dict[str, Any] = {"symbols": SYMBOLS, "length": LENGTH, "batch": BATCH, "seconds": seconds}
    torch["sizes"] = {**sizes, **size, "heads": 1, "layers": 1}
    lanes = Contender("lanes", "lanes", (ours,))
    if arch == "recurrent":
        return [lanes, *pytorch(torch, cores, arch, bench_python)]
    return [
        lanes,
        Contender("plain_jax", "plain_jax", (ours,)),
        *pytorch(torch, cores, arch, bench_python),
        *(pytorch(torch, cores, "nn_transformer", bench_python) if d_k == D_V == d_model else ()),
        Contender("matrix", "matrix", ({"seconds": seconds},)),
    ]


def rows_of(measured: Measured, arch: str, sizes: dict[str, int]) -> list[Row]:
    """Rates, compile times, ratios and the share at one size, of SIZES."""
    rates = {name: measured.rates(name) for name in measured.rounds}
    machine = rates.pop("matrix", None)
    counted = "updates"
    if arch == "recurrent":
        counted, tokens = "target tokens", BATCH * (LENGTH + 1)
        rates = {name: [tokens * rate for rate in of_rounds] for name, of_rounds in rates.items()}
    rows = [row("engine", name, counted, "1/s", rate, sizes) for name, rate in rates.items()]
    best = max((one for one in rows if one.contender.startswith("pytorch")), key=lambda one: one.value, default=None)
    if best:
        rates["pytorch"] = rates[best.contender]
        rows.append(row("engine", "pytorch", counted, "1/s", rates["pytorch"], sizes))
    ours = rates.get("lanes")
    if ours:
        for other in ("plain_jax", "pytorch"):
            if other in rates:
                rows.append(ratio("engine", f"lanes/{other}", counted, ours, rates[other], sizes))
        if machine:
            flops = measured.ready["lanes"][0]["facts"]["flops"]
            rows.append(row("engine", "lanes", "operations of an update", "", [flops], sizes))
            share = [rate * flops / most for rate, most in zip(ours, machine, strict=True)]
            rows.append(row("engine", "lanes", "share of the matrix rate", "", share, sizes))
    if machine:
        rows.append(row("engine", "matrix", "operations", "1/s", machine, sizes))
    for name in ("lanes", "plain_jax"):
        if name in rates:
            seconds = measured.ready[name][0]["compile_seconds"]
            rows.append(row("engine", name, "initial values and compilation", "s", [seconds], sizes))
    return rows


def averages(rows: list[Row]) -> list[Row]:
    """Geometric means of the ratios, with and without input feeding, and arithmetic means of the shares."""
    groups: dict[tuple[str, Any], list[Row]] = {}
    for one in rows:
        if one.unit == "times":
            groups.setdefault((one.contender, one.sizes.get("feeding")), []).append(one)
    means = [
        mean(group, {} if feeding is None else {"feeding": feeding}, geometric=True)
        for (_, feeding), group in groups.items()
    ]
    shares = [one for one in rows if one.quantity.startswith("share")]
    return means + ([mean(shares)] if shares else [])


def rows(options: Namespace) -> list[Row]:
    """Measure every size; with --quick the first, once."""
    out: list[Row] = []
    arch = options.arch or "transformer"
    if arch not in SIZES:
        raise UserError(f"--arch={arch}: must be one of {', '.join(SIZES)}")
    for size in SIZES[arch][: 1 if options.quick else None]:
        print(", ".join(f"{name} {value}" for name, value in size.items()), file=sys.stderr, flush=True)
        seconds, repeats = (SECONDS / 5, 1) if options.quick else (SECONDS, REPEATS)
        measured = measure(contenders(arch, size, seconds, options.python), options.repeats or repeats)
        out += rows_of(measured, arch, size)
    return out + averages(out)
