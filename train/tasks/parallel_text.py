"""Parallel text: the target is the source in another language, from the user's own files.

    source   i 'm in the tennis club . <eos>
    target   私 は テニス 部員 で す 。 <eos>

`task.train`, `task.valid` and `task.test` each name one file (source, tab, target) or two. How files are read is said
in `train/text/reading.py`, how lines become ids in `train/text/tokenise.py` and `train/text/vocabulary.py`. What
happens to the pairs:

- Training pairs with an empty side, or with more than `task.max_length` tokens on a side, are skipped and counted.
- Vocabularies come from the training pairs that remain, each side its own; every other token is UNK.
- Validation and test lines are all kept, in order. What the model reads, and the targets its loss is taken on, are cut
  to `task.max_length` tokens and counted; BLEU and chrF are against the full reference.
- A blank source line has a blank prediction, whatever a model says. In its batch it is a row of padding (with its
  place in `order_n`): it adds nothing to loss or accuracy, and its blank output counts in BLEU. An empty reference of a
  source that is not blank stays, as a target of EOS alone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.errors import UserError
from train.schema import TaskSettings
from train.tasks.contract import UNK, Batch, EvaluationSet
from train.text.buckets import Buckets, cover, evaluation_shapes, partition
from train.text.ragged import Ragged
from train.text.reading import Pairs, digest, read_pairs
from train.text.scoring import Scorer
from train.text.side import FILES, Side, read_sides, write_sides
from train.text.tokenise import tokeniser
from train.text.vocabulary import EOS, SPECIAL, Vocabulary
from train.words import counted

_SPLITS = ("valid", "test")
_FEW_TOKENS = 2.0  # mean tokens of a line below which text was not split into words
_MANY_UNKNOWN = 0.2


@dataclass(frozen=True)
class _HeldOut:
    """A validation or test set. `source`, `target`: ids cut to the model's length; `cut`: lines longer than that."""

    pairs: Pairs
    source: Ragged
    target: Ragged
    cut: int
    in_train_n: np.ndarray  # bool: the source line also stands in train


def _encode(side: Side, lines: Sequence[str], max_length: int) -> tuple[list[list[int]], int]:
    """Ids of lines, cut to `max_length`, and how many were longer."""
    sentences = [side.encode(line) for line in lines]
    return [ids[:max_length] for ids in sentences], sum(len(ids) > max_length for ids in sentences)


def _evaluation_set(
    source: Ragged, target: Ragged, shapes: tuple[tuple[int, int], ...], batch_size: int
) -> EvaluationSet:
    batches, order = [], []
    for part, (s, t) in cover(source.length_n, target.length_n, shapes, batch_size):
        batches.append(Batch(source.rows(part, batch_size, s), target.rows(part, batch_size, t)))
        order.append(np.full(batch_size, -1, dtype=np.int64))
        order[-1][: len(part)] = part
    return EvaluationSet(tuple(batches), np.concatenate(order))


def translations(lines: list[str], side: Side, tokens_nt: np.ndarray) -> list[str]:
    """Decoded ids as text, a line for each of the source lines and blank where that is blank.

    tokens_nt: [n, t] ids, a row for each source line, in order. Raises ValueError for another number of rows, and for
    an id outside the vocabulary.
    """
    if len(tokens_nt) != len(lines):
        raise ValueError(f"{len(tokens_nt)} rows of output for {counted(len(lines), 'line')}")
    return [text if line else "" for line, text in zip(lines, side.decode(tokens_nt), strict=True)]


def _unknown(side: Ragged) -> float:
    """Share of UNK among the tokens, EOS not counted."""
    return float(np.sum(side.ids == UNK)) / max(1, int(np.sum(side.ids != EOS)))


