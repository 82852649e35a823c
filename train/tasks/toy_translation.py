"""Toy translation: English-like sentences into a Japanese-like language, by rule.

    source   the cat that eats my fish does not see a red book today <eos>
    target   kyou watashi no sakana o taberu neko wa akai hon o mi masen <eos>

The last source word comes first, the relative clause before its noun, the verb last; the articles are gone; and only
the very last word, masu or masen, says whether the sentence is affirmed or denied, as in Japanese. toy_grammar.py has
the grammar and the rules.

task.min_length and task.max_length bound the number of source words, EOS not counted. Lengths are drawn uniformly from
those the grammar has, then a kind of sentence (verb, negation, relative clause or none) uniformly from those with that
length, then its shape, then its words. Training and evaluation share no sentence (see split.py), and no evaluation set
holds a sentence twice; lengths with few sentences are therefore rarer in evaluation sets than in training.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from train.errors import UserError
from train.schema import TaskSettings
from train.tasks.contract import EOS, PAD, Batch, EvaluationSet
from train.tasks.split import (
    CLASSES,
    EVALUATION_SEED,
    PURPOSE,
    Hash,
    Ids,
    belongs,
    evaluation_set,
    is_reserved,
)
from train.tasks.toy_grammar import SLOTS, grammar
from train.words import counted

_PART = 4096  # sentences drawn at a time in search of evaluation sentences
_AMPLE = 4  # an evaluation set may ask for one in so many of the sentences set apart for it


class ToyTranslation:
    """Translate a sentence of a small grammar; the target is a function of the source words."""

    knobs = frozenset({"min_length", "max_length", "valid_size", "test_size"})
    files: tuple[str, ...] = ("source.vocab", "target.vocab")

    def __init__(
        self, settings: TaskSettings, *, batch_size: int, eval_batch_size: int, stored: Path | None = None
    ) -> None:
        del stored  # its words are fixed
        g = self._grammar = grammar()
        low, high = settings.min_length, settings.max_length
        kept_k = np.flatnonzero((low <= g.length_k) & (g.length_k <= high))
        if not len(kept_k):
            raise UserError(
                f"task.min_length={low}, task.max_length={high}: the sentences of toy_translation have "
                f"{np.min(g.length_k)} to {counted(int(np.max(g.length_k)), 'word')}"
            )
        self._size = {"valid": settings.valid_size, "test": settings.test_size}
        sentences = sum(g.sentences_k[kept_k].tolist())
        for split, size in self._size.items():
            if sentences < _AMPLE * CLASSES * size:
                raise UserError(
                    f"task.{split}_size={size}: toy_translation has {counted(sentences, 'sentence')} of {low} to "
                    f"{counted(high, 'word')}, enough for {sentences // (_AMPLE * CLASSES)} to be set apart; "
                    "widen the lengths or ask for less"
                )
        self.source_vocab, self.target_vocab = len(g.source), len(g.target)
        self.max_target = int(np.max(g.width_k[kept_k])) + 1
        self._source_width = int(np.max(g.length_k[kept_k])) + 1
        self._longest_asked = high
        self._category_ks = g.category_ks[kept_k]
        self._up_to_k = _cumulative(g.length_k[kept_k], g.group_k[kept_k])
        self._hash = Hash(self._source_width)
        self._batch_size, self._eval_batch_size = batch_size, eval_batch_size
        self._sentences: dict[str, Batch] = {}
        self._sets: dict[str, EvaluationSet] = {}

    def shape(self, step: int) -> tuple[int, int]:
        """Widths of the longest sentences within the bounds, EOS included, at every step."""
        return self._source_width, self.max_target

    def batch(self, seed: int, step: int) -> Batch:
        """Batch of update `step`: new sentences, none of them set apart for evaluation."""
        random = np.random.default_rng((seed, step, PURPOSE["train"]))
        rows = self._batch_size
        while True:  # one sentence in 32 is set apart: the spare ones are enough but for once in a million batches
            slots_bs = self._draw(random, rows + rows // 8 + 8)
            source_bs, length_b = self._source(slots_bs)
            free = np.flatnonzero(~is_reserved(self._hash(source_bs)))[:rows]
            if len(free) == rows:
                return self._both(slots_bs[free], source_bs[free], length_b[free])

    def lengths(self) -> Ids:
        """Of a fixed sample."""
        slots_bs = self._draw(np.random.default_rng((0, 0, PURPOSE["train"])), _PART)
        both = self._both(slots_bs, *self._source(slots_bs))
        return np.concatenate([np.count_nonzero(side != PAD, axis=1) for side in both])

    def evaluation(self, split: str) -> EvaluationSet:
        """The "valid" or "test" set: a function of the task's settings, whatever the size of its batches."""
        if split not in self._sets:
            self._sets[split] = evaluation_set(*self._evaluation_sentences(split), self._eval_batch_size)
        return self._sets[split]

    def digests(self) -> dict[str, str]:
        """Nothing: all sentences are drawn."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """The share of denied sentences, which `negation_accuracy` is to be held against; a bound out of reach."""
        lines = []
        for split, size in self._size.items():
            denied = np.any(self._evaluation_sentences(split).target_bt == self._grammar.masen, axis=1)
            lines.append(f"{split}: masen ends {np.sum(denied)} of {counted(size, 'sentence')}")
        if self._longest_asked >= self._source_width:
            longest = counted(self._source_width - 1, "word")
            lines.append(f"task.max_length={self._longest_asked}: the longest sentence has {longest}")
        return tuple(lines)

    def write(self, directory: Path) -> None:
        """Write source.vocab and target.vocab: one token a line, the line's number from 0 is the id."""
        for name, vocabulary in zip(self.files, (self._grammar.source, self._grammar.target), strict=True):
            vocabulary.write(directory / name)

    def measure(self, split: str, tokens_nt: Ids) -> dict[str, float | str | None]:
        """negation_accuracy: share of sentences whose last word, masu or masen, is the right one."""
        expected = _last_words(self._evaluation_sentences(split).target_bt)
        if len(tokens_nt) != len(expected):
            raise ValueError(f"{len(tokens_nt)} rows of output for {counted(len(expected), 'sentence')} of {split}")
        return {"negation_accuracy": float(np.mean(_last_words(tokens_nt) == expected))}

    def lines(self, split: str, tokens_nt: Ids) -> list[str] | None:
        """Target words, joined by spaces."""
        return [" ".join(self._grammar.target.decode(row)) for row in tokens_nt]

    def _draw(self, random: np.random.Generator, rows: int) -> Ids:
        """Sentences as words in slots [b, SLOTS], PAD in empty ones."""
        uniform_bs = random.random((rows, SLOTS + 1))
        shape_b = np.searchsorted(self._up_to_k, uniform_bs[:, SLOTS], side="right")
        category_bs = self._category_ks[shape_b]
        words_bs = (uniform_bs[:, :SLOTS] * self._grammar.count_c[category_bs]).astype(np.int32)
        words_bs += self._grammar.first_c[category_bs]
        return words_bs

    def _source(self, slots_bs: Ids) -> tuple[Ids, Ids]:
        """Source sentences without EOS, and their lengths."""
        g = self._grammar
        source_bs, length_b = _compact(slots_bs, self._source_width)
        before_vowel = (source_bs[:, :-1] == g.a) & g.begins_with_vowel_n[source_bs[:, 1:]]
        source_bs[:, :-1][before_vowel] = g.an
        return source_bs, length_b

    def _both(self, slots_bs: Ids, source_bs: Ids, length_b: Ids) -> Batch:
        """Source and target, with EOS."""
        g = self._grammar
        table = np.arange(len(g.column_t))
        target_bt, target_length_b = _compact(g.table_tn[table, slots_bs[:, g.column_t]], self.max_target)
        rows = np.arange(len(source_bs))
        source_bs[rows, length_b] = EOS
        target_bt[rows, target_length_b] = EOS
        return Batch(source_bs, target_bt)

    def _evaluation_sentences(self, split: str) -> Batch:
        """All sentences of a set in its order: the same for every size of batch."""
        if split not in self._sentences:
            random = np.random.default_rng((EVALUATION_SEED, PURPOSE[split]))
            size = self._size[split]
            found = np.zeros((0, SLOTS), dtype=np.int32)
            while len(found) < size:
                drawn = self._draw(random, _PART)
                drawn = drawn[belongs(self._hash(self._source(drawn)[0]), split)]
                found = np.concatenate([found, drawn])
                _, first = np.unique(self._hash(self._source(found)[0]), return_index=True)
                found = found[np.sort(first)]
            found = found[:size]
            self._sentences[split] = self._both(found, *self._source(found))
        return self._sentences[split]


