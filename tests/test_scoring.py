import sys

import pytest

from train.errors import UserError
from train.text.scoring import BLEU_TOKENIZERS, Scorer

WORDS = Scorer("none")


@pytest.mark.parametrize(
    ("outputs", "references", "expected"),
    [
        (["the small cat sleeps today"], ["the small cat slept today"], 42.73),
        (["a b c"], ["a b c"], 0.0),
        (["a b c d"], ["a b c d"], 100.0),
        (["a b c d e f g h", ""], ["a b c d e f g h", "p q r s"], 60.65),
        (["", ""], ["a b c d e f g h", "p q r s"], 0.0),
        (["a b c d", "x y"], ["a b c d", ""], 84.09),
        ([""], [""], 0.0),
    ],
)
def test_known_bleu(outputs: list[str], references: list[str], expected: float) -> None:
    assert WORDS.bleu(outputs, references) == pytest.approx(expected, abs=0.005)


def test_pieces_of_words_would_score_far_higher() -> None:
    """Why lines are put together before they are scored."""
    output, reference = (
        " ".join(line.replace(" ", "_")) for line in ("the small cat sleeps today", "the small cat slept today")
    )
    assert WORDS.bleu([output], [reference]) == pytest.approx(83.0, abs=0.1)


def test_the_order_of_the_lines_does_not_change_a_score() -> None:
    outputs, references = ["a b c d e", "", "p q x s", "z"], ["a b c d e", "m n", "p q r s", ""]
    for score in (WORDS.bleu, WORDS.chrf):
        assert score(outputs, references) == score(outputs[::-1], references[::-1])


def test_chrf_is_within_bounds_and_defined_at_the_edges() -> None:
    assert WORDS.chrf(["the cat"], ["the cat"]) == pytest.approx(100)
    assert WORDS.chrf([""], [""]) == 0
    assert WORDS.chrf(["the cat", "x"], ["the cat", ""]) == pytest.approx(100)
    assert 0 < (WORDS.chrf(["the cat"], ["the dog"]) or 0) < 100


def test_no_line_has_no_score() -> None:
    assert WORDS.bleu([], []) is None
    assert WORDS.chrf([], []) is None


def test_text_split_into_words_raises_no_advice(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["it is a dog ."] * 200
    assert WORDS.bleu(lines, lines) == pytest.approx(100)
    assert not caplog.records


@pytest.mark.parametrize("name", ["13a", "char", "none"])
def test_signatures_name_the_tokenizer(name: str) -> None:
    bleu, chrf = Scorer(name).signatures()
    assert f"tok:{name}" in bleu
    assert bleu.startswith("nrefs:1|")
    assert "nc:6" in chrf


def test_tokens_are_counted_as_bleu_counts_them() -> None:
    assert Scorer("none").tokens("Where is it? 今日は") == 4
    assert Scorer("13a").tokens("Where is it?") == 4
    assert Scorer("char").tokens("今日は") == 3


def test_japanese_words_are_found() -> None:
    pytest.importorskip("MeCab", reason='needs pip install "sacrebleu[ja]"')
    scorer = Scorer("ja-mecab")
    assert scorer.tokens("今日は晴れです。") == 5
    assert scorer.bleu(["今日は晴れです。"], ["今日は晴れです。"]) == pytest.approx(100)
    assert "tok:ja-mecab" in scorer.signatures()[0]


def test_a_missing_dictionary_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "MeCab", None)
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ja_mecab", raising=False)
    with pytest.raises(UserError, match=r'pip install "sacrebleu\[ja\]"') as caught:
        Scorer("ja-mecab")
    assert "\n" not in str(caught.value)


def test_an_unknown_tokenizer_is_refused_with_the_names() -> None:
    with pytest.raises(UserError, match=", ".join(BLEU_TOKENIZERS)):
        Scorer("mecab")
