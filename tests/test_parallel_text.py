"""Parallel text as a task: batches, evaluation sets, what is skipped and said, on lines written here."""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.text_tasks import in_order, make, tokens
from train.errors import UserError
from train.schema import TaskSettings
from train.tasks import BOS, EOS, PAD, TASKS, UNK
from train.tasks.parallel_text import ParallelText, translations

Lines = Sequence[tuple[str, str]]

PAIRS: Lines = [
    ("the cat sat", "le chat dort"),
    ("the dog sat down", "le chien dort"),
    ("a cat", "un chat"),
    ("the cat ran far away", "le chat court très loin"),
    ("a dog ran", "un chien court"),
]


def write(folder: Path, name: str, lines: Lines) -> tuple[str, str]:
    paths = folder / f"{name}.src", folder / f"{name}.tgt"
    for side, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[side]}\n" for pair in lines).encode())
    return str(paths[0]), str(paths[1])


def settings(folder: Path, train: Lines = PAIRS, valid: Lines = PAIRS, test: Lines = PAIRS) -> TaskSettings:
    return TaskSettings(
        name="parallel_text",
        symbols=1,
        min_length=1,
        max_length=13,
        valid_size=1,
        test_size=1,
        train=write(folder, "train", train),
        valid=write(folder, "valid", valid),
        test=write(folder, "test", test),
        tokenizer="word",
        min_count=1,
        max_vocab=0,
        bleu_tokenize="none",
    )


def test_the_task_is_entered_under_its_name(tmp_path: Path) -> None:
    task = TASKS["parallel_text"](settings(tmp_path), batch_size=3, eval_batch_size=4)
    assert isinstance(task, ParallelText)


def test_batches_hold_the_pairs_as_ids_with_eos(tmp_path: Path) -> None:
    task = make(settings(tmp_path), batch_size=3)
    seen = []
    for step in range(task.epoch_steps):
        batch = task.batch(0, step)
        assert batch.source_bs.shape == (3, task.shape(step)[0])
        assert batch.target_bt.shape == (3, task.shape(step)[1])
        assert batch.source_bs.dtype == batch.target_bt.dtype == np.int32
        for source, target in zip(batch.source_bs, batch.target_bt, strict=True):
            assert source.any() == target.any()
            if source.any():
                for row in (source, target):
                    assert np.sum(row == EOS) == 1
                    assert not row[np.argmax(row == EOS) + 1 :].any()
                seen.append((task.sides[0].decode(source[None])[0], task.sides[1].decode(target[None])[0]))
    assert sorted(seen) == sorted(PAIRS)


def test_each_side_has_its_own_vocabulary(tmp_path: Path) -> None:
    task = make(settings(tmp_path, train=[("a a b", "x y y z")]))
    assert task.sides[0].vocabulary.tokens[4:] == ("a", "b")
    assert task.sides[1].vocabulary.tokens[4:] == ("y", "x", "z")
    assert (task.source_vocab, task.target_vocab) == (6, 7)


def test_held_out_words_never_enter_the_vocabulary(tmp_path: Path) -> None:
    plain = make(settings(tmp_path))
    task = make(settings(tmp_path, valid=[("the zzz cat", "le zzz"), ("zzz", "chat")]))
    assert (task.source_vocab, task.target_vocab) == (plain.source_vocab, plain.target_vocab)
    source, target = in_order(task.evaluation("valid"))
    assert source[0].count(UNK) == 1
    assert source[1] == [UNK, EOS]
    assert target[0].count(UNK) == 1
    note = next(note for note in task.notes() if note.startswith("valid:"))
    assert "unknown tokens 50.0% of source, 33.3% of target" in note


def test_pairs_with_an_empty_side_are_skipped_together(tmp_path: Path) -> None:
    task = make(settings(tmp_path, train=[("a", "x"), ("", "y"), ("c", "z"), ("d", "   ")]))
    batches = [task.batch(0, step) for step in range(task.epoch_steps)]
    pairs = {
        (task.sides[0].decode(s[None])[0], task.sides[1].decode(t[None])[0])
        for batch in batches
        for s, t in zip(batch.source_bs, batch.target_bt, strict=True)
    }
    assert pairs == {("a", "x"), ("c", "z")}
    assert "4 pairs read" in task.notes()[0]
    assert "2 used, 2 skipped for an empty side" in task.notes()[0]


