"""Toy translation against a second translator, tests/toy_translator.py."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.toy_translator import ADJECTIVES, LISTS, TIMES, translate
from train.errors import UserError
from train.schema import TaskSettings
from train.tasks import EOS, FIRST_SYMBOL, PAD, TASKS, Batch, toy_lexicon, toy_translation
from train.tasks.toy_grammar import grammar
from train.tasks.toy_translation import ToyTranslation
from train.text.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parent.parent
SHORTEST, LONGEST = 2, 21


def make(
    *,
    low: int = 1,
    high: int = LONGEST,
    valid: int = 97,
    test: int = 89,
    batch_size: int = 37,
    eval_batch_size: int = 7,
) -> ToyTranslation:
    settings = TaskSettings(
        name="toy_translation",
        symbols=1,
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
    task = TASKS["toy_translation"](settings, batch_size=batch_size, eval_batch_size=eval_batch_size)
    assert isinstance(task, ToyTranslation)
    return task


KNOWN: dict[str, str | None] = {
    "cats sleep": "neko wa ne masu",
    "an old cat does not sleep": "furui neko wa ne masen",
    "the cat eats the fish": "neko wa sakana o tabe masu",
    "the cat that eats the fish sleeps": "sakana o taberu neko wa ne masu",
    "the cat sees the fish that the dogs do not eat": "neko wa inu ga tabenai sakana o mi masu",
    "my dog does not give these books to a child today": "kyou watashi no inu wa kodomo ni kono hon o age masen",
    "this teacher reads in the garden": None,
    "the teacher goes to the school": "sensei wa gakkou ni iki masu",
    "the children sing in the big garden": "kodomo wa ookii niwa de utai masu",
}


@pytest.mark.parametrize("source", KNOWN)
def test_the_translator_of_this_test_knows_the_language(source: str) -> None:
    if KNOWN[source] is None:
        with pytest.raises(AssertionError):
            translate(source.split())
    else:
        assert " ".join(translate(source.split())) == KNOWN[source]


def sentences(batches: Iterable[Batch]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Source and target words of batches, padding rows left out; EOS and padding are where they have to be."""
    pairs = []
    for batch in batches:
        for rows in zip(batch.source_bs, batch.target_bt, strict=True):
            if not rows[0].any():
                assert not rows[1].any()
                continue
            pair = []
            for row, vocabulary in zip(rows, (grammar().source, grammar().target), strict=True):
                ids = row.tolist()
                end = ids.index(EOS)
                assert ids[end + 1 :] == [PAD] * (len(ids) - end - 1)
                assert min(ids[:end]) >= FIRST_SYMBOL
                pair.append(tuple(vocabulary.decode(ids)))
            pairs.append((pair[0], pair[1]))
    return pairs


def trained(task: ToyTranslation, seed: int, steps: int) -> list[tuple[str, ...]]:
    return [source for source, _ in sentences(task.batch(seed, step) for step in range(steps))]


@pytest.mark.parametrize(("low", "high"), [(1, 30), (2, 2), (3, 7), (13, 13), (20, 21)])
def test_target_is_the_translation_of_the_source(low: int, high: int) -> None:
    task = make(low=low, high=high, batch_size=997, valid=1, test=1)
    pairs = sentences(task.batch(5, step) for step in range(4))
    pairs += sentences([*task.evaluation("valid").batches, *task.evaluation("test").batches])
    for source, target in pairs:
        assert list(target) == translate(list(source)), " ".join(source)
    lengths = {len(source) for source, _ in pairs}
    assert (min(lengths), max(lengths)) == (max(low, SHORTEST), min(high, LONGEST))


def test_the_docstrings_example() -> None:
    lines = [line.split()[1:-1] for line in (toy_translation.__doc__ or "").splitlines() if "<eos>" in line]
    assert translate(lines[0]) == lines[1]


