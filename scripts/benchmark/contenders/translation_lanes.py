"""The lab on parallel text: one or several lanes of a cell, driven as train/loop.py drives them.

A repeat is so many updates of every lane, in chunks of updates that share a shape, each chunk made while the devices
are busy with the one before. Real target tokens are counted, EOS too, padding not, summed over lanes. Programs are
compiled for every shape before the first repeat. Neither evaluation nor checkpoints are in it.

Spec: data (folder), source and target (suffixes), lanes, updates, sizes.
"""

import time
from pathlib import Path
from typing import Any

import jax
from serve import Prepared

from train.cells import make_run
from train.chunks import Chunk, next_chunk
from train.environment import use_compilation_cache
from train.lanes import Lanes
from train.layout import start_backend
from train.memory import least_block
from train.pace import Pace
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
    seeds = ",".join(map(str, range(spec["lanes"])))
    return make_plan(CONFIG, overrides, ["model.score=scaled_dot", f"model.d_k={sizes['d_k']}", f"lanes.seed={seeds}"])


class Training:
    """Lanes in training. `step`: updates made so far."""

    def __init__(self, cell: Cell, task: ParallelText, lanes: Lanes):
        self._cell, self._task, self._lanes = cell, task, lanes
        self._state: State = jax.block_until_ready(lanes.init())
        self._pace, self._watchdog = Pace(), Watchdog(cell.run.patience)
        self.step = 0

    def compile(self) -> int:
        """Make an update of every shape; return how many shapes there are."""
        first = {self._task.shape(step): step for step in reversed(range(self._task.epoch_steps))}
        for step in first.values():
            self._state = jax.block_until_ready(self._lanes.update(self._state, self._chunk(step, step + 1).batches, 1))
        return len(first)

    def run(self, updates: int) -> int:
        """Make so many updates; return the tokens that the lanes took in them."""
        tokens, end = 0, self.step + updates
        pending = self._chunk(self.step, end)
        while self.step < end:
            chunk, started = pending, time.monotonic()
            with self._watchdog.watching():
                self._state = self._lanes.update(self._state, chunk.batches, chunk.updates)
                self.step += chunk.updates
                if self.step < end:
                    pending = self._chunk(self.step, end)  # made while the devices are busy
                jax.block_until_ready(self._state.step)
            self._pace.took(
                time.monotonic() - started, chunk.updates, len(self._lanes.lanes), chunk.tokens, chunk.shape
            )
            tokens += chunk.tokens
        return tokens

    def _chunk(self, step: int, end: int) -> Chunk:
        """The next updates before `end`, as the loop groups them."""
        run, seeds = self._cell.run, [lane.seed for lane in self._lanes.lanes]
        most = min(end, step + run.chunk_steps, step + self._pace.chunk) - step
        return next_chunk(self._task, seeds, step, batch_size=run.batch_size, most=most, longest=run.chunk_steps)


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
