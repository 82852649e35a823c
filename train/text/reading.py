"""Reading parallel text: two files, or one file with a tab between source and target.

The rules, the same for training, validation, test and references:

- A path ending in ``.gz`` is unpacked, any other is read as it is.
- Text is UTF-8 whatever the locale says. A byte that is not is an error naming the file, the line and the byte's
  offset in the line; nothing is replaced. A null byte is such an error too: UTF-16 without a mark is full of them.
- A line ends at ``\\n`` and nowhere else (not at U+2028, U+0085, a vertical tab, ...). The last line may lack its
  ``\\n``. A ``\\r`` before ``\\n`` is dropped. Text with ``\\r`` inside and no ``\\n`` at all is an error.
- U+FEFF (byte order mark) is dropped wherever it stands.
- Tab (where it does not part source and target), a lone ``\\r``, vertical tab and form feed count as a space, and
  spaces at both ends of a line are dropped. So no token holds ``\\r``, a tab or U+FEFF.
- A line with nothing but white space (of any kind, U+3000 too) is empty.
- Nothing else is changed: no Unicode normalisation, no change of case, no-break and full-width spaces stay as they are.
"""

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from train.errors import UserError
from train.words import counted

_GZIP = b"\x1f\x8b"  # the first bytes of what gzip packed


class Pairs(NamedTuple):
    """Lines that translate each other, cleaned by the rules of this module; an empty line is ""."""

    source: list[str]
    target: list[str]


def _bytes(path: str, knob: str) -> bytes:
    """The bytes of a file, unpacked where its name says that it is packed."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{knob}: cannot read {path}: {reason}; give text files by --config.{knob}=...") from None
    packed = data.startswith(_GZIP)
    if packed != path.endswith(".gz") and data:
        what = "is packed by gzip, so its name must" if packed else "is not packed by gzip, so its name must not"
        raise UserError(f"{knob}: {path} {what} end in .gz; rename it")
    try:
        return gzip.decompress(data) if packed else data
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{knob}: {path} is damaged ({error}); pack or copy it again") from None


def _lines(path: str, knob: str) -> list[str]:
    """The raw lines of a file, at least one."""
    data = _bytes(path, knob)
    if not data:
        raise UserError(f"{knob}: {path} is empty (0 bytes of text); give a file with a sentence a line")
    if b"\r" in data.rstrip(b"\r") and b"\n" not in data:
        raise UserError(f"{knob}: {path} has \\r for line ends, as on an old Mac; convert them to \\n")
    try:
        text, bad = data.decode("utf-8"), data.find(b"\0")
    except UnicodeDecodeError as error:
        text, bad = "", error.start
    if bad >= 0:
        line = data.count(b"\n", 0, bad) + 1
        offset = bad - (data.rfind(b"\n", 0, bad) + 1)
        raise UserError(
            f"{knob}: {path}, line {line}: byte 0x{data[bad]:02x} at byte offset {offset} of the line "
            "is not UTF-8 text; convert the file to UTF-8"
        )
    return text.removesuffix("\n").split("\n")


def clean(lines: list[str]) -> list[str]:
    """Lines (cut at ``\\n``, which none may hold) by the rules of this module; as many come back."""
    if not lines:
        return []
    # One replacement in the whole text is several times faster than one in each line.
    text = "\n".join(lines)
    for old, new in (("\ufeff", ""), ("\r", " "), ("\t", " "), ("\v", " "), ("\f", " ")):
        text = text.replace(old, new)
    stripped = (line.strip(" ") for line in text.split("\n"))
    return ["" if line.isspace() else line for line in stripped]


def _columns(path: str, knob: str) -> Pairs:
    """Source and target of a file with one tab a line; a line of only white space without a tab is an empty pair."""
    source, target = [], []
    for number, line in enumerate(_lines(path, knob), 1):
        tabs = line.count("\t")
        if tabs != 1 and (tabs or line.strip("\ufeff").strip()):
            raise UserError(
                f"{knob}: {path}, line {number} has {tabs} tabs; exactly one must stand between source and target "
                f"(two files are given as --config.{knob}=SOURCE,TARGET)"
            )
        left, _, right = line.partition("\t")
        source.append(left)
        target.append(right)
    return Pairs(clean(source), clean(target))


def digest(pairs: Pairs) -> str:
    """SHA-256 of the cleaned lines of both sides, in hexadecimal: other line ends or packing do not change it."""
    return hashlib.sha256("\t".join("\n".join(lines) for lines in pairs).encode()).hexdigest()


def read_pairs(paths: Sequence[str], knob: str) -> Pairs:
    """Read parallel text.

    paths: one path (each line source, tab, target) or two (source file, target file: line i of one translates line i of
    the other).
    knob: the config key the paths come from, for messages, as "task.train".

    Raises UserError for no or more than two paths, a file that is missing, empty, unreadable, damaged or not UTF-8, a
    line without exactly one tab (one path), and files of different numbers of lines (two paths).
    """
    if not paths:
        raise UserError(
            f"{knob} is not set; give one file with a tab between source and target, or two files: "
            f"--config.{knob}=a.en,a.ja"
        )
    if len(paths) == 1:
        return _columns(paths[0], knob)
    if len(paths) != 2:
        raise UserError(f"{knob} takes one path or two, not {len(paths)}: {', '.join(paths)}")
    source, target = (clean(_lines(path, knob)) for path in paths)
    if len(source) != len(target):
        raise UserError(
            f"{knob}: {paths[0]} has {counted(len(source), 'line')} and {paths[1]} has {len(target):,}; "
            "line i of one must translate line i of the other"
        )
    return Pairs(source, target)