def _cumulative(length_k: npt.NDArray[np.int64], group_k: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Upper ends [k] of the shapes' shares of [0, 1): even between lengths, groups of a length, shapes of a group."""
    pair, pair_k, shapes_p = np.unique(np.stack([length_k, group_k]), axis=1, return_inverse=True, return_counts=True)
    _, length_p, groups_l = np.unique(pair[0], return_inverse=True, return_counts=True)
    weight_p = 1.0 / (shapes_p * groups_l[length_p])
    up_to_k = np.cumsum(weight_p[pair_k])
    return np.asarray(up_to_k / up_to_k[-1], dtype=np.float64)


def _compact(slots_bs: Ids, width: int) -> tuple[Ids, Ids]:
    """Words of each row moved to the left, in their order, into `width` places; and how many they are."""
    filled_bs = slots_bs != 0
    length_b = np.count_nonzero(filled_bs, axis=1)
    compact = np.zeros((len(slots_bs), width), dtype=np.int32)
    # Both masks are read row by row, left to right, and hold the same number of words in each row.
    compact[np.arange(width) < length_b[:, None]] = slots_bs[filled_bs]
    return compact, length_b


def _last_words(tokens_nt: Ids) -> Ids:
    """The word before the first EOS, or the last of all where there is none; EOS where there is no word."""
    ends_nt = tokens_nt == EOS
    length_n = np.where(ends_nt.any(axis=1), ends_nt.argmax(axis=1), tokens_nt.shape[1])
    last_n: Ids = tokens_nt[np.arange(len(tokens_nt)), np.maximum(length_n - 1, 0)]
    return last_n
