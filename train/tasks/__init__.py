"""The tasks: what is to be learnt, as batches that are a function of (seed, step) alone, and fixed evaluation sets.

A new task is one file beside this one and one line in `TASKS`. What a task has to offer is in `contract.py`.
"""

from collections.abc import Callable

from train.tasks.contract import BOS, EOS, FIRST_SYMBOL, PAD, UNK, Batch, EvaluationSet, Task
from train.tasks.copy import Copy
from train.tasks.parallel_text import ParallelText
from train.tasks.reverse import Reverse
from train.tasks.sort import Sort
from train.tasks.toy_translation import ToyTranslation

__all__ = ["BOS", "EOS", "FIRST_SYMBOL", "PAD", "TASKS", "UNK", "Batch", "EvaluationSet", "Task"]

# TASKS[name](settings: TaskSettings, *, batch_size: int, eval_batch_size: int, stored: Path | None = None) -> Task
# `stored`: a folder in which `write` left files at an earlier launch; they stand. Raises UserError on bad data.
TASKS: dict[str, Callable[..., Task]] = {
    "copy": Copy,
    "parallel_text": ParallelText,
    "reverse": Reverse,
    "sort": Sort,
    "toy_translation": ToyTranslation,
}