class ParallelText:
    """Translation between the two sides of users' files."""

    files: tuple[str, ...] = FILES
    knobs = frozenset({"max_length", "train", "valid", "test", "tokenizer", "min_count", "max_vocab", "bleu_tokenize"})

    def __init__(
        self,
        settings: TaskSettings,
        *,
        batch_size: int,
        eval_batch_size: int,
        stored: Path | None = None,
    ):
        """Read the files, number the tokens, sort the pairs into buckets.

        stored: where `write` left the vocabularies of this run. They are used as they stand, even if the training files
        have changed since. Without it they are built.

        Raises UserError for bad files (see train/text/reading.py), for data that leaves nothing to train on or to
        evaluate or that is smaller than a batch, for unknown tokenizers, and where BLEU's tokenizer is not installed.
        """
        self._settings = settings
        self._batch_size = batch_size
        self.max_target = settings.max_length + 1
        cut = tokeniser(settings.tokenizer)
        self._scorer = Scorer(settings.bleu_tokenize)
        self._signatures = self._scorer.signatures()
        read = {split: read_pairs(getattr(settings, split), f"task.{split}") for split in ("train", *_SPLITS)}
        self._digests = {f"task.{split}": digest(pairs) for split, pairs in read.items()}
        train, read_note, counts = self._kept(read["train"], cut.split)
        if batch_size > len(train.source):  # each batch would be padded, every time
            raise UserError(
                f"run.batch_size = {batch_size:,} is above the {counted(len(train.source), 'pair')} that train has"
                f" after skipping: give at most {len(train.source):,}, or more text"
            )

        if stored:
            self.sides = read_sides(stored, settings.tokenizer)
        else:
            source, target = map(self._vocabulary, ("source", "target"), counts)
            self.sides = Side(cut, source), Side(cut, target)
        self.source_vocab, self.target_vocab = (len(side.vocabulary) for side in self.sides)

        self._source, self._target = (
            Ragged(map(side.encode, lines)) for side, lines in zip(self.sides, train, strict=True)
        )
        parts = partition(self._source.length_n, self._target.length_n, batch_size)
        self._buckets = Buckets(parts, batch_size)
        self.epoch_steps = self._buckets.steps_per_epoch
        known = frozenset(map(self._as_read, train.source))
        self._held = {split: self._held_out(split, read[split], known) for split in _SPLITS}
        self._evaluation = self._evaluation_sets(eval_batch_size)
        self._notes = (read_note, self._vocabulary_note(stored), *self._further_notes())

    def _kept(
        self, read: Pairs, split: Callable[[str], list[str]]
    ) -> tuple[Pairs, str, tuple[Counter[str], Counter[str]]]:
        """Training pairs that are used, what was skipped in words, and how often each token occurs."""
        limit = self._settings.max_length
        kept, counts, empty, long = Pairs([], []), (Counter[str](), Counter[str]()), 0, 0
        longest = [0, 0]
        for pair in zip(*read, strict=True):
            if not all(pair):
                empty += 1
                continue
            tokens = [split(line) for line in pair]
            lengths = [len(side) for side in tokens]
            longest = [max(old, new) for old, new in zip(longest, lengths, strict=True)]
            if max(lengths) > limit:
                long += 1
                continue
            for lines, line, count, side in zip(kept, pair, counts, tokens, strict=True):
                lines.append(line)
                count.update(side)
        names = ", ".join(self._settings.train)
        note = (
            f"train: {counted(len(read.source), 'pair')} read from {names}; {len(kept.source):,} used, {empty:,} "
            f"skipped for an empty side, {long:,} for more tokens than task.max_length={limit}; longest source "
            f"{counted(longest[0], 'token')}, longest target {longest[1]:,}"
        )
        if not kept.source:
            raise UserError(f"nothing to train on: {note}; give other text, or a larger task.max_length")
        return kept, note, counts

    def _vocabulary(self, side: str, counts: Counter[str]) -> Vocabulary:
        least, most_seen = self._settings.min_count, max(counts.values())
        if most_seen < least:
            raise UserError(
                f"task.min_count = {least:,} leaves no {side} token: the most frequent of train stands there "
                f"{counted(most_seen, 'time')}; give at most {most_seen:,}"
            )
        return Vocabulary.build(counts, min_count=least, max_vocab=self._settings.max_vocab)

    def _held_out(self, split: str, pairs: Pairs, known: frozenset[str]) -> _HeldOut:
        if not any(pairs.source):
            raise UserError(
                f"task.{split}: every source line is blank; there is nothing to evaluate: give a file with sentences"
            )
        limit = self._settings.max_length
        (source, cut_s), (target, cut_t) = (
            _encode(side, lines, limit) for side, lines in zip(self.sides, pairs, strict=True)
        )
        blank = [not line for line in pairs.source]
        return _HeldOut(
            pairs,
            Ragged(None if skip else ids for ids, skip in zip(source, blank, strict=True)),
            Ragged(None if skip else ids for ids, skip in zip(target, blank, strict=True)),
            cut_s + cut_t,
            np.array([self._as_read(line) in known for line in pairs.source]),
        )

    def _as_read(self, source: str) -> str:
        """A source line as a model sees it: in word mode without the difference of one space and many."""
        cut = self.sides[0].tokeniser
        return cut.join(cut.split(source))

    def _evaluation_sets(self, batch_size: int) -> dict[str, EvaluationSet]:
        """Both sets in the same few shapes."""
        source_n, target_n = (
            np.concatenate([getattr(held, side).length_n for held in self._held.values()])
            for side in ("source", "target")
        )
        shapes = evaluation_shapes(source_n, target_n)
        return {
            split: _evaluation_set(held.source, held.target, shapes, batch_size) for split, held in self._held.items()
        }

    def _vocabulary_note(self, directory: Path | None) -> str:
        sizes = f"source {self.source_vocab:,}, target {self.target_vocab:,} ({len(SPECIAL)} special ids in each)"
        if directory:
            return f"vocabularies as stored in {directory}: {sizes}"
        settings = self._settings
        most = f", {settings.max_vocab:,} at most" if settings.max_vocab else ""
        seen = counted(settings.min_count, "time")
        return f"vocabularies of train, {settings.tokenizer} tokens seen {seen} or more{most}: {sizes}"

    def _further_notes(self) -> list[str]:
        settings, buckets = self._settings, self._buckets
        widths = ", ".join(f"{s}x{t}" for s, t in buckets.shapes)
        notes = [
            f"batches: {self.epoch_steps:,} an epoch, of at most {counted(self._batch_size, 'pair')}; source x target "
            f"widths {widths}; {buckets.padding_share(self._source, self._target):.1%} padding"
        ]
        for split, held in self._held.items():
            blank = sum(not line for line in held.pairs.source)
            bare = sum(bool(source) and not target for source, target in zip(*held.pairs, strict=True))
            notes.append(
                f"{split}: {counted(len(held.pairs.source), 'pair')}, {int(held.in_train_n.sum()):,} with a source "
                f"that also stands in train; unknown tokens {_unknown(held.source):.1%} of source, "
                f"{_unknown(held.target):.1%} of target; {counted(held.cut, 'line')} cut to "
                f"task.max_length={settings.max_length}; {counted(blank, 'blank source')}, "
                f"{counted(bare, 'empty reference')}"
            )
        tokens = [float(side.length_n.mean()) - 1 for side in (self._source, self._target)]
        unknown = max(_unknown(self._held["valid"].source), _unknown(self._held["valid"].target))
        if settings.tokenizer == "word" and (min(tokens) < _FEW_TOKENS or unknown > _MANY_UNKNOWN):
            notes.append(
                f"warning: {tokens[0]:.1f} source and {tokens[1]:.1f} target tokens a line, {unknown:.1%} unknown in "
                "valid: if the text is not split into words, set task.tokenizer=char"
            )
        for split, held in self._held.items():
            notes.extend(self._bleu_note(split, held.pairs.target))
        return notes

    def _bleu_note(self, split: str, references: list[str]) -> list[str]:
        if any(self._scorer.tokens(line) >= 4 for line in references):
            return []
        return [
            f"warning: no {split} reference has four tokens by task.bleu_tokenize={self._settings.bleu_tokenize}: BLEU "
            "is 0 even where every line is right; read sequence_accuracy and chrf, or choose another tokenizer"
        ]

    def shape(self, step: int) -> tuple[int, int]:
        """Widths (s, t) of the batch of this step, the same for every seed."""
        return self._buckets.shape(step)

    def batch(self, seed: int, step: int) -> Batch:
        """Batch of update `step` (from 0), every pair once an epoch; the last batch of a bucket has rows of padding."""
        pairs, (s, t) = self._buckets.pairs(seed, step), self._buckets.shape(step)
        return Batch(self._source.rows(pairs, self._batch_size, s), self._target.rows(pairs, self._batch_size, t))

    def lengths(self) -> np.ndarray:
        """Of all pairs that are used."""
        return np.concatenate([self._source.length_n, self._target.length_n])

    def evaluation(self, split: str) -> EvaluationSet:
        """The "valid" or "test" set, sorted by length; a row of padding with a place in `order_n` is a blank line."""
        return self._evaluation[split]

    def digests(self) -> dict[str, str]:
        """Of the text of each split, as it was read."""
        return self._digests

    def notes(self) -> tuple[str, ...]:
        """What was read and skipped, sizes, padding, overlap, unknown tokens; warnings where a setting does not fit."""
        return self._notes

    def write(self, directory: Path) -> None:
        """Leave source.vocab and target.vocab."""
        write_sides(directory, self.sides)

    def lines(self, split: str, tokens_nt: np.ndarray) -> list[str]:
        """Predictions as text, one for each line of the source file, blank for blank; see `translations`."""
        return translations(self._held[split].pairs.source, self.sides[1], tokens_nt)

    def measure(self, split: str, tokens_nt: np.ndarray) -> dict[str, float | str | None]:
        """BLEU and chrF of predictions against the full references, their signatures, and what qualifies them.

        bleu_unseen: BLEU on the pairs whose source does not stand in train, None without such a pair.
        unknown_tokens: how many <unk> the predictions hold.
        """
        held, outputs = self._held[split], self.lines(split, tokens_nt)
        unseen = np.flatnonzero(~held.in_train_n)
        bleu_signature, chrf_signature = self._signatures
        said_nt = (np.cumsum(tokens_nt == EOS, axis=1) == 0) & np.array([[bool(line)] for line in held.pairs.source])
        return {
            "bleu": self._scorer.bleu(outputs, held.pairs.target),
            "chrf": self._scorer.chrf(outputs, held.pairs.target),
            "bleu_unseen": self._scorer.bleu([outputs[i] for i in unseen], [held.pairs.target[i] for i in unseen]),
            "unknown_tokens": int(np.sum((tokens_nt == UNK) & said_nt)),
            "bleu_signature": bleu_signature,
            "chrf_signature": chrf_signature,
        }
