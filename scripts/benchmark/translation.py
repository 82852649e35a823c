"""Training on parallel text: lanes beside JoeyNMT's own training loop, in real target tokens a second.

Both train Transformers of the same sizes on the same sentence pairs, split at spaces, in batches of as many pairs, with
Adam and the same clipping, dropout and label smoothing. Tokens count EOS and no padding, summed over the runs that
train at once. What each does with the pairs is its own: the lab sorts them by length into batches of few shapes,
JoeyNMT draws them in any order. Evaluation, checkpoints, reading and compiling are left out.

A line of the table is a number of runs at once. `lanes`: so many lanes of one process. `joeynmt_threads_N`: a process
with N threads; `joeynmt_processes`: a process a run, each with a core of its own; `joeynmt`: the best of these.
"""

import os
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from measurement import Row, ratio, row
from process import Contender, Measured, measure

from train.errors import UserError
from train.words import counted

REPEATS = 9
UPDATES = 40  # in a repeat
SIZES = {
    "d_model": 192,
    "num_heads": 4,
    "d_k": 48,
    "d_v": 48,
    "d_ff": 512,
    "num_layers": 2,
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "clip": 1.0,
    "batch_size": 64,
    "max_length": 40,
    "min_count": 2,
}
NEEDS = "--data DIR: a folder with train, dev and test, each as two files with a suffix a language: train.en, train.fr"


def suffixes(folder: Path) -> tuple[str, str]:
    """Of source and target, in alphabetical order. Raises UserError where the folder does not hold what is needed."""
    found = sorted(file.suffix[1:] for file in folder.glob("train.*"))
    if len(found) != 2:
        raise UserError(f"{NEEDS}; {folder} has {counted(len(found), 'file')} train.*")
    for split in ("dev", "test"):
        for suffix in found:
            if not (folder / f"{split}.{suffix}").is_file():
                raise UserError(f"{NEEDS}; {folder} has no {split}.{suffix}")
    return found[0], found[1]


def by_runs(text: dict[str, Any], scratch: Path, bench_python: str) -> dict[int, list[Contender]]:
    """All that are measured, by the number of runs at once: one, and one a core."""
    cores = sorted(os.sched_getaffinity(0))
    ours = {
        runs: Contender(f"lanes {runs}", "translation_lanes", ({**text, "lanes": runs},)) for runs in (1, len(cores))
    }

    def joey(name: str, places: list[list[int]]) -> Contender:
        specs = [
            {**text, "cores": place, "seed": seed, "folder": str(scratch / f"{name}-{seed}")}
            for seed, place in enumerate(places)
        ]
        return Contender(name, "joey", tuple(specs), bench_python)

    out = {runs: [one] for runs, one in ours.items()}
    out[1] += [joey(f"joeynmt_threads_{threads}", [cores[:threads]]) for threads in sorted({1, len(cores)})]
    if len(cores) > 1:
        out[len(cores)].append(joey("joeynmt_processes", [[core] for core in cores]))
    return out


def rows_of(measured: Measured, runs: int, names: list[str]) -> list[Row]:
    """Rates of one number of runs at once, the best of JoeyNMT, and the ratio."""
    sizes = {"runs": runs}
    rates = {name.partition(" ")[0]: measured.rates(name) for name in names if name in measured.rounds}
    out = [row("translation", name, "target tokens", "1/s", rate, sizes) for name, rate in rates.items()]
    theirs = max((one for one in out if one.contender != "lanes"), key=lambda one: one.value, default=None)
    if theirs:
        best = rates[theirs.contender]
        out.append(row("translation", "joeynmt", "target tokens", "1/s", best, sizes))
        if "lanes" in rates:
            out.append(ratio("translation", "lanes/joeynmt", "target tokens", rates["lanes"], best, sizes))
    return out


def rows(options: Namespace) -> list[Row]:
    """Measure all in turn; with --quick a quarter of the updates, once. Raises UserError without usable --data."""
    if options.data is None:
        raise UserError(f"the section translation needs {NEEDS}")
    folder: Path = options.data.resolve()
    source, target = suffixes(folder)
    text: dict[str, Any] = {"data": str(folder), "source": source, "target": target, "sizes": SIZES}
    text["updates"] = UPDATES // 4 if options.quick else UPDATES
    print(f"{source} to {target}: {', '.join(f'{name} {value}' for name, value in SIZES.items())}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        contenders = by_runs(text, Path(scratch), options.python)
        measured = measure(
            [one for some in contenders.values() for one in some], options.repeats or (1 if options.quick else REPEATS)
        )
    names = {runs: [one.name for one in some] for runs, some in contenders.items()}
    return [one for runs, some in names.items() for one in rows_of(measured, runs, some)]
