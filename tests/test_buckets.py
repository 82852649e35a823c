import tracemalloc

import numpy as np
import pytest

from train.text.buckets import MAX_BUCKETS, Buckets, cover, evaluation_shapes, partition
from train.text.ragged import Ragged
from train.text.vocabulary import EOS, PAD


def lengths(pairs: int, longest: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Lengths of 2 to `longest` on both sides, the target's near the source's."""
    rng = np.random.default_rng(seed)
    source = rng.integers(2, longest + 1, pairs)
    return source, np.clip(source + rng.integers(-5, 6, pairs), 2, longest)


def drawn(source_n: np.ndarray, target_n: np.ndarray, batch_size: int) -> Buckets:
    return Buckets(partition(source_n, target_n, batch_size), batch_size)


def test_ragged_rows_hold_the_sentence_eos_and_padding() -> None:
    ragged = Ragged(iter([[7, 8, 9], None, [], [5]]))
    assert ragged.length_n.tolist() == [4, 0, 1, 2]
    rows = ragged.rows(np.array([3, 0, 1, 2]), 5, 4)
    assert rows.dtype == np.int32
    assert rows.tolist() == [
        [5, EOS, PAD, PAD],
        [7, 8, 9, EOS],
        [PAD] * 4,
        [EOS, PAD, PAD, PAD],
        [PAD] * 4,
    ]


def test_ragged_without_a_sentence_is_padding() -> None:
    assert not Ragged([None, None]).rows(np.array([1]), 2, 3).any()


@pytest.mark.parametrize("batch_size", [7, 31, 64])
def test_every_pair_is_in_one_bucket_that_holds_it(batch_size: int) -> None:
    source_n, target_n = lengths(2003, 50)
    parts = partition(source_n, target_n, batch_size)
    assert len(parts.shapes) <= MAX_BUCKETS
    assert len(set(parts.shapes)) == len(parts.shapes) == len(parts.members)
    assert sorted(np.concatenate(parts.members).tolist()) == list(range(2003))
    for (s, t), member in zip(parts.shapes, parts.members, strict=True):
        assert (source_n[member].max(), target_n[member].max()) == (s, t)


def test_buckets_save_most_of_the_padding() -> None:
    source_n, target_n = lengths(5003, 50)
    source, target = (Ragged([5] * (n - 1) for n in side) for side in (source_n, target_n))
    share = drawn(source_n, target_n, 31).padding_share(source, target)
    single = Buckets(partition(source_n, target_n, 31, limit=1), 31)
    assert share < 0.2 < 0.4 < single.padding_share(source, target)


def test_padding_share_is_that_of_the_batches() -> None:
    source_n, target_n = lengths(301, 23)
    source, target = (Ragged([5] * (n - 1) for n in side) for side in (source_n, target_n))
    buckets = drawn(source_n, target_n, 17)
    padding = positions = 0
    for step in range(buckets.steps_per_epoch):
        for side, width in zip((source, target), buckets.shape(step), strict=True):
            rows = side.rows(buckets.pairs(0, step), 17, width)
            padding += int((rows == PAD).sum())
            positions += rows.size
    assert buckets.padding_share(source, target) == pytest.approx(padding / positions)


def test_few_pairs_are_one_bucket_and_a_few_odd_ones_make_none() -> None:
    source_n, target_n = lengths(11, 50)
    assert len(partition(source_n, target_n, 64).shapes) == 1
    odd = np.full(3001, 5)
    assert partition(odd, odd, 31).shapes == ((5, 5),)
    parts = partition(*lengths(2003, 50), 1009)
    assert all(len(member) > 1009 // 4 for member in parts.members)


def test_very_long_lines_are_bucketed_in_little_memory() -> None:
    rng = np.random.default_rng(5)
    source_n = rng.integers(2, 50_000, 4001)
    tracemalloc.start()
    parts = partition(source_n, source_n[::-1].copy(), 13)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6
    assert sorted(np.concatenate(parts.members).tolist()) == list(range(4001))


@pytest.mark.parametrize(("pairs", "batch_size"), [(2003, 31), (64, 64), (5, 64), (1, 1), (127, 1)])
def test_every_pair_stands_once_in_every_epoch(pairs: int, batch_size: int) -> None:
    source_n, target_n = lengths(pairs, 29)
    buckets = drawn(source_n, target_n, batch_size)
    steps = buckets.steps_per_epoch
    for epoch in range(3):
        taken = [buckets.pairs(2, step) for step in range(epoch * steps, (epoch + 1) * steps)]
        assert all(0 < len(rows) <= batch_size for rows in taken)
        assert sorted(np.concatenate(taken).tolist()) == list(range(pairs))


def test_a_batch_is_a_function_of_seed_and_step_alone() -> None:
    source_n, target_n = lengths(503, 29)
    buckets = drawn(source_n, target_n, 13)
    places = [(seed, step) for seed in (0, 1, 2**31 - 1) for step in range(0, 3 * buckets.steps_per_epoch, 7)]
    expected = {place: buckets.pairs(*place).tolist() for place in places}
    again = drawn(source_n, target_n, 13)
    for i in np.random.default_rng(11).permutation(len(places)):
        assert again.pairs(*places[i]).tolist() == expected[places[i]]


def test_seeds_and_epochs_draw_other_pairs_of_the_same_shapes() -> None:
    buckets = drawn(*lengths(2003, 29), 31)
    steps = buckets.steps_per_epoch
    for step in range(steps):
        pairs = [set(buckets.pairs(seed, step).tolist()) for seed in (0, 1)]
        assert pairs[0] != pairs[1] or len(pairs[0]) < 31
    batches = [{frozenset(buckets.pairs(0, epoch * steps + i).tolist()) for i in range(steps)} for epoch in range(2)]
    assert len(batches[0] & batches[1]) <= MAX_BUCKETS  # at most a bucket of one batch comes again
    shapes = [[buckets.shape(epoch * steps + i) for i in range(steps)] for epoch in range(2)]
    assert shapes[0] != shapes[1]
    assert sorted(shapes[0]) == sorted(shapes[1])
    # Not all batches of one bucket after another.
    assert sum(a != b for a, b in zip(shapes[0], shapes[0][1:], strict=False)) > 2 * MAX_BUCKETS


def test_what_is_remembered_of_past_epochs_does_not_grow() -> None:
    buckets = drawn(*lengths(503, 29), 13)
    for step in range(20 * buckets.steps_per_epoch):
        buckets.pairs(0, step)
        buckets.pairs(1, step)
    assert buckets._last_drawn.cache_info().currsize <= 2 * len(buckets.shapes)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 101, 1000])
def test_cover_takes_every_sentence_once_in_a_shape_that_holds_it(batch_size: int) -> None:
    source_n, target_n = lengths(101, 29)
    source_n[[3, 50]] = target_n[[3, 50]] = 0
    shapes = evaluation_shapes(source_n, target_n)
    assert len(shapes) <= 3
    assert shapes[-1] == (source_n.max(), target_n.max())
    parts = list(cover(source_n, target_n, shapes, batch_size))
    assert sorted(np.concatenate([part.sentences for part in parts]).tolist()) == list(range(101))
    for part in parts:
        assert len(part.sentences) <= batch_size
        assert part.shape in shapes
        assert source_n[part.sentences].max() <= part.shape[0]
        assert target_n[part.sentences].max() <= part.shape[1]


def test_evaluation_shapes_of_one_sentence_and_of_none_but_blank() -> None:
    assert evaluation_shapes(np.array([5]), np.array([7])) == ((5, 7),)
    assert evaluation_shapes(np.array([3]), np.array([0])) == ((3, 1),)