def test_everything_the_grammar_has_is_drawn() -> None:
    pairs = sentences(make(batch_size=997).batch(1, step) for step in range(20))
    source_words = {word for source, _ in pairs for word in source}
    target_words = {word for _, target in pairs for word in target}
    assert source_words == set(grammar().source.tokens[4:])
    assert target_words == set(grammar().target.tokens[4:])
    assert len(source_words) >= 150
    lengths = Counter(len(source) for source, _ in pairs)
    assert sorted(lengths) == list(range(SHORTEST, LONGEST + 1))
    for count in lengths.values():
        share = count / len(pairs)
        assert abs(share - 1 / len(lengths)) < 5 * np.sqrt(1 / len(lengths) / len(pairs))
    denied = sum(target[-1] == "masen" for _, target in pairs) / len(pairs)
    assert 0.4 < denied < 0.6
    # A "not" in the source must not give the polarity away: relative clauses have their own.
    misleading = sum("not" in source and target[-1] == "masu" for source, target in pairs) / len(pairs)
    assert misleading > 0.1


def test_every_kind_of_relative_clause_is_drawn_at_subject_and_object() -> None:
    plain, negated = ({entry[form] for entries in LISTS[:2] for entry in entries} for form in (3, 4))
    kinds = Counter[tuple[bool, str, bool]]()
    for _, target in sentences(make(batch_size=997).batch(1, step) for step in range(5)):
        for place, word in enumerate(target):
            if word in plain | negated:
                before = target[place - 1] if place and target[place - 1] in ("ga", "o") else "alone"
                kinds["wa" in target[:place], before, word in negated] += 1
    assert set(kinds) == set(product((False, True), ("ga", "o", "alone"), (False, True)))
    assert min(kinds.values()) > 20


def test_words_are_spelt_apart() -> None:
    verbs = [entry for entries in LISTS for entry in entries]
    pairs = (*toy_lexicon.PLACES, *toy_lexicon.ADJECTIVES, *toy_lexicon.TIMES)
    nouns = (*toy_lexicon.ANIMATES, *toy_lexicon.THINGS)
    small = ["a", "an", "the", "this", "these", "my", "that", "do", "does", "not", "to", "in"]
    source = [*small, *(e[0] for e in (*pairs, *nouns, *verbs)), *(e[1] for e in (*nouns, *verbs))]
    particles = ["wa", "ga", "o", "ni", "de", "no", "watashi", "kono", "masu", "masen"]
    target = [*particles, *(entry[-1] for entry in (*pairs, *nouns)), *(form for entry in verbs for form in entry[2:])]
    assert max(Counter(source).values()) == max(Counter(target).values()) == 1
    assert set(grammar().source.tokens[4:]) == set(source)
    assert set(grammar().target.tokens[4:]) == set(target)


def two_and_three_words() -> set[tuple[str, ...]]:
    """Every sentence of two or three words, written down from the grammar's description."""
    singular, plural = ([entry[number] for entry in toy_lexicon.ANIMATES] for number in (0, 1))
    objects = plural + [entry[1] for entry in toy_lexicon.THINGS]
    sleep, sleeps = ([entry[number] for entry in toy_lexicon.INTRANSITIVES] for number in (0, 1))
    see = [entry[0] for entry in toy_lexicon.TRANSITIVES]
    articles = [("an" if noun[0] in "aeiou" else "a", noun) for noun in singular]
    return {
        *product(plural, sleep),
        *product(("the", "these", "my"), plural, sleep),
        *product(("the", "this", "my"), singular, sleeps),
        *((article, noun, verb) for (article, noun), verb in product(articles, sleeps)),
        *product(ADJECTIVES, plural, sleep),
        *product(plural, sleep, TIMES),
        *product(plural, see, objects),
    }


def test_sentences_are_counted_right() -> None:
    g = grammar()
    by_hand = two_and_three_words()
    assert sum(g.sentences_k[g.length_k <= 3].tolist()) == len(by_hand) == 66_640
    assert sum(g.sentences_k.tolist()) > 10**6
    assert min(g.sentences_k.tolist()) > 0


