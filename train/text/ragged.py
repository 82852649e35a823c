"""Sentences of different lengths in one flat array: no padding is stored, rows are padded when a batch is made."""

from array import array
from collections.abc import Iterable

import numpy as np

from train.text.vocabulary import EOS, PAD


class Ragged:
    """Sentences as ids, each ended by EOS.

    length_n: [n] int64, ids of each sentence, EOS counted; 0 for one that is not there and stays all padding.
    """

    def __init__(self, sentences: Iterable[list[int] | None]):
        """sentences: the ids of each, without the EOS, which is added here; None for one that is not there."""
        flat, lengths = array("i"), array("q")
        for ids in sentences:
            if ids is not None:
                flat.extend(ids)
                flat.append(EOS)
            lengths.append(0 if ids is None else len(ids) + 1)
        self.length_n = np.array(lengths, dtype=np.int64)
        self._ids = np.array(flat, dtype=np.int32)
        self._start_n = np.cumsum(self.length_n) - self.length_n

    def __len__(self) -> int:
        return len(self.length_n)

    @property
    def ids(self) -> np.ndarray:
        """All ids, sentence after sentence, EOS included."""
        return self._ids

    def rows(self, index_b: np.ndarray, count: int, width: int) -> np.ndarray:
        """int32 [count, width]: the sentences `index_b` (at most `count`, none longer than `width`), PAD elsewhere."""
        row_bw = np.full((count, width), PAD, dtype=np.int32)
        if len(self._ids):
            column_w = np.arange(width)
            # What is read past a sentence's end is the next one's, and is hidden by `where`.
            id_bw = self._ids.take(self._start_n[index_b, None] + column_w, mode="clip")
            row_bw[: len(index_b)] = np.where(column_w < self.length_n[index_b, None], id_bw, PAD)
        return row_bw
