"""The lab on parallel text: one or several lanes of a cell, in updates as train/loop.py makes them.

A repeat is so many updates of every lane, in chunks of updates that share a shape. Real target tokens are counted, EOS
too, padding not, summed over lanes. Programs are compiled for every shape before the first repeat. Neither evaluation
nor checkpoints are in it.

Spec: data (folder), source and target (suffixes), lanes, updates, sizes.
"""

import time
from pathlib import Path
from typing import Any

import jax
from serve import Prepared

from train.cells import make_run
from train.chunks import Updates
from train.environment import use_compilation_cache
from train.lanes import Lanes
from train.layout import start_backend
from train.memory import least_block
from train.plan import Cell, Plan, make_plan
from train.step import State
from train.tasks.parallel_text import ParallelText
from train.watch import Watchdog

CONFIG = Path(__file__).resolve().parents[3] / "configs" / "parallel_text.py"
SECTION = {"max_length": "task", "min_count": "task", "batch_size": "run", "clip": "optim", "label_smoothing": "optim"}


def plan(spec: dict[str, Any]) -> Plan:
    """One cell: the scaled product at one width; a seed for each lane."""
    sizes, suffixes = spec["sizes"], (spec["source"], spec["target"])
    overrides = [f"{SECTION.get(name, 'model')}.{name}={value}" for name, value in sizes.items() if name != "d_k"]
    for knob, split in (("train", "train"), ("valid", "dev"), ("test", "test")):
        files = ",".join(str(Path(spec["data"]) / f"{split}.{suffix}") for suffix in suffixes)
        overrides.append(f"task.{knob}={files}")
    overrides.append(f"run.steps={10**9}")  # more than it will ever make
    seeds = ",".join(map(str, range(spec["lanes"])))
    return make_plan(CONFIG, overrides, ["model.score=scaled_dot", f"model.d_k={sizes['d_k']}", f"lanes.seed={seeds}"])


class Training:
    """Lanes in training."""

    def __init__(self, cell: Cell, task: ParallelText, lanes: Lanes):
        self._parts = (cell, task, lanes, Watchdog(cell.run.patience))
        self._task = task
        self._state: State = jax.block_until_ready(lanes.init())
        self._updates = Updates(*self._parts)

    def compile(self) -> int:
        """Make an update of every shape; return how many shapes there are."""
        first = {self._task.shape(step): step for step in reversed(range(self._task.epoch_steps))}
        for step in first.values():
            self._state = Updates(*self._parts, step=step).make(self._state)
        return len(first)

    def run(self, updates: int) -> int:
        """Make so many updates, and the rest of the chunk that the last is in; return the tokens taken in them."""
        tokens, end = 0, self._updates.step + updates
        while self._updates.step < end:
            tokens += self._updates.pending.tokens
            self._state = self._updates.make(self._state)
        return tokens


def prepare(spec: dict[str, Any]) -> Prepared:
    """Read the text, compile for every shape, make the first updates."""
    started = time.perf_counter()
    whole = plan(spec)
    (cell,) = whole.cells
    task = ParallelText(cell.task, batch_size=cell.run.batch_size, eval_batch_size=cell.run.eval_batch_size)
    run = make_run(cell, task)
    devices = start_backend(0, least_block(whole, {cell.name: run}, {cell.name: task}))
    use_compilation_cache()
    lanes = Lanes(run, whole.lanes, devices)
    training = Training(cell, task, lanes)
    shapes = training.compile()
    training.run(spec["updates"])

    def repeat() -> dict[str, float]:
        begun = time.perf_counter()
        tokens = training.run(spec["updates"])
        return {"seconds": time.perf_counter() - begun, "count": tokens}

    parameters = sum(leaf[0].size for leaf in jax.tree.leaves(lanes.like().params))
    facts = {
        "parameters": parameters,
        "vocabularies": [task.source_vocab, task.target_vocab],
        "shapes": shapes,
        "layout": lanes.layout._asdict(),
    }
    return Prepared(repeat, facts, time.perf_counter() - started)