def test_every_short_sentence_is_drawn_or_set_apart() -> None:
    task = make(low=2, high=3, batch_size=9973)
    drawn_ns = np.unique(np.concatenate([task.batch(3, step).source_bs for step in range(60)]), axis=0)
    seen = {tuple(grammar().source.decode(row)) for row in drawn_ns}
    by_hand = two_and_three_words()
    assert seen <= by_hand
    # 1 in 32 is set apart; of the rest, few are so rare that 600 000 draws miss them.
    assert 0.9 < len(seen) / len(by_hand) < 1 - 1 / 64


@pytest.mark.parametrize("seed", [0, 20170612])
def test_training_never_draws_an_evaluation_sentence(seed: int) -> None:
    # Short sentences, so that sets that were not kept apart would be found to overlap.
    task = make(low=2, high=3, valid=199, test=211, batch_size=997)
    valid, test = ([s for s, _ in sentences(task.evaluation(split).batches)] for split in ("valid", "test"))
    assert (len(valid), len(test)) == (len(set(valid)), len(set(test))) == (199, 211)
    assert not set(valid) & set(test)
    drawn = trained(task, seed, 60)
    assert len(drawn) > 50_000
    assert not set(drawn) & {*valid, *test}


def test_a_batch_is_a_function_of_seed_and_step_alone() -> None:
    task, other = make(), make()
    forwards = {(seed, step): task.batch(seed, step) for seed in (0, 1, 2) for step in range(5)}
    other.evaluation("valid")
    for seed, step in reversed(forwards):
        again = other.batch(seed, step)
        np.testing.assert_array_equal(again.source_bs, forwards[seed, step].source_bs)
        np.testing.assert_array_equal(again.target_bt, forwards[seed, step].target_bt)
    assert len({batch.source_bs.tobytes() for batch in forwards.values()}) == 15


@pytest.mark.parametrize(("low", "high", "source", "target"), [(1, 30, 21, 24), (2, 2, 2, 4), (5, 6, 6, None)])
def test_one_shape_holds_every_sentence(low: int, high: int, source: int, target: int | None) -> None:
    task = make(low=low, high=high, valid=1, test=1, batch_size=4999)
    batch = task.batch(0, 0)
    assert batch.source_bs.dtype == batch.target_bt.dtype == np.int32
    assert (batch.source_bs.shape, batch.target_bt.shape) == tuple((4999, width) for width in task.shape(0))
    assert task.shape(0) == task.shape(10**6)
    assert task.shape(0)[1] == task.max_target
    assert task.shape(0)[0] == source + 1
    # As wide as needed and no wider: some sentence fills the source, and with enough of them the target.
    assert (batch.source_bs[:, -1] == EOS).any()
    if target is not None:
        assert task.max_target == target + 1
    else:
        assert (batch.target_bt[:, -1] == EOS).any()
    assert batch.source_bs.max() < task.source_vocab
    assert batch.target_bt.max() < task.target_vocab


@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluation_is_the_same_in_batches_of_any_size(split: str) -> None:
    size = {"valid": 97, "test": 89}[split]
    whole = make(eval_batch_size=size).evaluation(split).batches[0]
    for rows in (1, 2, 3, 5, 8, 97):
        task = make(eval_batch_size=rows, batch_size=rows)
        cut = task.evaluation(split)
        assert task.evaluation(split) is cut
        assert all(len(batch.source_bs) == len(batch.target_bt) == rows for batch in cut.batches)
        assert cut.order_n.tolist() == [*range(size), *[-1] * (-size % rows)]
        source_ns = np.concatenate([batch.source_bs for batch in cut.batches])
        target_nt = np.concatenate([batch.target_bt for batch in cut.batches])
        np.testing.assert_array_equal(source_ns[:size], whole.source_bs)
        np.testing.assert_array_equal(target_nt[:size], whole.target_bt)
        assert not source_ns[size:].any()
        assert not target_nt[size:].any()


