"""Tasks of parallel text for tests, and their batches and outputs read and written."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.schema import TaskSettings
from train.tasks import EOS, PAD, EvaluationSet
from train.tasks.parallel_text import ParallelText


def make(
    config: TaskSettings, *, batch_size: int = 1, eval_batch_size: int = 1, stored: Path | None = None
) -> ParallelText:
    return ParallelText(config, batch_size=batch_size, eval_batch_size=eval_batch_size, stored=stored)


def in_order(found: EvaluationSet) -> tuple[list[list[int]], list[list[int]]]:
    """Source and target ids of a set's sentences in its own order, without padding."""
    rows: dict[int, tuple[list[int], list[int]]] = {}
    places = iter(found.order_n.tolist())
    for batch in found.batches:
        assert batch.source_bs.dtype == batch.target_bt.dtype == np.int32
        for source, target in zip(batch.source_bs, batch.target_bt, strict=True):
            place = next(places)
            if place < 0:
                assert not source.any()
                assert not target.any()
            else:
                assert place not in rows
                rows[place] = [x for x in source.tolist() if x != PAD], [x for x in target.tolist() if x != PAD]
    assert next(places, None) is None
    assert sorted(rows) == list(range(len(rows)))
    return [rows[i][0] for i in sorted(rows)], [rows[i][1] for i in sorted(rows)]


def tokens(task: ParallelText, lines: Sequence[str]) -> np.ndarray:
    """What a model that puts out these lines hands back: ids, EOS, PAD."""
    encoded = [[*task.sides[1].encode(line), EOS] for line in lines]
    width = max(map(len, encoded))
    return np.array([ids + [PAD] * (width - len(ids)) for ids in encoded], dtype=np.int32)