def test_long_training_pairs_are_skipped_and_long_held_out_lines_cut(tmp_path: Path) -> None:
    exact, over = " ".join(["w"] * 13), " ".join(["w"] * 14)
    held: Lines = [(over, exact), (exact, over), ("w", "w")]
    config = settings(tmp_path, train=[(exact, exact), (over, "w"), ("w", over)], valid=held, test=held)
    task = make(config)
    assert "1 used" in task.notes()[0]
    assert "2 for more tokens than task.max_length=13" in task.notes()[0]
    assert "longest source 14 tokens, longest target 14" in task.notes()[0]
    assert task.max_target == 14
    source, target = in_order(task.evaluation("valid"))
    assert [len(ids) for ids in source] == [14, 14, 2]
    assert [len(ids) for ids in target] == [14, 14, 2]
    assert "2 lines cut to task.max_length=13" in next(note for note in task.notes() if note.startswith("valid:"))
    # A perfect but cut output is measured against the full reference.
    assert task.measure("valid", tokens(task, [exact, over, "w"]))["bleu"] == pytest.approx(100)
    short = task.measure("valid", tokens(task, [exact, exact, "w"]))["bleu"]
    assert isinstance(short, float)
    assert short < 99


def test_a_line_of_fifty_thousand_characters_is_one_line(tmp_path: Path) -> None:
    config = replace(settings(tmp_path, test=[("a" * 50_000, "x"), ("a cat", "un chat")]), tokenizer="char")
    task = make(config)
    source, _ = in_order(task.evaluation("test"))
    assert [len(ids) for ids in source] == [14, 6]
    assert task.lines("test", tokens(task, ["un", "chat"])) == ["un", "chat"]


def test_as_many_lines_as_the_source_has_in_its_order_blank_for_blank(tmp_path: Path) -> None:
    held = [
        (" ".join(f"w{i}" for i in range(n)), f"ref {n} {i}") for i, n in enumerate((9, 1, 5, 0, 7, 2, 2, 0, 12, 1, 4))
    ]
    train = [*held[:3], held[4], *held[8:]]
    task = make(settings(tmp_path, train=train, test=held))
    # The words of every source line, as a model that copies would put them out.
    by_place: dict[int, np.ndarray] = {}
    found = task.evaluation("test")
    rows = [row for batch in found.batches for row in batch.source_bs]
    for place, row in zip(found.order_n.tolist(), rows, strict=True):
        if place >= 0:
            by_place[place] = row[row != PAD]
    assert sorted(by_place) == list(range(11))
    assert [len(by_place[i]) - 1 for i in range(11) if held[i][0]] == [9, 1, 5, 7, 2, 2, 12, 1, 4]
    output = [["le", "chat", "x y", "boom", "z", "a", "b", "boom", "c", "d", "e"][i] for i in range(11)]
    task = make(settings(tmp_path, train=[("s", line) for line in output], test=held))
    spoken = task.lines("test", tokens(task, output))
    assert spoken == ["le", "chat", "x y", "", "z", "a", "b", "", "c", "d", "e"]


def test_blank_sources_add_nothing_to_the_loss_and_count_in_bleu(tmp_path: Path) -> None:
    held: Lines = [("the cat", "a b c d e f g h"), ("", "p q r s"), ("a dog", "")]
    task = make(settings(tmp_path, train=[("the cat", "a b c d e f g h")], test=held))
    source, target = in_order(task.evaluation("test"))
    assert source[1] == target[1] == []
    assert target[2] == [EOS]
    note = next(note for note in task.notes() if note.startswith("test:"))
    assert "1 blank source, 1 empty reference" in note
    measured = task.measure("test", tokens(task, ["a b c d e f g h", "a b c d", ""]))
    assert measured["bleu"] == pytest.approx(60.65, abs=0.005)