@pytest.mark.parametrize(("low", "high"), [(22, 30), (1, 1), (9, 5)])
def test_lengths_out_of_reach_are_refused(low: int, high: int) -> None:
    with pytest.raises(UserError, match=f"min_length={low}, task.max_length={high}: .* 2 to 21 words"):
        make(low=low, high=high)


def test_more_evaluation_sentences_than_there_are_to_set_apart_are_refused() -> None:
    with pytest.raises(UserError, match=r"task.test_size=89: toy_translation has 340 sentences of 2 to 2 words"):
        make(low=2, high=2, valid=1)
    assert len(sentences(make(low=2, high=2, valid=1, test=1).evaluation("test").batches)) == 1


def test_lines_and_negation_accuracy() -> None:
    task = make()
    order = task.evaluation("valid")
    target_nt = np.concatenate([batch.target_bt for batch in order.batches])[order.order_n >= 0]
    expected = [" ".join(target) for _, target in sentences(order.batches)]
    assert task.lines("valid", target_nt) == expected
    assert task.measure("valid", target_nt) == {"negation_accuracy": 1.0}

    masu, masen = grammar().target.encode(["masu", "masen"])
    share = np.mean([line.endswith(" masen") for line in expected])
    assert task.notes()[0] == f"valid: masen ends {round(share * 97)} of 97 sentences"
    always = np.where(np.isin(target_nt, [masu, masen]), masen, target_nt)
    assert task.measure("valid", always)["negation_accuracy"] == pytest.approx(share)
    # What follows EOS does not count, a row that never ends counts by its last word, and an empty one is wrong.
    tail = np.concatenate([target_nt, np.full((97, 2), masen)], axis=1)
    assert task.measure("valid", tail) == {"negation_accuracy": 1.0}
    endless = np.where(target_nt == EOS, grammar().target.encode(["neko"])[0], target_nt)
    endless[:, -1] = masen
    assert task.measure("valid", endless)["negation_accuracy"] == pytest.approx(share)
    assert task.measure("valid", np.full_like(target_nt, EOS)) == {"negation_accuracy": 0.0}
    assert task.lines("valid", np.full_like(target_nt, EOS)) == [""] * 97
    with pytest.raises(ValueError, match="96 rows of output for 97 sentences of valid"):
        task.measure("valid", target_nt[:96])


def test_notes_tell_of_a_bound_out_of_reach() -> None:
    assert len(make(high=LONGEST).notes()) == 2
    assert make(high=40).notes()[2] == "task.max_length=40: the longest sentence has 21 words"


def test_vocabulary_files_hold_one_token_a_line(tmp_path: Path) -> None:
    task = make()
    task.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source.vocab", "target.vocab"]
    for side, size in (("source", task.source_vocab), ("target", task.target_vocab)):
        tokens = (tmp_path / f"{side}.vocab").read_text(encoding="utf-8").splitlines()
        assert tokens[:4] == ["<pad>", "<bos>", "<eos>", "<unk>"]
        assert len(tokens) == len(set(tokens)) == size
        assert Vocabulary.read(tmp_path / f"{side}.vocab").tokens == getattr(grammar(), side).tokens == tuple(tokens)


PROGRAM = """
import hashlib, pathlib, sys
from tests.test_toy_translation import make
task = make()
task.write(pathlib.Path(sys.argv[1]))
arrays = [array for batch in (task.batch(1, 2), *task.evaluation("test").batches) for array in batch]
print(hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest())
"""


@pytest.mark.slow
def test_nothing_depends_on_the_order_of_pythons_sets(tmp_path: Path) -> None:
    left = set()
    for seed in ("1", "2", "3"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM, str(folder)]
        digest = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        left.add((digest, *((folder / f"{side}.vocab").read_bytes() for side in ("source", "target"))))
    assert len(left) == 1
