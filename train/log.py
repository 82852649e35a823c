"""metrics.jsonl, diagnostics.jsonl and config.json: the only file that knows what they hold.

metrics.jsonl has a row for every (cell, lane, split, evaluation), diagnostics.jsonl one for every (cell, lane, step)
and attention, layer and head, or parameter group; train/jsonl.py says how rows lie in a file. config.json is written
beside its place and renamed, so it is whole or absent.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train.errors import UserError
from train.jsonl import Identity, RowLog, parse_json, read_file, read_lines, replace_file, to_json
from train.jsonl import Row as Row

METRICS = "metrics.jsonl"
DIAGNOSTICS = "diagnostics.jsonl"
CONFIG = "config.json"

# What makes two rows the same. Of two such rows the later one counts.
IDENTITY: Identity = {"cell": str, "lane": int, "split": str, "step": int}
DIAGNOSTICS_IDENTITY: Identity = {
    "cell": str,
    "lane": int,
    "step": int,
    "attention": str | None,  # None in the row of a parameter group, as are layer and head
    "layer": int | None,
    "head": int | None,
    "group": str | None,
}
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


def metrics_path(workdir: str | Path) -> Path:
    """Where a workdir keeps its rows."""
    return Path(workdir) / METRICS


class Logs(NamedTuple):
    """The two logs of a workdir, to be written."""

    metrics: RowLog
    diagnostics: RowLog

    def truncate(self, cell: str, lanes: Collection[int], step: int) -> None:
        """Drop what lies behind the step from which these lanes of a cell go on; see RowLog."""
        self.metrics.truncate(cell, lanes, step)
        # What is trained from the start is diagnosed there once more.
        self.diagnostics.truncate(cell, lanes, step or -1)


def metrics_log(workdir: str | Path) -> RowLog:
    """To write metrics.jsonl."""
    return RowLog(metrics_path(workdir), IDENTITY)


@contextlib.contextmanager
def open_logs(workdir: str | Path) -> Iterator[Logs]:
    """The logs of a workdir, closed in the end. Files are touched only once something is written."""
    diagnostics_log = RowLog(Path(workdir) / DIAGNOSTICS, DIAGNOSTICS_IDENTITY)
    with metrics_log(workdir) as metrics, diagnostics_log as diagnostics:
        yield Logs(metrics, diagnostics)


def read_rows(workdir: str | Path) -> list[Row]:
    """All rows of a workdir, each evaluation once (of two the later one counts). A torn end is left out.

    No file yet means no rows. Raises UserError with the file and the line number where a line is no row, and where the
    workdir does not exist.
    """
    if not Path(workdir).is_dir():
        raise UserError(f"{workdir}: no such folder; give the --workdir of a study")
    return read_lines(metrics_path(workdir), IDENTITY)


def read_diagnostics(workdir: str | Path) -> list[Row]:
    """All rows of diagnostics.jsonl; none where there is no such file. Raises UserError where a line is no row."""
    return read_lines(Path(workdir) / DIAGNOSTICS, DIAGNOSTICS_IDENTITY)


def write_config(workdir: str | Path, record: Mapping[str, Any]) -> None:
    """Write config.json, whole or not at all. Raises UserError where the disk refuses."""
    replace_file(Path(workdir) / CONFIG, (to_json(record, indent=2) + "\n").encode("utf-8"))


def read_config(workdir: str | Path) -> Row:
    """The record in config.json. Raises UserError where there is none, or where it is not a JSON object."""
    path = Path(workdir) / CONFIG
    if not path.exists():
        raise UserError(f"{path}: no such file; give the --workdir of a study that was started with python -m train")
    record = parse_json(read_file(path))
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
