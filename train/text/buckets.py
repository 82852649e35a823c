"""Sentence pairs of many lengths in batches of few shapes.

`partition` sorts training pairs into a few buckets by both lengths, so that little of a batch is padding. `Buckets`
says which pairs make the batch of a step. `cover` cuts a fixed evaluation set into batches.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from train.text.ragged import Ragged

MAX_BUCKETS = 8  # shapes a training step is compiled for
_LEVELS = 128  # lengths told apart on one axis when buckets are sought
_GAIN = 0.005  # a further bucket must save this share of the positions computed
_CACHED_NUMBERS = 2**26  # permuted pair numbers kept at most (256 MiB), so many seeds that is; but never fewer than
_MIN_SEEDS = 16
_EVALUATION_SHARES = (0.5, 0.8, 1.0)  # of the sentences, shortest first: one shape each

# Streams of random numbers, told apart by their first word.
_ORDER_STREAM, _ROWS_STREAM = 1, 2


class Partition(NamedTuple):
    """Pairs by bucket.

    shapes: (s, t) of each bucket, EOS counted; all different, in the order of s + t.
    members: for each bucket the int32 numbers of its pairs, rising.
    """

    shapes: tuple[tuple[int, int], ...]
    members: tuple[np.ndarray, ...]


class _Box(NamedTuple):
    """A rectangle of the histogram of levels: source levels low[0] to high[0] (exclusive), target levels likewise."""

    low: tuple[int, int]
    high: tuple[int, int]


def _levels(length_n: np.ndarray) -> np.ndarray:
    """At most _LEVELS lengths that stand for all: each is rounded up to the next. The longest is among them."""
    levels = np.unique(length_n)
    if len(levels) > _LEVELS:
        levels = np.unique(np.quantile(length_n, np.linspace(0, 1, _LEVELS), method="higher"))
    return levels


def _rows(pairs: np.ndarray, batch_size: int) -> np.ndarray:
    """Rows of the batches that so many pairs make, those that fill up the last one included."""
    rows: np.ndarray = -(-pairs // batch_size) * batch_size
    return rows


def _best_cut(count_st: np.ndarray, level_s: np.ndarray, level_t: np.ndarray, batch_size: int) -> tuple[int, int]:
    """Where to cut a box across its source axis.

    count_st: pairs by source level and target level. Returns (i, positions saved): levels below i go to one bucket,
    the rest (none, where no cut saves any) to another.
    """
    pair_s = count_st.sum(axis=1)
    # Widest target among the pairs of each source level, and of all levels up to it or from it on.
    widest_s = np.where(count_st > 0, level_t, 0).max(axis=1)
    widest_low, widest_high = np.maximum.accumulate(widest_s), np.maximum.accumulate(widest_s[::-1])[::-1]
    below = np.cumsum(pair_s)
    low = _rows(below, batch_size) * (level_s + widest_low)
    high = _rows(below[-1] - below, batch_size) * (level_s[-1] + np.append(widest_high[1:], 0))
    i = int(np.argmin(low + high))
    return i + 1, int(low[-1] - low[i] - high[i])


def _tight(box: _Box, count_st: np.ndarray) -> _Box:
    """The smallest box with the same pairs."""
    inside = count_st[box.low[0] : box.high[0], box.low[1] : box.high[1]]
    s, t = np.flatnonzero(inside.sum(axis=1)), np.flatnonzero(inside.sum(axis=0))
    return _Box(
        (box.low[0] + int(s[0]), box.low[1] + int(t[0])), (box.low[0] + int(s[-1]) + 1, box.low[1] + int(t[-1]) + 1)
    )


def _cut(
    box: _Box, count_st: np.ndarray, level_s: np.ndarray, level_t: np.ndarray, batch_size: int
) -> tuple[int, list[_Box]]:
    """The best cut of a box in two, along either axis: (positions saved, the two)."""
    (s0, t0), (s1, t1) = box
    inside, inside_s, inside_t = count_st[s0:s1, t0:t1], level_s[s0:s1], level_t[t0:t1]
    i, saved_s = _best_cut(inside, inside_s, inside_t, batch_size)
    j, saved_t = _best_cut(inside.T, inside_t, inside_s, batch_size)
    if saved_s >= saved_t:
        return saved_s, [_Box(box.low, (s0 + i, t1)), _Box((s0 + i, t0), box.high)]
    return saved_t, [_Box(box.low, (s1, t0 + j)), _Box((s0, t0 + j), box.high)]


def partition(source_n: np.ndarray, target_n: np.ndarray, batch_size: int, limit: int = MAX_BUCKETS) -> Partition:
    """Sort pairs into at most `limit` buckets by their two lengths (EOS counted).

    All pairs start in one bucket. Again and again the cut of a bucket in two, by source or by target length, that saves
    most positions is made, until there are `limit` buckets or nothing saves half a percent. The rows that fill up a
    bucket's last batch count as positions: so a bucket of a few pairs does not come about, and data smaller than a
    batch is one bucket. It depends on the lengths and the batch size alone.
    """
    level_s, level_t = _levels(source_n), _levels(target_n)
    at_s, at_t = np.searchsorted(level_s, source_n), np.searchsorted(level_t, target_n)
    count_st = np.zeros((len(level_s), len(level_t)), dtype=np.int64)
    np.add.at(count_st, (at_s, at_t), 1)
    boxes = [_Box((0, 0), (len(level_s), len(level_t)))]
    worthwhile = _GAIN * (source_n.sum() + target_n.sum())
    while len(boxes) < limit:
        cuts = [_cut(box, count_st, level_s, level_t, batch_size) for box in boxes]
        best = max(range(len(boxes)), key=lambda number: (cuts[number][0], -number))
        saved, halves = cuts[best]
        if saved < worthwhile:
            break
        boxes[best : best + 1] = [_tight(half, count_st) for half in halves]
    bucket_st = np.zeros(count_st.shape, dtype=np.int64)
    for number, ((s0, t0), (s1, t1)) in enumerate(boxes):
        bucket_st[s0:s1, t0:t1] = number
    bucket_n = bucket_st[at_s, at_t]
    found = []
    for number in range(len(boxes)):
        member = np.flatnonzero(bucket_n == number).astype(np.int32)
        found.append(((int(source_n[member].max()), int(target_n[member].max())), member))
    found.sort(key=lambda entry: (sum(entry[0]), entry[0]))
    return Partition(tuple(shape for shape, _ in found), tuple(member for _, member in found))


class Buckets:
    """Which pairs make the batch of a step.

    An epoch has ceil(n / batch_size) batches of each bucket of n pairs, so every pair stands in exactly one batch of
    it. The order in which an epoch's batches pass through the buckets is drawn from the number of the epoch alone: the
    shape of a step is the same for every seed. Which pairs of the bucket a batch holds is drawn from seed, epoch and
    bucket.
    """

    def __init__(self, parts: Partition, batch_size: int):
        self.shapes = parts.shapes
        self._members = parts.members
        self._batch_size = batch_size
        pairs = sum(len(member) for member in parts.members)
        # One entry a batch of the epoch: its bucket and its place among the bucket's batches.
        self._batches = [
            (bucket, start)
            for bucket, member in enumerate(parts.members)
            for start in range(0, len(member), batch_size)
        ]
        self.steps_per_epoch = len(self._batches)
        self._order = lru_cache(maxsize=4)(self._draw_order)
        # What each seed last drew in each bucket: the lanes' seeds take turns, step after step.
        seeds = max(_MIN_SEEDS, _CACHED_NUMBERS // pairs)
        self._last_drawn = lru_cache(maxsize=seeds * len(parts.members))(
            lambda seed, bucket: [(-1, parts.members[bucket])]
        )

    def _draw_order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([_ORDER_STREAM, epoch]).permutation(self.steps_per_epoch)

    def _rows(self, seed: int, epoch: int, bucket: int) -> np.ndarray:
        """The pairs of a bucket in the order of a seed's epoch."""
        kept = self._last_drawn(seed, bucket)
        drawn_epoch, rows = kept[0]
        if drawn_epoch != epoch:
            rows = np.random.default_rng([_ROWS_STREAM, seed, epoch, bucket]).permutation(self._members[bucket])
            kept[0] = epoch, rows
        return rows

    def _place(self, step: int) -> tuple[int, int, int]:
        """Epoch, bucket and first row in the bucket of a step (from 0)."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return epoch, *self._batches[self._order(epoch)[number]]

    def shape(self, step: int) -> tuple[int, int]:
        """Widths (s, t) of a step, the same for every seed."""
        return self.shapes[self._place(step)[1]]

    def pairs(self, seed: int, step: int) -> np.ndarray:
        """Numbers of the pairs of a step's batch, at most `batch_size` and at least one."""
        epoch, bucket, start = self._place(step)
        return self._rows(seed, epoch, bucket)[start : start + self._batch_size]

    def padding_share(self, source: Ragged, target: Ragged) -> float:
        """Share of the positions of an epoch's batches, source and target together, that hold no token (EOS is one)."""
        positions = sum(sum(self.shapes[bucket]) * self._batch_size for bucket, _ in self._batches)
        return 1 - float(source.length_n.sum() + target.length_n.sum()) / positions