def test_scores_are_of_whole_lines_also_in_char_mode(tmp_path: Path) -> None:
    reference = "the small cat slept today"
    config = settings(tmp_path, train=[("x", reference), ("x", "ps")], test=[("x", reference)])
    task = make(replace(config, tokenizer="char", max_length=31))
    output = tokens(task, ["the small cat sleeps today"])
    measured = task.measure("test", output)
    assert measured["bleu"] == pytest.approx(42.73, abs=0.005)
    assert list(measured) == ["bleu", "chrf", "bleu_unseen", "unknown_tokens", "bleu_signature", "chrf_signature"]
    assert "tok:none" in str(measured["bleu_signature"])
    # What follows EOS does not count.
    assert task.measure("test", np.concatenate([output, output], axis=1)) == measured


def test_overlap_with_train_is_counted_and_scored_apart(tmp_path: Path) -> None:
    held: Lines = [("the  cat sat", "a b c d"), ("new", "p q r s"), ("newer", "a b c d e")]
    task = make(settings(tmp_path, train=[*PAIRS, ("w", "a b c d e p q r s")], valid=held[:1], test=held))
    assert any(note.startswith("test: 3 pairs, 1 with a source that also stands in train") for note in task.notes())
    measured = task.measure("test", tokens(task, ["le", "p q r s", "a b c d e"]))
    assert measured["bleu_unseen"] == pytest.approx(100)
    assert measured["bleu"] != pytest.approx(100)
    assert task.measure("valid", tokens(task, ["a b c d"]))["bleu_unseen"] is None


def test_unknown_tokens_are_spelt_and_counted_up_to_eos(tmp_path: Path) -> None:
    task = make(settings(tmp_path, test=[("a", "x"), ("", "y")]))
    output = np.array([[UNK, 4, BOS, UNK, EOS, UNK], [UNK, UNK, UNK, UNK, UNK, UNK]])
    assert task.lines("test", output) == [f"<unk> {task.sides[1].vocabulary.tokens[4]} <unk>", ""]
    assert task.measure("test", output)["unknown_tokens"] == 2


@pytest.mark.parametrize("number", [-1, 99])
def test_output_ids_outside_the_vocabulary_are_refused(tmp_path: Path, number: int) -> None:
    task = make(settings(tmp_path))
    output = np.full((len(PAIRS), 2), 4)
    output[3, 1] = number
    with pytest.raises(ValueError, match=f"id {number} is outside the vocabulary of {task.target_vocab} ids"):
        task.lines("test", output)


def test_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 rows of output for 5 lines"):
        make(settings(tmp_path)).lines("test", np.full((4, 2), EOS))


def test_evaluation_sets_hold_the_same_for_every_batch_size(tmp_path: Path) -> None:
    config = settings(tmp_path, valid=[*PAIRS, ("", ""), *PAIRS])
    expected = in_order(make(config).evaluation("valid"))
    assert len(expected[0]) == 11
    for size in (2, 3, 7, 11):
        found = make(config, eval_batch_size=size).evaluation("valid")
        assert in_order(found) == expected
        assert all(len(batch.source_bs) == len(batch.target_bt) == size for batch in found.batches)
        assert len(found.order_n) == size * len(found.batches)


def test_stored_vocabularies_are_used_even_if_the_data_changed(tmp_path: Path) -> None:
    cell = tmp_path / "cell"
    config = settings(tmp_path)
    first = make(config)
    first.write(cell)
    before = [(cell / name).read_bytes() for name in ("source.vocab", "target.vocab")]
    changed = settings(tmp_path, train=[("new words here", "tout est neuf"), *PAIRS[:2]])
    again = make(changed, stored=cell)
    assert [side.vocabulary.tokens for side in again.sides] == [side.vocabulary.tokens for side in first.sides]
    assert any(str(cell) in note for note in again.notes())
    again.write(cell)
    assert [(cell / name).read_bytes() for name in ("source.vocab", "target.vocab")] == before
    assert make(changed).sides[0].vocabulary.tokens != first.sides[0].vocabulary.tokens


