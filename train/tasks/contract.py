"""What the tasks hand to training, evaluation and reports: batches, evaluation sets, and the protocol they fulfil."""

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from train.schema import TaskSettings
from train.text.vocabulary import BOS, EOS, PAD, SPECIAL, UNK

__all__ = ["BOS", "EOS", "FIRST_SYMBOL", "PAD", "UNK", "Batch", "EvaluationSet", "Task", "check_ids"]

FIRST_SYMBOL = len(SPECIAL)


class Batch(NamedTuple):
    """Sentences of one training step or one part of an evaluation set, as int32 ids.

    source_bs: [b, s] symbols, EOS, then PAD.
    target_bt: [b, t] symbols, EOS, then PAD; no BOS, the model's input is shifted right by the caller.
    A padding row is PAD throughout on both sides: it has no token to predict.
    """

    source_bs: np.ndarray
    target_bt: np.ndarray


class EvaluationSet(NamedTuple):
    """A fixed set of sentences, cut into batches of one row count.

    batches: each with exactly `eval_batch_size` rows, the last ones filled up with padding rows.
    order_n: [n] int64: for each row of the concatenated batches, the index of its sentence in the set's own order;
        -1 for a padding row.
    """

    batches: tuple[Batch, ...]
    order_n: np.ndarray


class Task(Protocol):
    """What training, evaluation and reports ask of a task."""

    def __init__(
        self, settings: TaskSettings, *, batch_size: int, eval_batch_size: int, stored: Path | None = None
    ) -> None:
        """Make or read the data; `stored`: a folder in which `write` left `files`, which stand.

        Raises UserError for data that cannot be used.
        """
        ...

    source_vocab: int  # size, special ids included
    target_vocab: int
    max_target: int  # widest target, EOS included: the limit of decoding
    files: tuple[str, ...]  # names of what `write` leaves
    knobs: frozenset[str]  # of TaskSettings, beside the name: what the task reads

    def shape(self, step: int) -> tuple[int, int]:
        """Widths (s, t) of the batch of this step, the same for every seed."""
        ...

    def batch(self, seed: int, step: int) -> Batch:
        """Batch of update `step` (from 0): a function of (seed, step) alone."""
        ...

    def lengths(self) -> np.ndarray:
        """[n] tokens of training sentences of both sides, EOS included: all, or a fixed sample where there is no end.

        In the proportions in which they occur.
        """
        ...

    def evaluation(self, split: str) -> EvaluationSet:
        """The fixed "valid" or "test" set."""
        ...

    def digests(self) -> dict[str, str]:
        """What identifies data that a user may change: a digest by the knob that names it; {} where all is drawn."""
        ...

    def notes(self) -> tuple[str, ...]:
        """Facts to print before training, one line each: lines read and skipped, overlap of the sets, unknown words."""
        ...

    def write(self, directory: Path) -> None:
        """Leave in a cell's folder what is needed to read its ids (vocabularies); symbol tasks leave nothing."""
        ...

    def measure(self, split: str, tokens_nt: np.ndarray) -> dict[str, float | str | None]:
        """Further metrics of decoded output [n, t], in the set's own order, EOS ends a row; {} where there are none."""
        ...

    def lines(self, split: str, tokens_nt: np.ndarray) -> list[str] | None:
        """Predictions as text, one line per sentence in the set's own order; None for tasks without text."""
        ...


def check_ids(batch: Batch, task: Task) -> None:
    """Refuse ids that a vocabulary does not have: a compiled program would take other rows, or NaN, without a word.

    Raises ValueError that names the id and the size: a fault of a task, not of its user.
    """
    for side, ids, size in (
        ("source", batch.source_bs, task.source_vocab),
        ("target", batch.target_bt, task.target_vocab),
    ):
        lowest, highest = int(ids.min()), int(ids.max())
        if lowest < 0 or highest >= size:
            bad = lowest if lowest < 0 else highest
            raise ValueError(f"id {bad} in a {side} batch is outside its vocabulary of {size}")
