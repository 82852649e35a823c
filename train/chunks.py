"""The updates of a group of lanes, a chunk of them to a call of a compiled program."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.stages import Compiled

from train.lanes import Lanes
from train.memory import SHAPES
from train.pace import Pace
from train.plan import Cell
from train.step import State
from train.tasks import PAD, Batch, Task, check_ids
from train.watch import Watchdog


class Chunk(NamedTuple):
    """Some updates of all lanes.

    batches: [seeds, longest chunk, b, ...], of which the first `updates` are used.
    shape: widths (s, t). tokens: real target tokens, summed over lanes.
    """

    batches: Batch
    updates: int
    shape: tuple[int, int]
    tokens: int


def next_chunk(task: Task, seeds: Sequence[int], step: int, *, batch_size: int, most: int, longest: int) -> Chunk:
    """The updates after `step` that share one shape.

    Args:
      task: makes the batches of `batch_size` sentences.
      seeds: of the lanes, a seed for each; batches come once for each of them that differs, in their order.
      step: updates made so far.
      most: updates at most. longest: of all chunks, so that one program serves every length.
    """
    shape = task.shape(step)
    count = next((ahead for ahead in range(1, most) if task.shape(step + ahead) != shape), most)
    different = tuple(dict.fromkeys(seeds))
    source, target = (np.full((len(different), longest, batch_size, width), PAD, np.int32) for width in shape)
    for row, seed in enumerate(different):
        for ahead in range(count):
            source[row, ahead], target[row, ahead] = task.batch(seed, step + ahead)
    batches = Batch(source, target)
    check_ids(batches, task)
    tokens = sum(int(np.count_nonzero(target[different.index(seed)] != PAD)) for seed in seeds)
    return Chunk(batches, count, shape, tokens)


class Updates:
    """Makes the updates, chunk after chunk; the batches of the next are made while the devices are busy with one.

    step: updates made so far. pending: the chunk that comes next. pace: how fast it goes.
    """

    def __init__(self, cell: Cell, task: Task, lanes: Lanes, watchdog: Watchdog, step: int = 0):
        self._run, self._task, self._lanes, self._watchdog = cell.run, task, lanes, watchdog
        self._shapes: set[tuple[int, int]] = set()
        self.step, self.pace = step, Pace()
        self.pending = self._next()

    @property
    def compiles(self) -> bool:
        """Whether the pending chunk is the first of its shape."""
        return self.pending.shape not in self._shapes

    def shapes(self) -> list[Batch]:
        """Shapes of the batches of chunks that are still to come, each once, in their order."""
        run, (seeds, longest, rows, _) = self._run, self.pending.batches.source_bs.shape
        widths = dict.fromkeys(self._task.shape(step) for step in range(self.step, min(run.steps, self.step + SHAPES)))

        def numbers(width: int) -> Any:
            return jax.ShapeDtypeStruct((seeds, longest, rows, width), np.int32)

        return [Batch(numbers(source), numbers(target)) for source, target in widths]

    def make(self, state: State, first: Callable[[Compiled], None] = lambda program: None) -> State:
        """The state after the pending chunk, when the devices are done. `state` is donated.

        first: gets each program, once, before it is called. To ask one for its needs may take as long as an update.
        """
        chunk, compiles, started = self.pending, self.compiles, time.monotonic()
        with self._watchdog.watching():
            if compiles:
                first(self._lanes.program(chunk.batches))
                self._shapes.add(chunk.shape)
            state = self._lanes.update(state, chunk.batches, chunk.updates)
            self.step += chunk.updates
            self.pending = self._next()
            jax.block_until_ready(state.step)
        seconds = time.monotonic() - started
        self.pace.took(seconds, chunk.updates, len(self._lanes.lanes), chunk.tokens, compiles=compiles)
        return state

    def _next(self) -> Chunk:
        """As many updates as share one shape, up to the next evaluation or checkpoint, at the cell's pace."""
        run, step = self._run, self.step
        boundary = min(step // every * every + every for every in (run.eval_every, run.checkpoint_every))
        return next_chunk(
            self._task,
            [lane.seed for lane in self._lanes.lanes],
            step,
            batch_size=run.batch_size,
            most=min(boundary, run.steps, step + run.chunk_steps, step + self.pace.chunk) - step,
            longest=min(run.chunk_steps, run.eval_every, run.checkpoint_every, run.steps),
        )
