"""The parallel text beside the repository, as a task."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.text_tasks import in_order, make, tokens
from train.schema import TaskSettings
from train.tasks import PAD
from train.tasks.parallel_text import ParallelText


def real(folder: Path, languages: tuple[str, str], **fields: object) -> TaskSettings:
    files = {
        split: tuple(str(folder / f"{name}.{language}") for language in languages)
        for split, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
    }
    base = TaskSettings("parallel_text", 1, 1, 50, 1, 1, (), (), (), "word", 2, 0, "none")
    return replace(base, **{**files, **fields})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def english_japanese(parallel_data: Path) -> ParallelText:
    started = time.perf_counter()
    task = make(real(parallel_data / "enja", ("en", "ja")), batch_size=64, eval_batch_size=127)
    seconds = time.perf_counter() - started
    print(f"built in {seconds:.2f} s")
    return task


def test_real_counts(english_japanese: ParallelText) -> None:
    task = english_japanese
    assert "50,000 pairs read" in task.notes()[0]
    assert "50,000 used, 0 skipped" in task.notes()[0]
    assert (task.source_vocab - 4, task.target_vocab - 4) == (4105, 4902)
    assert any(note.startswith("test: 500 pairs, 60 with a source that also stands in train") for note in task.notes())
    assert not any(note.startswith("warning") for note in task.notes())


def test_real_batches_hold_every_pair_once_in_few_shapes_with_little_padding(english_japanese: ParallelText) -> None:
    task = english_japanese
    tokens_seen = rows = positions = 0
    shapes = set()
    keys: list[bytes] = []
    started = time.perf_counter()
    batches = [task.batch(0, step) for step in range(task.epoch_steps)]
    print(f"{(time.perf_counter() - started) / len(batches) * 1e6:.0f} us a batch")
    for batch in batches:
        shapes.add((batch.source_bs.shape[1], batch.target_bt.shape[1]))
        positions += batch.source_bs.size + batch.target_bt.size
        tokens_seen += int((batch.source_bs != PAD).sum() + (batch.target_bt != PAD).sum())
        for source, target in zip(batch.source_bs, batch.target_bt, strict=True):
            if source.any():
                rows += 1
                keys.append(source[source != PAD].tobytes() + b"|" + target[target != PAD].tobytes())
    assert rows == 50_000
    assert tokens_seen == 391_047 + 565_618 + 2 * 50_000
    assert 1 - tokens_seen / positions < 0.15
    assert len(shapes) <= 8
    other = [task.batch(1, task.epoch_steps + step) for step in range(task.epoch_steps)]
    assert sorted(keys) == sorted(
        source[source != PAD].tobytes() + b"|" + target[target != PAD].tobytes()
        for batch in other
        for source, target in zip(batch.source_bs, batch.target_bt, strict=True)
        if source.any()
    )


def test_real_evaluation_sets_are_whole(english_japanese: ParallelText) -> None:
    for split in ("valid", "test"):
        source, _ = in_order(english_japanese.evaluation(split))
        assert len(source) == 500
        shapes = {batch.source_bs.shape + batch.target_bt.shape for batch in english_japanese.evaluation(split).batches}
        assert len(shapes) <= 3


def test_real_characters_come_back_exactly(parallel_data: Path) -> None:
    folder = parallel_data / "engfra"
    config = real(folder, ("en", "fr"), tokenizer="char", bleu_tokenize="13a", max_length=127, min_count=1)
    task = make(config, batch_size=64, eval_batch_size=127)
    # A no-break space may stand before a mark inside a line, but white space at the ends is not kept.
    lines = [line.strip(" ") for line in (folder / "train.fr").read_bytes().decode().removesuffix("\n").split("\n")]
    side = task.sides[1]
    for line in lines[::37]:
        assert side.decode(np.array([side.encode(line)])) == [line]
    references = (folder / "test.fr").read_bytes().decode().removesuffix("\n").split("\n")
    measured = task.measure("test", tokens(task, references))
    assert measured["bleu"] == pytest.approx(100)
    assert "tok:13a" in str(measured["bleu_signature"])