class Part(NamedTuple):
    """A batch of an evaluation set: at most batch-size sentence numbers, and the widths (s, t) they are padded to."""

    sentences: np.ndarray
    shape: tuple[int, int]


def evaluation_shapes(source_n: np.ndarray, target_n: np.ndarray) -> tuple[tuple[int, int], ...]:
    """A few shapes, each within the next, for the lengths of all evaluation sets; the last holds every sentence."""
    order = np.argsort(source_n + target_n, kind="stable")
    widest_s, widest_t = np.maximum.accumulate(source_n[order]), np.maximum.accumulate(target_n[order])
    ends = sorted({max(1, int(share * len(order))) - 1 for share in _EVALUATION_SHARES})
    return tuple(dict.fromkeys((max(1, int(widest_s[end])), max(1, int(widest_t[end]))) for end in ends))


def cover(
    source_n: np.ndarray, target_n: np.ndarray, shapes: tuple[tuple[int, int], ...], batch_size: int
) -> Iterator[Part]:
    """Cut sentences into batches by length, each in the first of the shapes that holds it."""
    order = np.argsort(source_n + target_n, kind="stable")
    for start in range(0, len(order), batch_size):
        part = order[start : start + batch_size]
        need = source_n[part].max(), target_n[part].max()
        yield Part(part, next(shape for shape in shapes if shape[0] >= need[0] and shape[1] >= need[1]))
