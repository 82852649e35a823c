"""A workdir belongs to one resolved config: opening it, extending it, refusing it.

What may differ between launches: the values of the grid's axes, the lanes, and the knobs that change no result
(schema.FREE). Cells and lanes that are new are added to those that the workdir has. Anything else is another study.
"""

import dataclasses
import datetime
import fcntl
import os
import shutil
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from train.errors import UserError
from train.log import CONFIG, METRICS, read_config, write_config
from train.plan import Lane, Plan, short_names
from train.schema import FREE
from train.values import show

LOCK = ".lock"
HALF_WRITTEN = (f".{CONFIG}.tmp", f".{METRICS}.tmp")  # by a process that was killed
CONTENT = (CONFIG, METRICS, "diagnostics.jsonl", "cells", "report.html")  # what a study leaves, --overwrite removes

ELSEWHERE = "choose another --workdir"
ANEW = f"{ELSEWHERE}, or --overwrite to start anew"

Record = dict[str, Any]


class Workdir:
    """The folder of a study, locked for this process until the end of a `with` block, of this object or of the process.

    path: the folder; it exists and can be written to.
    groups: by number, the lanes that train together: 0 the first launch's, then those of each launch that added some.
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


def open_workdir(
    path: str | Path, plan: Plan, *, overwrite: bool = False, environment: Mapping[str, Any] | None = None
) -> Workdir:
    """Make a workdir for a plan, or open the one that is there, and write its config.json.

    Args:
      path: the folder; parents are made.
      plan: what was asked for.
      overwrite: remove what a study has left there, and nothing else, and start anew.
      environment: more keys of config.json: versions, device, git. The first launch's stand; another launch's that
        differ are listed under "other_environments".

    Raises:
      UserError: a folder that cannot be used, that is in use, that holds something else or another study.
    """
    folder = Path(path)
    try:
        _refuse_foreign(folder, overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        try:
            if overwrite:
                _clear(folder)
            old = _read(folder)
            record, groups = _merge(folder, old, plan, dict(environment or {}))
            if record != old:
                write_config(folder, record)
        except BaseException:
            os.close(lock)
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--workdir={path} cannot be used: {reason}; {ELSEWHERE}") from error
    return Workdir(folder, groups, record, lock)


def _refuse_foreign(folder: Path, overwrite: bool) -> None:
    """Refuse a folder with content that is no study, before anything is written into it."""
    if not folder.exists():
        return
    names = set(os.listdir(folder))
    # Many programs name a file config.json: what is removed has to be a study beyond doubt.
    if CONFIG in names and not (overwrite and LOCK in names):
        _read(folder)
    elif CONFIG not in names and names - {LOCK, *HALF_WRITTEN}:
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
    """Remove what a study leaves, config.json last: what is half removed still is a study."""
    for name in [*reversed(CONTENT), *HALF_WRITTEN]:
        entry = folder / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


def _read(folder: Path) -> Record | None:
    """The record of the study in a folder, None where there is none yet."""
    if not (folder / CONFIG).exists():
        return None
    record = read_config(folder)
    try:
        config, lanes, cells = record["config"], record["lanes"], record["cells"]
        if config["lanes"]["lr"] and isinstance(config["cells"], dict) and cells[0]["settings"]:
            [(lane["lane"], lane["lr"], lane["seed"], lane["group"]) for lane in lanes]
            return record
    except (KeyError, IndexError, TypeError):
        pass
    raise UserError(f"{folder / CONFIG} is not the config of a study; {ELSEWHERE}")


def _merge(
    folder: Path, old: Record | None, plan: Plan, environment: Mapping[str, Any]
) -> tuple[Record, list[tuple[Lane, ...]]]:
    """The record extended by a plan, and the groups of lanes to run. Raises UserError where the two do not agree."""
    if old is not None:
        _refuse_other(folder, old["config"], plan.config)
    cells = {entry["cell"]: entry for entry in old["cells"]} if old else {}
    for cell in plan.cells:
        settings = {
            name: _listed(dataclasses.asdict(getattr(cell, name))) for name in ("task", "model", "optim", "run")
        }
        if cell.name in cells:
            _refuse_differences(f"cell {cell.name} in {folder}", cells[cell.name]["settings"], settings, FREE)
        cells[cell.name] = {"cell": cell.name, "axes": dict(cell.axes), "settings": settings}
    lanes = list(old["lanes"]) if old else []
    known = {(lane["lr"], lane["seed"]) for lane in lanes}
    added = max((lane["group"] for lane in lanes), default=-1) + 1
    for lane in plan.lanes:
        if (lane.lr, lane.seed) not in known:
            lanes.append({"lane": len(lanes), "lr": lane.lr, "seed": lane.seed, "group": added})
    record = {
        "config": _union(old["config"] if old else plan.config, plan.config),
        "axes": list(short_names(_axes(plan.config)).values()),
        "cells": list(cells.values()),
        "lanes": lanes,
        **_environments(old, environment),
    }
    return record, _groups(lanes, plan)


def _groups(lanes: Sequence[Record], plan: Plan) -> list[tuple[Lane, ...]]:
    """Lanes of a record by group; none for a group of whose lanes the plan asks for none."""
    asked = {(lane.lr, lane.seed) for lane in plan.lanes}
    groups = []
    for group in range(max(lane["group"] for lane in lanes) + 1):
        members = tuple(Lane(lane["lane"], lane["lr"], lane["seed"]) for lane in lanes if lane["group"] == group)
        groups.append(members if any((lane.lr, lane.seed) in asked for lane in members) else ())
    return groups


def _environments(old: Record | None, environment: Mapping[str, Any]) -> Record:
    if old is None:
        return {"started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), **environment}
    kept = {key: value for key, value in old.items() if key not in ("config", "axes", "cells", "lanes")}
    others = kept.get("other_environments", [])
    if environment and environment not in [{key: kept.get(key) for key in environment}, *others]:
        kept["other_environments"] = [*others, dict(environment)]
    return kept


def _refuse_other(folder: Path, old: Record, new: Record) -> None:
    """Refuse a config that is another study than the one of a workdir, naming what differs."""
    there, here = _axes(old), _axes(new)
    if there != here:
        differing = sorted(set(there) ^ set(here))
        what = f"axis {', '.join(differing)} is " if differing else "their order is "
        raise UserError(
            f"{folder} holds a study with other axes ({what}different): {', '.join(there) or 'none'} there, "
            f"{', '.join(here) or 'none'} here; {ANEW}"
        )
    skipped = {*FREE, *here, "lanes.lr", "lanes.seed"}
    without_cells = [{section: config[section] for section in config if section != "cells"} for config in (old, new)]
    _refuse_differences(f"{folder} holds a study with another config", without_cells[0], without_cells[1], skipped)


def _refuse_differences(what: str, old: Record, new: Record, skipped: Collection[str]) -> None:
    there, here = dict(_flat(old)), dict(_flat(new))
    absent = object()
    differing = [
        f"{path} is {show(there[path]) if path in there else 'absent'} there, "
        f"{show(here[path]) if path in here else 'absent'} here"
        for path in dict.fromkeys([*there, *here])
        if path not in skipped and there.get(path, absent) != here.get(path, absent)
    ]
    if differing:
        raise UserError(f"{what}: {'; '.join(differing)}; {ANEW}")


def _axes(config: Record) -> list[str]:
    return [path for path, _ in _flat(config["cells"])]


def _flat(nested: Record) -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of a config of sections; a section that is none stands by itself."""
    for section, entries in nested.items():
        if isinstance(entries, dict):
            yield from ((f"{section}.{key}", value) for key, value in entries.items())
        else:
            yield section, entries


def _union(old: Record, new: Record) -> Record:
    """The newer config, with the older one's values of axes and lanes before its own."""

    def joined(before: Record, after: Record) -> Record:
        return {
            key: [*before[key], *(value for value in values if value not in before[key])]
            for key, values in after.items()
        }

    cells = {section: joined(old["cells"][section], axes) for section, axes in new["cells"].items()}
    return {**new, "lanes": joined(old["lanes"], new["lanes"]), "cells": cells}


def _listed(settings: Record) -> Record:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
