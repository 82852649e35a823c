"""metrics.jsonl and config.json: the only file that knows how they are written, and so the only one that reads them.

metrics.jsonl holds one strict-JSON object per line, one line per (cell, lane, split, evaluation). A number that does
not exist is ``null``: NaN and Infinity are not JSON, and readers in other languages and browsers refuse them.
config.json is written beside its place and renamed, so it is whole or absent.

Rows are appended in one write and are on the disk before ``append`` returns. A kill or a full disk can leave the first
bytes of that write: some whole lines, then the beginning of a row without its newline. A power cut can leave NUL bytes
in the place of what did not reach the disk. Such an end is torn: readers leave it out, the writer cuts it off before
it writes. A line with its newline was written whole. So whatever else is no row is not of this program's making: it is
refused by its line, and nothing is touched.

Every fault of the disk (full, read-only, a file size limit) is raised as UserError that names the file.
"""

import codecs
import json
import math
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from train.errors import UserError

METRICS = "metrics.jsonl"
CONFIG = "config.json"

Row = dict[str, Any]

# What makes two rows the same evaluation. Of two such rows the later one counts.
IDENTITY = ("cell", "lane", "split", "step")
BEGINNING = b'{"cell": "'  # of every row
# What names the lane of a row, and what a row says beside its axes and its measurements.
LANE_FIELDS = ("cell", "lane", "lr", "seed")
COUNT_FIELDS = (
    "learning_rate",
    "best_step",
    "target_tokens",
    "sequences",
    "unfinished",
    "unknown_tokens",
    "diverged_at",
    "seconds",
)


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


def _parse(line: bytes) -> Row | None:
    """The object in one line, or None where the line is not one object of strict JSON."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _fault(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: {error.strerror or error}")


def _read(path: Path) -> bytes:
    """Bytes of a regular file. A device such as /dev/full would give zeros for ever, a pipe would wait."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UserError(
                f"{path}: not a regular file, so it cannot be read back; remove it or choose another workdir"
            )
        return path.read_bytes()
    except OSError as error:
        raise _fault(path, error) from error


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
    lines, newline, end = _read(path).rpartition(b"\n")
    if not _is_torn(end):
        raise _no_row(path, lines.count(b"\n") + len(newline) + 1)
    return lines + newline


def _no_row(path: Path, number: int) -> UserError:
    return UserError(f"{path}, line {number}: not a row of a study; mend or delete that line")


def _rows(path: Path) -> list[Row]:
    """Rows of whole lines, blank ones skipped; of rows with the same identity the last, at its own place."""
    rows: dict[tuple[Any, ...], Row] = {}
    for number, line in enumerate(_whole(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        row = _parse(line)
        if row is None or not all(isinstance(row.get(field), str | int) for field in IDENTITY):
            raise _no_row(path, number)
        identity = tuple(row[field] for field in IDENTITY)
        rows.pop(identity, None)
        rows[identity] = row
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


def _replace(path: Path, data: bytes) -> None:
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
        raise _fault(path, error) from error


class MetricsLog:
    """The log of one workdir. One process writes it at a time.

    Nothing is touched until the first ``truncate`` or ``append``: that one makes the file where it is missing and cuts
    off a torn end, or raises UserError that names the file.
    """

    def __init__(self, workdir: str | Path) -> None:
        self.path = metrics_path(workdir)
        self._descriptor: int | None = None
        self._closed = False

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows, in the order of their own fields, and return once they are on the disk: all of them or none.

        Raises UserError where the disk refuses, TypeError where a value has no form in JSON (nothing is written then).
        """
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
            raise _fault(self.path, error) from error

    def truncate(self, cell: str, lanes: Collection[int], step: int) -> int:
        """Drop the rows of these lanes of this cell that lie after ``step``, and all of their test rows; count them.

        A resumed run calls this with the step of its checkpoint, so that no evaluation stands in the file twice. Test
        rows end a run: where it has to be resumed, a kill has torn them. The file is replaced whole: a kill leaves the
        old one or the new one.
        """
        self._open()
        rows = _rows(self.path)

        def goes(row: Row) -> bool:
            mine = row.get("cell") == cell and row.get("lane") in lanes
            return mine and ((row.get("step") or 0) > step or row.get("split") == "test")

        kept = [row for row in rows if not goes(row)]
        if len(kept) < len(rows):
            _replace(self.path, "".join(to_json(row) + "\n" for row in kept).encode("utf-8"))
            self._release()
            self._open()
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
                raise _fault(self.path, error) from error

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
                raise _fault(self.path, error) from error
        return self._descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def metrics_path(workdir: str | Path) -> Path:
    """Where a workdir keeps its rows."""
    return Path(workdir) / METRICS


def read_rows(workdir: str | Path) -> list[Row]:
    """All rows of a workdir, each evaluation once (of two the later one counts). A torn end is left out.

    No file yet means no rows. Raises UserError with the file and the line number where a line is no row, and where the
    workdir does not exist.
    """
    if not Path(workdir).is_dir():
        raise UserError(f"{workdir}: no such folder; give the --workdir of a study")
    return _rows(metrics_path(workdir))


def write_config(workdir: str | Path, record: Mapping[str, Any]) -> None:
    """Write config.json, whole or not at all. Raises UserError where the disk refuses."""
    _replace(Path(workdir) / CONFIG, (to_json(record, indent=2) + "\n").encode("utf-8"))


def read_config(workdir: str | Path) -> Row:
    """The record in config.json. Raises UserError where there is none, or where it is not a JSON object."""
    path = Path(workdir) / CONFIG
    if not path.exists():
        raise UserError(f"{path}: no such file; give the --workdir of a study that was started with python -m train")
    record = _parse(_read(path))
    if record is None:
        raise UserError(f"{path}: not a JSON object; restore the file, or start anew with --overwrite")
    return record


def axis_names(rows: Iterable[Row]) -> tuple[str, ...]:
    """Names of the axes that rows carry (task, model, score, d_k, ...): the fields between the lane and the step."""
    names: dict[str, None] = {}
    for fields in dict.fromkeys(tuple(row) for row in rows):
        before = fields[: fields.index("step")] if "step" in fields else ()
        names.update(dict.fromkeys(field for field in before if field not in LANE_FIELDS))
    return tuple(names)


def metric_names(rows: Iterable[Row]) -> tuple[str, ...]:
    """Names of what evaluations measured (loss, token_accuracy, ..., bleu, bleu_signature), no counts, no times."""
    names: dict[str, None] = {}
    for fields in dict.fromkeys(tuple(row) for row in rows):
        after = fields[fields.index("split") + 1 :] if "split" in fields else ()
        names.update(dict.fromkeys(field for field in after if field not in COUNT_FIELDS))
    return tuple(names)
