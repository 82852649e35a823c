"""The folder of a study: making it, locking it, clearing it, refusing what is no study."""

import fcntl
import os
import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from train.errors import UserError
from train.log import CONFIG, METRICS, write_config
from train.plan import Lane, Plan
from train.record import ELSEWHERE, Record, merge, read
from train.tasks import Task

LOCK = ".lock"
PROFILE = "profile"  # folder of what --profile records
STACKS = "stacks.txt"  # where the threads of a process stood that run.patience ended
REMOVING = ".removing"  # stands there while --overwrite removes a study
HALF_WRITTEN = (f".{CONFIG}.tmp", f".{METRICS}.tmp")  # by a process that was killed
# What a study leaves, --overwrite removes.
CONTENT = (CONFIG, METRICS, "diagnostics.jsonl", "cells", PROFILE, STACKS, "report.html", "gradient_flow.html")


class Workdir:
    """The folder of a study, locked for this process until the end of a `with` block, of this object or of the process.

    path: the folder; it exists and can be written to.
    groups: by number, the lanes that train together: the first launch's, then those of each launch that added some.
        A group is run whole or not at all: empty stands for one of whose lanes none was asked for.
    record: what config.json holds.
    """

    def __init__(self, path: Path, groups: list[tuple[Lane, ...]], record: Record, lock: int):
        self.path, self.groups, self.record = path, groups, record
        self._unlock = weakref.finalize(self, os.close, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unlock()


def together(lanes: int) -> list[int]:
    """All lanes in one group."""
    return [lanes]


def open_workdir(
    path: str | Path,
    plan: Plan,
    tasks: Mapping[str, Task],
    layout: Callable[[int], Mapping[str, Any]],
    *,
    overwrite: bool = False,
    environment: Mapping[str, Any] | None = None,
    split: Callable[[int], Sequence[int]] = together,
) -> Workdir:
    """Make a workdir for a plan, or open the one that is there, and write its config.json.

    Args:
      path: the folder; parents are made.
      plan: what was asked for.
      tasks: by the name of each cell; what identifies their data and what they noted goes into config.json.
      layout: by the number of lanes that train together, how they lie on the devices; recorded for each group.
      overwrite: remove what a study has left there, and nothing else, and start anew.
      environment: more keys of config.json: versions, device, git. The first launch's stand; another launch's that
        differ are listed under "other_environments".
      split: from a number of lanes to the sizes of the groups that they train in; may refuse by UserError.

    Raises:
      UserError: a folder that cannot be used, that is in use, that holds something else or another study.
    """
    folder = Path(path)
    try:
        _refuse_undecoded(folder)
        _refuse_foreign(folder, overwrite)
        if overwrite or not (folder / CONFIG).exists():
            split(len(plan.lanes))  # refuses lanes that do not fit before anything is made or removed
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        try:
            if overwrite:
                _clear(folder)
            elif (folder / REMOVING).exists():
                raise UserError(f"{folder} is half removed by an --overwrite that was killed; add --overwrite again")
            old = read(folder)
            record, groups = merge(folder, old, plan, tasks, layout, dict(environment or {}), split)
            if record != old:
                write_config(folder, record)
        except BaseException:
            os.close(lock)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--workdir={path} cannot be used: {reason}; {ELSEWHERE}") from error
    return Workdir(folder, groups, record, lock)


def _refuse_undecoded(folder: Path) -> None:
    """Refuse a path that Python could not decode in this locale: what writes checkpoints cannot take it."""
    try:
        str(folder.resolve()).encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(folder).decode("utf-8", "backslashreplace")
        raise UserError(f"--workdir={shown} cannot be read in this locale; set PYTHONUTF8=1") from None


def _refuse_foreign(folder: Path, overwrite: bool) -> None:
    """Refuse a folder with content that is no study, before anything is written into it."""
    if not folder.exists():
        return
    names = set(os.listdir(folder))
    # Many programs name a file config.json: what is removed has to be a study beyond doubt.
    if CONFIG in names and not (overwrite and LOCK in names):
        read(folder)
    elif not names & {CONFIG, REMOVING} and names - {LOCK, *HALF_WRITTEN}:
        example = min(names - {LOCK, *HALF_WRITTEN})
        raise UserError(f"{folder} is not empty and holds no study (it has {example}, no {CONFIG}); {ELSEWHERE}")


def _lock(folder: Path) -> int:
    """Descriptor of the lock file, locked. The system unlocks it when the process ends, however it ends."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            raise UserError(f"{folder} is in use by process {holder or '?'}; wait for it, or {ELSEWHERE}") from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _clear(folder: Path) -> None:
    """Remove what a study leaves. What a kill leaves half removed is marked: it must not pass for a study."""
    (folder / REMOVING).touch()
    for name in [*reversed(CONTENT), *HALF_WRITTEN]:
        entry = folder / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    (folder / REMOVING).unlink()