def test_one_file_two_files_and_packed_files_give_the_same_task(tmp_path: Path) -> None:
    config = settings(tmp_path)
    tsv = tmp_path / "train.tsv"
    tsv.write_bytes("\r\n".join(f"{s}\t{t}" for s, t in PAIRS).encode("utf-8-sig"))
    packed = tmp_path / "train.tsv.gz"
    packed.write_bytes(gzip.compress(tsv.read_bytes()))
    expected = make(config)
    for path in (tsv, packed):
        task = make(replace(config, train=(str(path),)))
        assert [side.vocabulary.tokens for side in task.sides] == [side.vocabulary.tokens for side in expected.sides]
        for step in range(5):
            for ours, theirs in zip(task.batch(1, step), expected.batch(1, step), strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_text_that_is_not_split_into_words_is_noticed(tmp_path: Path) -> None:
    lines = [(f"今日は{word}晴れです。", f"it is{word}fine") for word in "あいうえおかきくけこ"]
    config = settings(tmp_path, train=lines, valid=lines[:3], test=lines[:3])
    assert any("task.tokenizer=char" in note for note in make(config).notes())
    char = make(replace(config, tokenizer="char", bleu_tokenize="char"))
    assert not any(note.startswith("warning") for note in char.notes())
    assert char.lines("test", tokens(char, [pair[1] for pair in lines[:3]])) == [pair[1] for pair in lines[:3]]


def test_many_unknown_words_are_noticed(tmp_path: Path) -> None:
    few, many = ("the cat sat a dog new", "le chat dort un"), ("the cat new newer", "le chat dort un")
    assert not any("task.tokenizer=char" in note for note in make(settings(tmp_path, valid=[few])).notes())
    assert any("task.tokenizer=char" in note for note in make(settings(tmp_path, valid=[many])).notes())


def test_a_set_too_short_for_bleu_is_noticed(tmp_path: Path) -> None:
    task = make(settings(tmp_path, test=[("a", "un chat dort"), ("the", "le")]))
    warned = [note for note in task.notes() if "BLEU is 0" in note]
    assert len(warned) == 1
    assert "no test reference has four tokens" in warned[0]


def test_notes_are_single_lines(tmp_path: Path) -> None:
    notes = make(settings(tmp_path)).notes()
    assert [note.split(":")[0] for note in notes] == [
        "train",
        "vocabularies of train, word tokens seen 1 time or more",
        "batches",
        "valid",
        "test",
    ]
    assert not any("\n" in note for note in notes)


@pytest.mark.parametrize("skipped", [[], [("", "x"), (" ".join("w" * 99), "x")]])
def test_a_batch_that_the_text_cannot_fill_is_refused(tmp_path: Path, skipped: Lines) -> None:
    config = settings(tmp_path, train=[*PAIRS, *skipped], valid=PAIRS[:2], test=[*PAIRS, ("", "")])
    make(config, batch_size=5, eval_batch_size=99)
    with pytest.raises(UserError) as caught:
        make(config, batch_size=6)
    line = "run.batch_size = 6 is above the 5 pairs that train has after skipping: give at most 5, or more text"
    assert str(caught.value) == line


@pytest.mark.parametrize(("side", "least", "most"), [("source", 4, 3), ("target", 3, 2)])
def test_a_vocabulary_without_a_word_is_refused(tmp_path: Path, side: str, least: int, most: int) -> None:
    config = settings(tmp_path, train=[("a b", "x"), ("a c", "x"), ("a d", "y")])
    make(replace(config, min_count=2))
    with pytest.raises(UserError) as caught:
        make(replace(config, min_count=least))
    line = f"task.min_count = {least} leaves no {side} token: the most frequent of train stands there {most} times"
    assert str(caught.value) == f"{line}; give at most {most}"


def test_data_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to train on"):
        make(settings(tmp_path, train=[("a", ""), (" ".join("w" * 99), "x")]))
    with pytest.raises(UserError, match=r"task\.valid: every source line is blank"):
        make(settings(tmp_path, valid=[("", "x")]))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_paths_not_set_are_named(tmp_path: Path, split: str) -> None:
    with pytest.raises(UserError, match=rf"task\.{split} is not set; .*--config\.task\.{split}=a\.en,a\.ja"):
        make(replace(settings(tmp_path), **{split: ()}))  # type: ignore[arg-type]


def test_a_blank_line_has_a_blank_translation(tmp_path: Path) -> None:
    task = make(settings(tmp_path))
    lines = ["the cat", "", "zzz", "a dog"]
    output = tokens(task, ["le chat", "le", "un", "chien"])
    assert translations(lines, task.sides[1], output) == ["le chat", "", "un", "chien"]
