import gzip
from pathlib import Path

import pytest

from train.errors import UserError
from train.text.reading import clean, read_pairs


def two(folder: Path, source: bytes, target: bytes) -> tuple[str, str]:
    paths = folder / "text.src", folder / "text.tgt"
    for path, data in zip(paths, (source, target), strict=True):
        path.write_bytes(data)
    return str(paths[0]), str(paths[1])


def fails(paths: tuple[str, ...], *words: str) -> str:
    with pytest.raises(UserError) as caught:
        read_pairs(paths, "task.train")
    message = str(caught.value)
    assert "\n" not in message
    for word in ("task.train", *words):
        assert word in message
    return message


def test_lines_pair_up_and_the_last_may_lack_its_line_end(tmp_path: Path) -> None:
    assert read_pairs(two(tmp_path, b"a\nb", b"x\ny\n"), "task.train") == (["a", "b"], ["x", "y"])


def test_an_empty_line_keeps_its_place(tmp_path: Path) -> None:
    pairs = read_pairs(two(tmp_path, b"a\n\nc\n", b"x\ny\nz\n"), "task.train")
    assert list(zip(*pairs, strict=True)) == [("a", "x"), ("", "y"), ("c", "z")]


@pytest.mark.parametrize("blank", ["   ", "\t ", "\u3000", "\ufeff", " \ufeff\u00a0"])
def test_a_line_of_white_space_is_empty(tmp_path: Path, blank: str) -> None:
    pairs = read_pairs(two(tmp_path, f"a\n{blank}\nb\n".encode(), b"x\ny\nz\n"), "task.train")
    assert pairs.source == ["a", "", "b"]


def test_trailing_empty_lines_count_as_lines(tmp_path: Path) -> None:
    assert read_pairs(two(tmp_path, b"a\n\n", b"x\n\n"), "task.train") == (["a", ""], ["x", ""])
    fails(two(tmp_path, b"a\n\n", b"x\n"), "2", "1")


def test_different_line_counts_are_refused_with_both_counts_and_names(tmp_path: Path) -> None:
    fails(two(tmp_path, b"a\nb\nc\n", b"x\ny\n"), "text.src has 3 lines", "text.tgt has 2")


@pytest.mark.parametrize("data", [(b"", b""), (b"a\n", b"")])
def test_files_without_a_byte_are_refused(tmp_path: Path, data: tuple[bytes, bytes]) -> None:
    fails(two(tmp_path, *data), "empty")


def test_line_ends_marks_and_stray_spaces_leave_no_trace(tmp_path: Path) -> None:
    plain = read_pairs(two(tmp_path, b"hello world\nbye\n", b"x\ny\n"), "task.train")
    dressed = two(tmp_path, b"\xef\xbb\xbfhello world\r\nbye\t\r\n", b"x\r\n y \r\n")
    assert read_pairs(dressed, "task.train") == plain


def test_a_line_ends_at_newline_alone(tmp_path: Path) -> None:
    line = "a\u2028b\u2029c\x85d\x1ce"
    pairs = read_pairs(two(tmp_path, f"{line}\n".encode(), b"x\n"), "task.train")
    assert pairs.source == [line]


def test_control_spaces_inside_a_line_become_spaces_and_marks_go() -> None:
    assert clean(["a\tb\rc\vd\fe\ufefff", "\t", ""]) == ["a b c d ef", "", ""]
    assert clean([]) == []


def test_nothing_is_normalised() -> None:
    lines = ["ｱｲｳ", "Ａ", "①㌔…\ufe30ﬁ", "x\u3000y\u00a0z", "é", "e\u0301"]
    assert clean(lines) == lines


def test_a_byte_that_is_not_utf8_is_named_by_file_line_and_offset(tmp_path: Path) -> None:
    fails(two(tmp_path, b"ok\ncaf\xe9\n", b"x\ny\n"), "text.src", "line 2", "byte offset 3", "0xe9")
    fails(two(tmp_path, b"x\n", "é".encode() + b"\xff"), "text.tgt", "line 1", "byte offset 2")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", ["a b\n", "é\n", "日\n"])
