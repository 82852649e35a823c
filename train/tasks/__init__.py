"""The tasks: what is to be learnt, as batches that are a function of (seed, step) alone, and fixed evaluation sets.

A new task is one file beside this one and one line in `TASKS`. What a task has to offer is in `contract.py`.
"""

from train.tasks.contract import BOS, EOS, FIRST_SYMBOL, PAD, UNK, Batch, EvaluationSet, Task, check_ids
from train.tasks.copy import Copy
from train.tasks.parallel_text import ParallelText
from train.tasks.reverse import Reverse
from train.tasks.sort import Sort
from train.tasks.toy_translation import ToyTranslation

__all__ = ["BOS", "EOS", "FIRST_SYMBOL", "PAD", "TASKS", "UNK", "Batch", "EvaluationSet", "Task", "check_ids"]

TASKS: dict[str, type[Task]] = {
    "copy": Copy,
    "parallel_text": ParallelText,
    "reverse": Reverse,
    "sort": Sort,
    "toy_translation": ToyTranslation,
}
