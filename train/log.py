"""metrics.jsonl and config.json: the only file that knows how they are written, and so the only one that reads them.

metrics.jsonl holds one strict-JSON object per line, one line per (cell, lane, split, evaluation). A number that does
not exist is ``null``: NaN and Infinity are not JSON, and readers in other languages and browsers refuse them. A process
can be killed between two bytes, so the last line may be torn; everything before it is whole, because rows are appended
in one write and flushed to the disk before ``append`` returns. config.json is written beside its place and renamed, so
it is whole or absent.

Every fault of the disk (full, read-only, a file size limit) is raised as UserError that names the file.
"""

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


def _whole(data: bytes) -> int:
    """Length of ``data`` without a torn last line: one that lacks its newline, or that is not an object."""
    end = data.rfind(b"\n") + 1
    start = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    last = data[start:end]
    return start if last.strip() and _parse(last) is None else end


def _rows(path: Path, data: bytes) -> list[Row]:
    """Rows of whole lines, blank ones skipped; of rows with the same identity the last, at its own place."""
    rows: dict[object, Row] = {}
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        row = _parse(line)
        if row is None:
            raise UserError(f"{path}, line {number}: not a JSON object; mend or delete that line")
        values = [row.get(field) for field in IDENTITY]
        complete = all(isinstance(value, str | int | float) for value in values)
        identity: object = tuple(values) if complete else ("line", number)
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
    """The log of one workdir, open for appending. One process writes it at a time.

    Opening makes the file where it is missing and drops a torn last line. Raises UserError that names the file.
    """

    def __init__(self, workdir: str | Path) -> None:
        self.path = metrics_path(workdir)
        self._descriptor: int | None = None
        self._open()
        try:
            if self._regular():
                data = _read(self.path)
                whole = _whole(data)
                if whole < len(data):
                    os.ftruncate(self._opened(), whole)
        except OSError as error:
            self.close()
            raise _fault(self.path, error) from error

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows, in the order of their own fields, and return once they are on the disk: all of them or none.

        Raises UserError where the disk refuses, TypeError where a value has no form in JSON (nothing is written then).
        """
        data = "".join(to_json(row) + "\n" for row in rows).encode("utf-8")
        descriptor = self._opened()
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
                if self._regular():
                    os.ftruncate(descriptor, before)
                raise
            if self._regular():
                os.fsync(descriptor)
        except OSError as error:
            raise _fault(self.path, error) from error

    def truncate(self, cell: str, lanes: Collection[int], step: int) -> int:
        """Drop the rows of these lanes of this cell that lie after ``step``, and all of their test rows; count them.

        A resumed run calls this with the step of its checkpoint, so that no evaluation stands in the file twice. Test
        rows end a run: where it has to be resumed, a kill has torn them. The file is replaced whole: a kill leaves the
        old one or the new one.
        """
        self._opened()
        data = _read(self.path)
        data = data[: _whole(data)]
        rows = _rows(self.path, data)

        def goes(row: Row) -> bool:
            mine = row.get("cell") == cell and row.get("lane") in lanes
            return mine and ((row.get("step") or 0) > step or row.get("split") == "test")

        kept = [row for row in rows if not goes(row)]
        if len(kept) < len(rows):
            _replace(self.path, "".join(to_json(row) + "\n" for row in kept).encode("utf-8"))
            self.close()
            self._open()
        return len(rows) - len(kept)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.close(descriptor)
            except OSError as error:
                raise _fault(self.path, error) from error

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _fault(self.path, error) from error

    def _opened(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"{self.path} is closed")
        return self._descriptor

    def _regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self._opened()).st_mode)

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
    """All rows of a workdir, each evaluation once (of two the later one counts). A torn last line is left out.

    No file yet means no rows. Raises UserError with the file and the line number where a line before the last is not
    a JSON object, and where the workdir does not exist.
    """
    directory, path = Path(workdir), metrics_path(workdir)
    if not directory.is_dir():
        raise UserError(f"{directory}: no such folder; give the --workdir of a study")
    if not path.exists():
        return []
    data = _read(path)
    return _rows(path, data[: _whole(data)])


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
