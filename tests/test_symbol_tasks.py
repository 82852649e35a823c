"""Copy, reverse and sort: the target is the function of the source, and evaluation shares nothing with training."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from train.errors import UserError
from train.schema import TaskSettings
from train.tasks import EOS, FIRST_SYMBOL, PAD, TASKS, Batch, Task
from train.tasks.split import CLASSES, Hash, belongs, is_reserved
from train.tasks.symbols import FEWEST_TO_SPLIT

FUNCTIONS: dict[str, Callable[[list[int]], list[int]]] = {"copy": list, "reverse": lambda x: x[::-1], "sort": sorted}
NAMES = sorted(FUNCTIONS)


def make(
    name: str = "copy",
    *,
    symbols: int = 11,
    low: int = 2,
    high: int = 13,
    valid: int = 29,
    test: int = 31,
    batch_size: int = 37,
    eval_batch_size: int = 7,
) -> Task:
    settings = TaskSettings(
        name=name,
        symbols=symbols,
        min_length=low,
        max_length=high,
        valid_size=valid,
        test_size=test,
        train=(),
        valid=(),
        test=(),
        tokenizer="word",
        min_count=1,
        max_vocab=0,
        bleu_tokenize="none",
    )
    return TASKS[name](settings, batch_size=batch_size, eval_batch_size=eval_batch_size)


def content(row: np.ndarray) -> list[int]:
    """Ids before EOS; whatever follows has to be padding."""
    ids: list[int] = row.tolist()
    end = ids.index(EOS)
    assert ids[end + 1 :] == [PAD] * (len(ids) - end - 1)
    return ids[:end]


def sources(batches: Iterable[Batch]) -> list[tuple[int, ...]]:
    """Sentences of batches, padding rows left out."""
    return [tuple(content(row)) for batch in batches for row in batch.source_bs if row.any()]


def trained(task: Task, seed: int, steps: int) -> list[tuple[int, ...]]:
    return sources(task.batch(seed, step) for step in range(steps))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("symbols", "low", "high"),
    [(2, 1, 1), (1, 1, 5), (7, 3, 3), (11, 2, 13), (2, 1, 19), (3, 997, 1000), (5, 1000, 1000), (1009, 1, 4)],
)
def test_target_is_the_function_of_the_source(name: str, symbols: int, low: int, high: int) -> None:
    task = make(name, symbols=symbols, low=low, high=high, batch_size=251)
    evaluated = [*task.evaluation("valid").batches, *task.evaluation("test").batches]
    lengths = Counter[int]()
    for batch in [*(task.batch(3, step) for step in range(4)), *evaluated]:
        assert batch.source_bs.dtype == batch.target_bt.dtype == np.int32
        assert (batch.source_bs.shape[1], batch.target_bt.shape[1]) == task.shape(0) == (high + 1, high + 1)
        for source_row, target_row in zip(batch.source_bs, batch.target_bt, strict=True):
            if not source_row.any():
                assert not target_row.any()
                continue
            source = content(source_row)
            assert content(target_row) == FUNCTIONS[name](source)
            assert all(FIRST_SYMBOL <= symbol < FIRST_SYMBOL + symbols for symbol in source)
            lengths[len(source)] += 1
    assert lengths.total() == 4 * 251 + 29 + 31
    assert (min(lengths), max(lengths)) == (low, high)
    assert (task.source_vocab, task.target_vocab, task.max_target) == (4 + symbols, 4 + symbols, high + 1)


def test_sort_keeps_repeats() -> None:
    batch = make("sort", symbols=2, low=17, high=17).batch(1, 0)
    for source_row, target_row in zip(batch.source_bs, batch.target_bt, strict=True):
        ones = content(source_row).count(4)
        assert content(target_row) == [4] * ones + [5] * (17 - ones)


def test_lengths_and_symbols_are_uniform() -> None:
    # Lengths 1 and 2 are free to all and 3 to 5 lose the sentences set apart: that must not show in the lengths.
    drawn = trained(make(symbols=67, low=1, high=5, batch_size=499), 5, 100)
    total = len(drawn)
    for share in np.array(list(Counter(map(len, drawn)).values())) / total:
        assert abs(share - 1 / 5) < 4 * np.sqrt(1 / 5 * 4 / 5 / total)
    symbols = Counter(symbol for sentence in drawn for symbol in sentence)
    assert len(symbols) == 67
    expected = symbols.total() / 67
    chi_square = sum((count - expected) ** 2 / expected for count in symbols.values())
    assert chi_square < 66 + 4 * np.sqrt(2 * 66)


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_a_function_of_seed_and_step_alone(name: str) -> None:
    task, other = make(name), make(name)
    forwards = {(seed, step): task.batch(seed, step) for seed in (0, 1, 2) for step in range(5)}
    other.evaluation("valid")
    for seed, step in reversed(forwards):
        again = other.batch(seed, step)
        np.testing.assert_array_equal(again.source_bs, forwards[seed, step].source_bs)
        np.testing.assert_array_equal(again.target_bt, forwards[seed, step].target_bt)
    assert len({batch.source_bs.tobytes() for batch in forwards.values()}) == 15
    assert task.batch(0, 10**9).source_bs.shape == (37, 14)


def test_a_batch_is_the_callers_to_change() -> None:
    task = make("copy")
    batch = task.batch(1, 2)
    before = batch.target_bt.copy()
    batch.source_bs[:] = PAD
    np.testing.assert_array_equal(batch.target_bt, before)
    np.testing.assert_array_equal(task.batch(1, 2).target_bt, before)


@pytest.mark.parametrize("seed", [0, 1, 20170612])
def test_training_never_draws_an_evaluation_sentence(seed: int) -> None:
    task = make(symbols=5, low=6, high=8, valid=211, test=199, batch_size=997)
    valid, test = (set(sources(task.evaluation(split).batches)) for split in ("valid", "test"))
    assert (len(valid), len(test)) == (211, 199)
    assert not valid & test
    seen = set(trained(task, seed, 60))
    assert len(seen) > 40_000
    assert not seen & (valid | test)
    assert task.notes() == ()


def test_every_sentence_belongs_to_exactly_one_of_training_valid_and_test() -> None:
    # The smallest space that is split: all its sentences can be seen.
    assert FEWEST_TO_SPLIT == 8**4
    task = make(symbols=8, low=4, high=4, valid=211, test=211, batch_size=997)
    valid, test = (set(sources(task.evaluation(split).batches)) for split in ("valid", "test"))
    seen = set(trained(task, 0, 80))
    assert len(seen) + len(valid) + len(test) == len(seen | valid | test) == 8**4
    assert all(4096 / CLASSES / 2 < len(part) < 4096 / CLASSES * 2 for part in (valid, test))
    repeats = [f"{211 - len(part)} repeats in 211 sentences" for part in (valid, test)]
    assert [note.split(": ")[1].split(" (")[0] for note in task.notes()] == repeats


def test_overlap_of_small_spaces_is_counted_and_told() -> None:
    task = make(symbols=5, low=4, high=7, valid=211, test=199, batch_size=997)
    seen = set(trained(task, 0, 180))  # lengths 4 and 5 have 625 and 3125 sentences: training draws them all
    notes = task.notes()
    for split, note in zip(("valid", "test"), notes, strict=True):
        drawn = sources(task.evaluation(split).batches)
        shared = sum(sentence in seen for sentence in drawn)
        assert shared == sum(len(sentence) < 6 for sentence in drawn) > 50
        assert note == (
            f"{split}: {shared} of {len(drawn)} sentences can also occur in training "
            "(lengths 4 to 5 have too few sequences to set some apart)"
        )


def test_notes_of_one_short_length() -> None:
    assert make(symbols=2, low=1, high=1, valid=5, test=2).notes() == (
        "valid: 5 of 5 sentences can also occur in training (length 1 has too few sequences to set some apart)",
        "valid: 3 repeats in 5 sentences (too few sequences of their length)",
        "test: 2 of 2 sentences can also occur in training (length 1 has too few sequences to set some apart)",
    )


@pytest.mark.parametrize(("symbols", "length"), [(2, 11), (4, 6), (3, 11), (17, 4)])
def test_evaluation_repeats_no_sentence_where_there_are_enough(symbols: int, length: int) -> None:
    task = make(symbols=symbols, low=length, high=length, valid=61, test=43)
    # Counting through the space (its first three sizes) or drawing until all differ (the last).
    for split, size in (("valid", 61), ("test", 43)):
        usable = belongs_all(symbols, length, split)
        repeats = Counter(sources(task.evaluation(split).batches))
        assert repeats.total() == size
        assert len(repeats) == min(size, usable)
        assert max(repeats.values()) - min(repeats.values()) <= 1


def belongs_all(symbols: int, length: int, split: str) -> int:
    """Sentences of a length that an evaluation set may hold."""
    if symbols**length < FEWEST_TO_SPLIT:
        return int(symbols**length)
    every = np.indices((symbols,) * length, dtype=np.int32).reshape(length, -1).T + FIRST_SYMBOL
    usable_n = belongs(Hash(length)(every), split)
    return int(np.count_nonzero(usable_n))


def test_large_evaluation_sets_differ_in_every_sentence() -> None:
    task = make(symbols=3, low=13, high=13, valid=6007, test=5003)  # 3**13 / 64 = 24912 sentences for each
    for split, size in (("valid", 6007), ("test", 5003)):
        assert len(set(sources(task.evaluation(split).batches))) == size


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluation_is_the_same_in_batches_of_any_size(name: str, split: str) -> None:
    whole = make(name, low=1, eval_batch_size=29 * 31).evaluation(split).batches[0]
    size = {"valid": 29, "test": 31}[split]
    for rows in (1, 2, 3, 5, 8, 29, 31, 64):
        cut = make(name, low=1, eval_batch_size=rows, batch_size=rows).evaluation(split)
        assert len(cut.batches) == -(-size // rows)
        assert all(len(batch.source_bs) == len(batch.target_bt) == rows for batch in cut.batches)
        assert cut.order_n.dtype == np.int64
        assert cut.order_n.tolist() == [*range(size), *[-1] * (-size % rows)]
        source_ns = np.concatenate([batch.source_bs for batch in cut.batches])
        target_nt = np.concatenate([batch.target_bt for batch in cut.batches])
        np.testing.assert_array_equal(source_ns[:size], whole.source_bs[:size])
        np.testing.assert_array_equal(target_nt[:size], whole.target_bt[:size])
        assert not source_ns[size:].any()
        assert not target_nt[size:].any()


def test_evaluation_is_made_once_and_its_sets_differ() -> None:
    task = make()
    assert task.evaluation("valid") is task.evaluation("valid")
    assert sources(task.evaluation("valid").batches) != sources(task.evaluation("test").batches)[:29]
    with pytest.raises(KeyError):
        task.evaluation("train")


def test_nothing_to_write_measure_or_read(tmp_path: Path) -> None:
    task = make()
    task.write(tmp_path)
    assert list(tmp_path.iterdir()) == []
    tokens = np.zeros((29, 14), dtype=np.int32)
    assert task.measure("valid", tokens) == {}
    assert task.lines("valid", tokens) is None


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match=r"task\.min_length=5, task\.max_length=3"):
        make(low=5, high=3)
    with pytest.raises(UserError, match=r"task\.symbols=0"):
        make(symbols=0)


def test_hash_ignores_padding_and_spreads_evenly() -> None:
    random = np.random.default_rng(7)
    rows = random.integers(4, 6, size=(100_000, 23), dtype=np.int32)  # two symbols: the least to tell rows apart by
    padded = np.pad(rows, ((0, 0), (0, 6)))
    np.testing.assert_array_equal(Hash(29)(padded), Hash(23)(rows))
    hash_b = Hash(23)(rows)
    np.testing.assert_array_equal(is_reserved(hash_b), belongs(hash_b, "valid") | belongs(hash_b, "test"))
    for share in (belongs(hash_b, "valid").mean(), belongs(hash_b, "test").mean()):
        assert abs(share - 1 / CLASSES) < 4 * np.sqrt(1 / CLASSES / len(rows))


def test_hash_never_changes() -> None:
    # Which sentences are set apart must be the same for everyone and in every version, or results do not compare.
    rows = np.array([[4, 5, 6], [6, 5, 4], [4, 5, 0]], dtype=np.int32)
    assert Hash(3)(rows).tolist() == [127050011108216151, 12566256192253875161, 8873719016923307618]


@pytest.mark.parametrize("name", ["copy", "toy_translation"])
def test_lengths_are_those_of_the_sentences_trained_on(name: str) -> None:
    task = make(name, low=3, high=17)
    drawn = [np.count_nonzero(side != PAD, axis=1) for step in range(200) for side in task.batch(1, step)]
    for share in (50, 97.5):
        assert np.percentile(task.lengths(), share) == pytest.approx(np.percentile(np.concatenate(drawn), share), abs=1)
    assert task.lengths().min() >= 2
