"""What copy, reverse and sort share: random sequences of symbols, and sentences set apart for evaluation.

A source is `length` symbols, ids 4 .. 4 + task.symbols - 1, then EOS; the length is uniform in [task.min_length,
task.max_length], the symbols are uniform and independent. Every batch is task.max_length + 1 wide: one compiled shape.

Training and evaluation share no sentence (see split.py), except where a length has fewer than `FEWEST_TO_SPLIT`
sequences: setting some of them apart would leave too few on one side, so there both draw freely and `notes` tells how
many evaluation sentences training can draw too. An evaluation set repeats a sentence only where a length has fewer
sentences for the set than the set asks for.
"""

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from train.errors import UserError
from train.schema import LARGEST_INT, TaskSettings
from train.tasks.contract import EOS, FIRST_SYMBOL, PAD, Batch, EvaluationSet
from train.tasks.split import (
    CLASSES,
    EVALUATION_SEED,
    PURPOSE,
    Hash,
    Ids,
    Mask,
    belongs,
    evaluation_set,
    is_reserved,
)
from train.words import counted

FEWEST_TO_SPLIT = 4096  # sequences of one length: about 64 of them for each evaluation set
_PART = 1 << 16  # rows held at a time while a small space is counted through


class SymbolTask(ABC):
    """A task from sequences of symbols to sequences of symbols; a subclass gives the function."""

    files: tuple[str, ...] = ()
    knobs = frozenset({"symbols", "min_length", "max_length", "valid_size", "test_size"})

    def __init__(
        self, settings: TaskSettings, *, batch_size: int, eval_batch_size: int, stored: Path | None = None
    ) -> None:
        del stored  # nothing is left in a workdir that could differ
        symbols, low, high = settings.symbols, settings.min_length, settings.max_length
        if symbols < 1:
            raise UserError(f"task.symbols={symbols}: a sentence needs at least 1 symbol to be made of")
        if symbols > LARGEST_INT - FIRST_SYMBOL:
            raise UserError(f"task.symbols={symbols}: at most {LARGEST_INT - FIRST_SYMBOL} have ids of 32 bits")
        if not 1 <= low <= high:
            raise UserError(f"task.min_length={low}, task.max_length={high}: need 1 <= min_length <= max_length")
        self.source_vocab = self.target_vocab = FIRST_SYMBOL + symbols
        self.max_target = high + 1
        self._symbols, self._low, self._high = symbols, low, high
        self._batch_size, self._eval_batch_size = batch_size, eval_batch_size
        self._size = {"valid": settings.valid_size, "test": settings.test_size}
        self._hash = Hash(high + 1)
        self._position_l = np.arange(high + 1, dtype=np.int32)
        # From this length on there are enough sequences to set some apart; a row of shorter length is free to all.
        lengths = range(1, high + 1)
        self._first_split = next((length for length in lengths if symbols**length >= FEWEST_TO_SPLIT), high + 1)
        self._sentences: dict[str, Ids] = {}
        self._sets: dict[str, EvaluationSet] = {}

    @staticmethod
    @abstractmethod
    def transform(content_bl: Ids) -> Ids:
        """Targets [b, l] of sources [b, l], an array of its own: rows of symbols, then PAD; no EOS on either side."""

    def shape(self, step: int) -> tuple[int, int]:
        """(task.max_length + 1) on both sides, at every step."""
        return self._high + 1, self._high + 1

    def batch(self, seed: int, step: int) -> Batch:
        """Batch of update `step`: new sentences, none of them set apart for evaluation."""
        random = np.random.default_rng((seed, step, PURPOSE["train"]))
        length_b = random.integers(self._low, self._high + 1, size=self._batch_size, dtype=np.int32)
        content_bl = self._draw(random, length_b)
        reserved_b = self._reserved(content_bl, length_b)
        while reserved_b.any():  # one row in 32: the length stays, the symbols are drawn again
            again = np.flatnonzero(reserved_b)
            content_bl[again] = self._draw(random, length_b[again])
            reserved_b[again] = self._reserved(content_bl[again], length_b[again])
        return self._batch(content_bl, length_b)

    def lengths(self) -> Ids:
        """Each length once: they are equally frequent, and the same on both sides."""
        return np.arange(self._low + 1, self._high + 2, dtype=np.int32)

    def evaluation(self, split: str) -> EvaluationSet:
        """The "valid" or "test" set: a function of the task's settings, whatever the size of its batches."""
        if split not in self._sets:
            content_nl = self._evaluation_sentences(split)
            both = self._batch(content_nl.copy(), _lengths(content_nl))
            self._sets[split] = evaluation_set(both.source_bs, both.target_bt, self._eval_batch_size)
        return self._sets[split]

    def digests(self) -> dict[str, str]:
        """Nothing: all sentences are drawn."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """How far the sets overlap, exactly, and how often a set had to repeat itself; nothing where neither occurs."""
        lines = []
        for split, size in self._size.items():
            content_nl = self._evaluation_sentences(split)
            shared = int(np.sum(_lengths(content_nl) < self._first_split))
            if shared:
                last = min(self._first_split - 1, self._high)
                which = f"length {last} has" if last == self._low else f"lengths {self._low} to {last} have"
                lines.append(
                    f"{split}: {shared} of {counted(size, 'sentence')} can also occur in training "
                    f"({which} too few sequences to set some apart)"
                )
            repeats = size - len(np.unique(content_nl, axis=0))
            if repeats:
                lines.append(
                    f"{split}: {counted(repeats, 'repeat')} in {counted(size, 'sentence')} "
                    "(too few sequences of their length)"
                )
        return tuple(lines)

    def write(self, directory: Path) -> None:
        """Leave nothing: symbols are their ids."""
        return

    def measure(self, split: str, tokens_nt: Ids) -> dict[str, float | str | None]:
        """Nothing beyond the accuracies every task has."""
        return {}

    def lines(self, split: str, tokens_nt: Ids) -> list[str] | None:
        """None: symbols are not text."""
        return None

    def _draw(self, random: np.random.Generator, length_b: Ids) -> Ids:
        """Uniform symbols, PAD behind each row's length, with room for EOS."""
        shape = len(length_b), self._high + 1
        content_bl = random.integers(FIRST_SYMBOL, self.source_vocab, size=shape, dtype=np.int32)
        content_bl *= self._position_l < length_b[:, None]
        return content_bl

    def _reserved(self, content_bl: Ids, length_b: Ids) -> Mask:
        """Rows that training may not use."""
        return is_reserved(self._hash(content_bl)) & (length_b >= self._first_split)

    def _batch(self, content_bl: Ids, length_b: Ids) -> Batch:
        """Both sides of sentences [b, l]; the array is taken over."""
        target_bl = self.transform(content_bl)
        rows = np.arange(len(content_bl))
        content_bl[rows, length_b] = EOS
        target_bl[rows, length_b] = EOS
        return Batch(content_bl, target_bl)

    def _evaluation_sentences(self, split: str) -> Ids:
        """Sentences [n, l] of a set in its order, PAD behind each: the same for every size of batch."""
        if split not in self._sentences:
            random = np.random.default_rng((EVALUATION_SEED, PURPOSE[split]))
            length_n = random.integers(self._low, self._high + 1, size=self._size[split], dtype=np.int32)
            content_nl = np.full((len(length_n), self._high + 1), PAD, dtype=np.int32)
            for length in np.unique(length_n).tolist():
                rows = np.flatnonzero(length_n == length)
                content_nl[rows, :length] = self._distinct(random, split, length, len(rows))
            self._sentences[split] = content_nl
        return self._sentences[split]

    def _distinct(self, random: np.random.Generator, split: str, length: int, count: int) -> Ids:
        """`count` sentences [count, length] a set may use, no two the same if there are that many."""
        if self._symbols**length <= max(_PART, 4 * CLASSES * count):  # few: list them all, repeat the list if need be
            parts = self._every_sequence(length)
            if length >= self._first_split:
                parts = [part[belongs(self._hash(part), split)] for part in parts]
            usable = np.concatenate(parts)
            orders = [random.permutation(len(usable)) for _ in range(-(-count // len(usable)))]
            return usable[np.concatenate(orders)[:count]]
        found = np.zeros((0, length), dtype=np.int32)
        while len(found) < count:
            rows = min(CLASSES * (count - len(found)), _PART * CLASSES // length + 1)
            drawn = random.integers(FIRST_SYMBOL, self.source_vocab, size=(rows, length), dtype=np.int32)
            found = np.concatenate([found, drawn[belongs(self._hash(drawn), split)]])
            _, first = np.unique(self._hash(found), return_index=True)
            found = found[np.sort(first)]
        return found[:count]

    def _every_sequence(self, length: int) -> list[Ids]:
        """All sequences [n, length] of one length, in parts: the digits of 0, 1, 2 ... to the base `symbols`."""
        total = self._symbols**length
        place_l = self._symbols ** np.arange(length, dtype=np.int64)
        parts = []
        for start in range(0, total, _PART):
            number_n = np.arange(start, min(start + _PART, total), dtype=np.int64)
            parts.append((number_n[:, None] // place_l % self._symbols + FIRST_SYMBOL).astype(np.int32))
        return parts


def _lengths(content_nl: Ids) -> Ids:
    length_n: Ids = np.sum(content_nl != PAD, axis=1, dtype=np.int32)
    return length_n