def test_text_in_two_or_four_bytes_a_letter_is_refused(tmp_path: Path, encoding: str, text: str) -> None:
    source, target = two(tmp_path, text.encode(encoding), b"x\n")
    fails((source, target), "text.src, line 1: byte 0x", "is not UTF-8 text; convert the file to UTF-8")


@pytest.mark.parametrize("text", [b"a\rb\r", b"a\rb", b"\ra"])
def test_line_ends_of_an_old_mac_are_refused(tmp_path: Path, text: bytes) -> None:
    fails(two(tmp_path, text, b"x\ny\n"), "text.src has \\r for line ends", "convert them to \\n")
    assert read_pairs(two(tmp_path, b"a\r", b"x\r\n"), "task.train") == (["a"], ["x"])


def test_one_file_with_tabs(tmp_path: Path) -> None:
    path = tmp_path / "text.tsv"
    path.write_bytes(b"\xef\xbb\xbfa b\t x\r\n\tleft out\nc\t\n\nd\ty\n")
    source, target = read_pairs([str(path)], "task.train")
    assert list(zip(source, target, strict=True)) == [("a b", "x"), ("", "left out"), ("c", ""), ("", ""), ("d", "y")]


@pytest.mark.parametrize(("data", "tabs"), [(b"a\tb\nno tab\n", "0 tabs"), (b"a\tb\nc\td\te\n", "2 tabs")])
def test_a_line_without_exactly_one_tab_is_refused(tmp_path: Path, data: bytes, tabs: str) -> None:
    path = tmp_path / "text.tsv"
    path.write_bytes(data)
    fails((str(path),), "text.tsv", "line 2", tabs)


def test_packed_files_read_as_plain_ones(tmp_path: Path) -> None:
    source, target = two(tmp_path, "a\nß\n".encode(), b"x\ny\n")
    packed = tmp_path / "text.src.gz"
    packed.write_bytes(gzip.compress(Path(source).read_bytes()))
    assert read_pairs([str(packed), target], "task.train") == read_pairs([source, target], "task.train")


def test_damaged_packed_files_are_refused_by_name(tmp_path: Path) -> None:
    _, target = two(tmp_path, b"a\n", b"x\n")
    packed = tmp_path / "text.src.gz"
    whole = gzip.compress(b"a\n" * 5000)
    for data in (whole[:-12], whole[:12], whole[:12] + b"\xff" * 9, whole[:-8] + b"\0" * 8, whole + b"more"):
        packed.write_bytes(data)
        assert fails((str(packed), target), "text.src.gz is damaged (").endswith("); pack or copy it again")


def test_a_name_that_says_packed_where_a_file_is_not_or_the_reverse_is_refused(tmp_path: Path) -> None:
    source, target = two(tmp_path, gzip.compress(b"a\n"), b"x\n")
    fails((source, target), "text.src is packed by gzip, so its name must end in .gz; rename it")
    plain = tmp_path / "text.src.gz"
    plain.write_bytes(b"a\n")
    fails((str(plain), target), "text.src.gz is not packed by gzip, so its name must not end in .gz; rename it")
    plain.write_bytes(b"")
    fails((str(plain), target), "text.src.gz is empty")


def test_paths_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    _, target = two(tmp_path, b"a\n", b"x\n")
    remedy = "; give text files by --config.task.train=..."
    fails((str(tmp_path / "absent.src"), target), f"absent.src: No such file or directory{remedy}")
    fails((str(tmp_path), target), f"{tmp_path}: Is a directory{remedy}")


def test_no_path_says_how_to_set_it() -> None:
    message = fails(())
    assert "task.train is not set" in message
    assert "--config.task.train=a.en,a.ja" in message


def test_three_paths_are_refused() -> None:
    fails(("a", "b", "c"), "not 3")
