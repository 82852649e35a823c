"""Which sentences belong to training and which are set apart, and how evaluation sets are cut into batches.

A sentence's split is a function of its ids alone: a 64-bit hash of the row, whose top six bits name one of 64 classes.
Class 0 is kept for "valid", class 1 for "test", the other 62 are left to training, so that no training run of any seed
can draw a sentence of an evaluation set, and nothing has to be remembered to make sure of it.
"""

import numpy as np
import numpy.typing as npt

from train.tasks.contract import PAD, Batch, EvaluationSet

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

CLASSES = 64
RESERVED = {"valid": 0, "test": 1}  # split -> its class of the hash; training has the others
EVALUATION_SEED = 20170612  # evaluation sets do not depend on a run's seed
PURPOSE = {"train": 0, "valid": 1, "test": 2}  # third element of a generator's seed: the streams never meet

_SHIFT = np.uint64(64 - CLASSES.bit_length() + 1)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(values: Hashes) -> Hashes:
    """Bit mixer of SplitMix64 (Steele, Lea and Flood 2014, figure 17): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Hash:
    """A 64-bit hash of each row of ids; padding does not change it.

    The hash is a sum of ids times one odd 64-bit number a position, then mixed. PAD is 0 and adds nothing, and no other
    id is 0, so a sentence has one hash whatever the width of the array it lies in.
    """

    def __init__(self, width: int) -> None:
        positions = np.arange(1, width + 1, dtype=np.uint64)
        self._factors_l = _mixed(positions * _GOLDEN) | np.uint64(1)

    def __call__(self, content_bl: Ids) -> Hashes:
        """Hashes [b] of rows [b, l] of ids, l at most `width`."""
        return _mixed(content_bl.astype(np.uint64) @ self._factors_l[: content_bl.shape[1]])


def is_reserved(hash_b: Hashes) -> Mask:
    """Sentences of an evaluation set: training may not use them."""
    reserved_b: Mask = (hash_b >> _SHIFT) < np.uint64(len(RESERVED))
    return reserved_b


def belongs(hash_b: Hashes, split: str) -> Mask:
    """Sentences that the evaluation set of this name may use."""
    belongs_b: Mask = (hash_b >> _SHIFT) == np.uint64(RESERVED[split])
    return belongs_b


def evaluation_set(source_ns: Ids, target_nt: Ids, rows: int) -> EvaluationSet:
    """Cut n sentences, in their order, into batches of `rows` rows each, the last one filled up with padding rows."""
    count = len(source_ns)
    missing = -count % rows
    source = np.pad(source_ns, ((0, missing), (0, 0)), constant_values=PAD)
    target = np.pad(target_nt, ((0, missing), (0, 0)), constant_values=PAD)
    starts = range(0, count + missing, rows)
    batches = tuple(Batch(source[start : start + rows], target[start : start + rows]) for start in starts)
    order_n = np.concatenate([np.arange(count, dtype=np.int64), np.full(missing, -1, dtype=np.int64)])
    return EvaluationSet(batches, order_n)
