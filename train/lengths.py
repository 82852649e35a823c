"""How well trained lanes do on sentences of different lengths: an evaluation, by length of the source."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train.cells import make_run
from train.log import Row
from train.metrics import METRICS, of_lane
from train.restore import restore
from train.rows import lane_name
from train.step import Evaluation
from train.tasks import PAD, Batch, EvaluationSet


def by_length(fixed: EvaluationSet, width: int) -> dict[tuple[int, int], list[Batch]]:
    """The sentences of an evaluation set by length of the source, EOS not counted: ends of a bin -> batches.

    A bin holds `width` lengths, the first beginning at a multiple of it, plus 1: 1 to 5, 6 to 10; the first and the
    last end where the lengths of the set do. Batches have as many rows as the set's, filled up with padding, and one
    shape, so that one compiled program serves all.
    """
    rows = len(fixed.batches[0].source_bs)
    width_s = max(batch.source_bs.shape[1] for batch in fixed.batches)
    width_t = max(batch.target_bt.shape[1] for batch in fixed.batches)
    source_ns, target_nt = (
        np.concatenate([np.pad(ids, ((0, 0), (0, wide - ids.shape[1])), constant_values=PAD) for ids in side])
        for side, wide in (
            ([batch.source_bs for batch in fixed.batches], width_s),
            ([batch.target_bt for batch in fixed.batches], width_t),
        )
    )
    length_n = np.sum(source_ns != PAD, axis=1) - 1
    bin_n = np.where(length_n < 1, 0, (length_n - 1) // width * width + 1)  # 0: padding rows
    least, most = length_n[length_n > 0].min(), length_n.max()
    found: dict[tuple[int, int], list[Batch]] = {}
    for shortest in sorted(set(bin_n[bin_n > 0].tolist())):
        chosen = np.flatnonzero(bin_n == shortest)
        for start in range(0, len(chosen), rows):
            part = chosen[start : start + rows]
            fill = ((0, rows - len(part)), (0, 0))
            batch = Batch(*(np.pad(ids[part], fill, constant_values=PAD) for ids in (source_ns, target_nt)))
            found.setdefault((max(shortest, int(least)), min(shortest + width - 1, int(most))), []).append(batch)
    return found


def length_rows(workdir: Path, lanes: Sequence[tuple[str, int]], split: str, width: int) -> Iterator[Row]:
    """A row for each lane (cell, number) and bin of lengths, from the parameters that were best on valid.

    A row: the lane, `split`, `shortest` and `longest` length of the bin, `sequences` in it, and METRICS, null where
    nothing was learnt.
    Raises UserError as train.restore does.
    """
    compiled: dict[str, Any] = {}
    for cell, number in lanes:
        trained = restore(workdir, cell, number)
        run = make_run(trained.cell, trained.task)
        evaluate = compiled.setdefault(cell, jax.jit(run.evaluate))
        knobs = run.knobs(trained.lane.lr, trained.lane.seed)
        for (shortest, longest), batches in by_length(trained.task.evaluation(split), width).items():
            total = Evaluation.zero()
            for batch in batches:
                total = total + evaluate(trained.params, np.int32(trained.step), batch, knobs)[0]
            counts = {name: np.asarray(count)[None] for name, count in total.counts().items()}
            # Best at step 0: the lane diverged before any evaluation, and nothing was learnt.
            numbers = of_lane(counts, 0) if trained.step else dict.fromkeys(METRICS)
            yield lane_name(trained.cell, trained.lane) | {
                "split": split,
                "shortest": shortest,
                "longest": longest,
                "sequences": int(counts["sequences"][0]),
                **numbers,
            }
