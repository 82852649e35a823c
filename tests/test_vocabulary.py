import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import train.tasks
from train.errors import UserError
from train.text import vocabulary
from train.text.side import Side, read_sides, write_sides
from train.text.tokenise import TOKENISERS, tokeniser
from train.text.vocabulary import BOS, EOS, PAD, SPECIAL, UNK, Vocabulary

ROOT = Path(__file__).resolve().parent.parent


def build(text: str, *, min_count: int = 1, max_vocab: int = 0) -> Vocabulary:
    return Vocabulary.build(Counter(text.split(" ")), min_count=min_count, max_vocab=max_vocab)


def test_special_ids_are_those_of_the_tasks() -> None:
    names = ("PAD", "BOS", "EOS", "UNK")
    assert [getattr(vocabulary, name) for name in names] == [getattr(train.tasks, name) for name in names]
    assert len(SPECIAL) == train.tasks.FIRST_SYMBOL


def test_order_is_by_count_then_code_point() -> None:
    assert build("b a c c Z é 犬 a").tokens == (*SPECIAL, "a", "c", "Z", "b", "é", "犬")


def test_limits_count_content_and_cut_a_tie_by_code_point() -> None:
    assert build("d c b a x x", max_vocab=3).tokens == (*SPECIAL, "x", "a", "b")
    assert build("b a b a c", min_count=2).tokens == (*SPECIAL, "a", "b")
    assert build("b b b a", min_count=2, max_vocab=5).tokens == (*SPECIAL, "b")


def test_unknown_tokens_are_unk_and_known_ones_come_back() -> None:
    known = build("the cat sat")
    assert known.encode(["cat", "zzz"]) == [4, UNK]
    assert known.decode(known.encode(["the", "cat"])) == ["the", "cat"]


def test_decode_stops_at_eos_and_drops_pad_and_bos() -> None:
    known = build("a b")
    assert known.decode([BOS, 4, PAD, UNK, EOS, 5, EOS, PAD]) == ["a", "<unk>"]
    assert known.decode([]) == []


@pytest.mark.parametrize("number", [6, 99, -1, -11])
def test_ids_outside_are_refused_naming_id_and_size(number: int) -> None:
    with pytest.raises(ValueError, match=rf"id {number} is outside the vocabulary of 6 ids"):
        build("a b").decode([4, EOS, number])


def test_text_that_spells_special_tokens_gets_ordinary_ids(tmp_path: Path) -> None:
    known = build("<unk> <unk> <pad> a <eos>")
    path = tmp_path / "source.vocab"
    known.write(path)
    for vocab in (known, Vocabulary.read(path)):
        ids = vocab.encode(["<unk>", "<pad>", "<eos>", "a", "<bos>"])
        assert ids == [4, 6, 5, 7, UNK]
        assert vocab.decode(ids) == ["<unk>", "<pad>", "<eos>", "a", "<unk>"]


def test_the_file_has_a_token_a_line_and_reads_back_to_the_same_ids(tmp_path: Path) -> None:
    tokens = [" ", "\u2028", "\x85", "\u3000", "\u00a0", "\x0b", "犬", "é", "e", "\u0301", "\U0001f600"]
    known, path = Vocabulary(tokens), tmp_path / "target.vocab"
    known.write(path)
    assert path.read_bytes().decode().split("\n") == [*SPECIAL, *tokens, ""]
    assert Vocabulary.read(path).tokens == known.tokens
    assert Vocabulary.read(path).encode(tokens) == list(range(4, 4 + len(tokens)))
    assert [file.name for file in tmp_path.iterdir()] == ["target.vocab"]


@pytest.mark.parametrize(
    "data",
    [b"", b"a\nb\n", b"<pad>\n<bos>\n<eos>\n<unk>\na", b"<pad>\n<bos>\n<eos>\n<unk>\na\na\n", b"<pad>\n\xff\n"],
    ids=["empty", "no specials", "torn", "twice", "not text"],
)
def test_a_file_that_is_no_vocabulary_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "source.vocab"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"source\.vocab"):
        Vocabulary.read(path)


