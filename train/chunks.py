"""The updates that one call of a compiled program makes: their batches, for every seed."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.tasks import PAD, Batch, Task, check_ids


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
