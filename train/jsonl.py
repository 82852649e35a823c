"""Rows of strict JSON in a file that grows, one object a line: how they are written, torn, mended and read.

A number that does not exist is ``null``: NaN and Infinity are not JSON, and readers in other languages and browsers
refuse them. Rows are appended in one write and are on the disk before ``append`` returns. A kill or a full disk can
leave the first bytes of that write: some whole lines, then the beginning of a row without its newline. A power cut can
leave NUL bytes in the place of what did not reach the disk. Such an end is torn: readers leave it out, the writer cuts
it off before it writes. A line with its newline was written whole. So whatever else is no row is not of this program's
making: it is refused by its line, and nothing is touched.

Every fault of the disk (full, read-only, a file size limit) is raised as UserError that names the file.
"""

import codecs
import json
import math
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType, UnionType
from typing import Any, NoReturn, Self

from train.errors import UserError

Row = dict[str, Any]
Identity = Mapping[str, type | UnionType]  # fields that make two rows the same, and what their values are

BEGINNING = b'{"cell": "'  # of every row


def _plain(value: Any) -> Any:
    """The value in terms of JSON: non-finite floats become None, numpy and jax numbers and arrays Python's own."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    raise TypeError(f"{type(value).__name__} {value!r} has no form in JSON")


def to_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON, keys in the order given. Text stays readable; a lone surrogate becomes its JSON escape."""
    text = json.dumps(_plain(value), allow_nan=False, ensure_ascii=False, indent=indent)
    # U+2028 and U+2029 are legal in JSON, but tools that split lines as str.splitlines does would tear the row.
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_json(line: bytes) -> Row | None:
    """The object in one line, or None where the line is not one object of strict JSON."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def fault(path: Path, error: OSError) -> UserError:
    """What to raise for a fault of the disk."""
    return UserError(f"{path}: {error.strerror or error}")


def read_file(path: Path) -> bytes:
    """Bytes of a regular file. A device such as /dev/full would give zeros for ever, a pipe would wait."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(
                f"{path}: not a regular file, so it cannot be read back; remove it or choose another workdir"
            )
        return path.read_bytes()
    except OSError as error:
        raise fault(path, error) from error


def _is_torn(end: bytes) -> bool:
    """Whether a write that did not finish can have left this after the last newline: see the top of this file."""
    begun = end.rstrip(b"\x00")
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begun)  # the last character may be torn too
    except UnicodeDecodeError:
        return False
    # A row escapes its control characters.
    return begun[: len(BEGINNING)] == BEGINNING[: len(begun)] and not any(character < " " for character in text)


def _whole(path: Path) -> bytes:
    """Whole lines of the file: all of it but a torn end. A file that is not there has none."""
    if not path.exists():
        return b""
    lines, newline, end = read_file(path).rpartition(b"\n")
    if not _is_torn(end):
        raise _no_row(path, lines.count(b"\n") + len(newline) + 1)
    return lines + newline


def _no_row(path: Path, number: int) -> UserError:
    return UserError(f"{path}, line {number}: not a row of a study; mend or delete that line")


def read_lines(path: Path, identity: Identity) -> list[Row]:
    """Rows of whole lines, blank ones skipped; of rows with the same identity the last, at its own place."""
    rows: dict[tuple[Any, ...], Row] = {}
    for number, line in enumerate(_whole(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        row = parse_json(line)
        if row is None or not all(isinstance(row.get(field), kind) for field, kind in identity.items()):
            raise _no_row(path, number)
        key = tuple(row.get(field) for field in identity)
        rows.pop(key, None)
        rows[key] = row
    return list(rows.values())


def _sync_directory(directory: Path) -> None:
    """Make a rename last through a power cut. Some network file systems refuse this: the rename itself has happened."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; a link keeps pointing at the file it names."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(target.parent)
    except OSError as error:
        raise fault(path, error) from error


def _lanes_of(rows: Iterable[Mapping[str, Any]]) -> set[tuple[Any, Any]]:
    return {(row.get("cell"), row.get("lane")) for row in rows}


class RowLog:
    """One file of rows. One process writes it at a time.

    Nothing is touched until the first ``append``, or the first ``truncate`` that has something to drop: that one cuts
    off a torn end, or raises UserError that names the file. ``append`` makes the file where it is missing.
    """

    def __init__(self, path: Path, identity: Identity) -> None:
        """identity: of two rows that agree in it the later one counts."""
        self.path = path
        self._identity = identity
        self._held: set[tuple[Any, Any]] | None = None  # (cell, lane) of the rows in the file; None: not read yet
        self._descriptor: int | None = None
        self._closed = False

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows, in the order of their own fields, and return once they are on the disk: all of them or none.

        Raises UserError where the disk refuses, TypeError where a value has no form in JSON (nothing is written then).
        """
        rows = list(rows)
        data = "".join(to_json(row) + "\n" for row in rows).encode("utf-8")
        descriptor = self._open()
        if not data:
            return
        try:
            before = os.fstat(descriptor).st_size
            try:
                # One write does it, except where the disk fills up half way.
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            except OSError:
                os.ftruncate(descriptor, before)
                raise
            os.fsync(descriptor)
        except OSError as error:
            raise fault(self.path, error) from error
        if self._held is not None:
            self._held |= _lanes_of(rows)

    def truncate(self, cell: str, lanes: Collection[int], step: int) -> int:
        """Drop the rows of these lanes of this cell that lie after ``step``, and all of their test rows; count them.

        A resumed run calls this with the step of its checkpoint, so that no evaluation stands in the file twice. Test
        rows end a run: where it has to be resumed, a kill has torn them. The file is replaced whole: a kill leaves the
        old one or the new one. It is read by the first call, and by those that find rows of their lanes: a study calls
        this for every group, and most have none.
        """
        if self._held is None:
            self._held = _lanes_of(read_lines(self.path, self._identity))
        if self._held.isdisjoint((cell, lane) for lane in lanes):
            return 0
        rows = read_lines(self.path, self._identity)

        def goes(row: Row) -> bool:
            mine = row.get("cell") == cell and row.get("lane") in lanes
            return mine and ((row.get("step") or 0) > step or row.get("split") == "test")

        kept = [row for row in rows if not goes(row)]
        if len(kept) < len(rows):
            replace_file(self.path, "".join(to_json(row) + "\n" for row in kept).encode("utf-8"))
            self._release()
        return len(rows) - len(kept)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.close(descriptor)
            except OSError as error:
                raise fault(self.path, error) from error

    def _open(self) -> int:
        """Descriptor of the file, ready to be appended to."""
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if self._descriptor is None:
            whole = len(_whole(self.path))
            try:
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
                if os.fstat(self._descriptor).st_size > whole:
                    os.ftruncate(self._descriptor, whole)
            except OSError as error:
                raise fault(self.path, error) from error
        return self._descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