def test_sides_are_written_and_read_together(tmp_path: Path) -> None:
    folder = tmp_path / "cell" / "deep"
    sides = Side(TOKENISERS["word"], build("a b")), Side(TOKENISERS["word"], build("x y z"))
    write_sides(folder, sides)
    assert sorted(file.name for file in folder.iterdir()) == ["source.vocab", "target.vocab"]
    read = read_sides(folder, "word")
    assert [side.vocabulary.tokens for side in read] == [side.vocabulary.tokens for side in sides]
    (folder / "target.vocab").unlink()
    with pytest.raises(UserError, match=r"cannot read the vocabulary .*target\.vocab"):
        read_sides(folder, "word")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    side = Side(TOKENISERS["word"], build("a"))
    with pytest.raises(UserError, match="cannot write a vocabulary"):
        write_sides(tmp_path / "file" / "cell", (side, side))


@pytest.mark.parametrize(
    "line", ["今日は晴れです。", "ｱｲｳＡ①㌔…\ufe30x\u3000yﬁ", "é e\u0301", "a  b", "N'est-ce\u202f?"]
)
def test_characters_come_back_exactly(line: str) -> None:
    cut = TOKENISERS["char"]
    side = Side(cut, Vocabulary.build(Counter(cut.split(line)), min_count=1, max_vocab=0))
    assert side.decode(np.array([side.encode(line)])) == [line]
    assert len(side.encode(line)) == len(line)


def test_words_are_parted_by_spaces_alone_and_joined_by_one() -> None:
    cut = TOKENISERS["word"]
    line = " i 'm   x\u3000y matin\u202f? . "
    assert cut.split(line) == ["i", "'m", "x\u3000y", "matin\u202f?", "."]
    assert cut.join(cut.split(line)) == "i 'm x\u3000y matin\u202f? ."


def test_an_unknown_tokenizer_is_refused_with_the_names() -> None:
    with pytest.raises(UserError, match="char, word"):
        tokeniser("bpe")


SCRIPT = """
import sys
from pathlib import Path
from train.schema import TaskSettings
from train.tasks.parallel_text import ParallelText
folder = Path(sys.argv[1])
pair = (str(folder / "a.src"), str(folder / "a.tgt"))
settings = TaskSettings(name="parallel_text", symbols=1, min_length=1, max_length=31, valid_size=1, test_size=1,
    train=pair, valid=pair, test=pair, tokenizer="word", min_count=1, max_vocab=7, bleu_tokenize="none")
task = ParallelText(settings, batch_size=2, eval_batch_size=2)
task.write(folder / sys.argv[2])
sys.stdout.buffer.write(b"".join(array.tobytes() for step in range(3) for array in task.batch(7, step)))
"""


def test_ids_do_not_depend_on_hash_seed_or_locale(tmp_path: Path) -> None:
    """Every word occurs once, so that all order is tie-breaking; emoji and combining accents under the C locale."""
    (tmp_path / "a.src").write_bytes("zeta eta theta\n犬 猫 é e\u0301 \U0001f600\niota kappa\n".encode())
    (tmp_path / "a.tgt").write_bytes("un deux trois\nquatre \U0001f431\ncinq sept huit\n".encode())
    base = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    cases = [{"PYTHONHASHSEED": str(seed), "LC_ALL": "C.UTF-8"} for seed in (1, 2, 3)]
    cases.append({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    seen = set()
    for number, extra in enumerate(cases):
        command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), str(number)]
        ids = subprocess.run(command, env={**base, **extra}, cwd=ROOT, check=True, capture_output=True).stdout
        files = [(tmp_path / str(number) / name).read_bytes() for name in ("source.vocab", "target.vocab")]
        assert len(files[0].splitlines()) == 4 + 7  # cut through words of one count
        seen.add((ids, *files))
    assert len(seen) == 1
