"""What config.json records of a study: extending it by a plan, refusing another study, finding a lane in it.

A workdir belongs to one resolved config. What may differ between launches: the values of the grid's axes, the lanes,
and the knobs that change no result (schema.FREE). Cells and lanes that are new are added to those that the workdir has.
Anything else is another study, other text in the same files too.
"""

import dataclasses
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from train.errors import UserError
from train.log import CONFIG, read_config
from train.plan import Cell, Lane, Plan, check_list, short_names
from train.schema import FREE, SECTIONS
from train.tasks import Task
from train.values import show

ELSEWHERE = "choose another --workdir"
ANEW = f"{ELSEWHERE}, or --overwrite to start anew"

Record = dict[str, Any]


class Recorded(NamedTuple):
    """What a workdir records of one lane of a cell.

    group, lanes: the number of its group, and the lanes that trained together.
    place: of the lane among them, from 0.
    """

    cell: Cell
    group: int
    lanes: tuple[Lane, ...]
    place: int


def read(folder: Path) -> Record | None:
    """The record of the study in a folder, None where there is none yet."""
    if not (folder / CONFIG).exists():
        return None
    record = read_config(folder)
    try:
        config, lanes, cells = record["config"], record["lanes"], record["cells"]
        if config["lanes"]["lr"] and isinstance(config["cells"], dict) and cells[0]["settings"]:
            [(cell["data"].items(), cell["notes"]) for cell in cells]
            record["layouts"][max(lane["group"] for lane in lanes)]
            [(lane["lane"], lane["lr"], lane["seed"], lane["group"]) for lane in lanes]
            return record
    except (KeyError, IndexError, TypeError, AttributeError):
        pass
    raise UserError(f"{folder / CONFIG} is not the config of a study; {ELSEWHERE}")


def merge(
    folder: Path,
    old: Record | None,
    plan: Plan,
    tasks: Mapping[str, Task],
    layout: Callable[[int], Mapping[str, Any]],
    environment: Mapping[str, Any],
    split: Callable[[int], Sequence[int]],
) -> tuple[Record, list[tuple[Lane, ...]]]:
    """The record extended by a plan, and the groups of lanes to run. Raises UserError where the two do not agree.

    `split`: from the number of lanes that are new to the sizes of their groups; asked only where there are some.
    """
    if old is not None:
        _refuse_other(folder, old["config"], plan.config)
    config = _union(folder, old["config"] if old else plan.config, plan.config)
    cells = {entry["cell"]: entry for entry in old["cells"]} if old else {}
    for cell in plan.cells:
        settings = {
            name: _listed(dataclasses.asdict(getattr(cell, name))) for name in ("task", "model", "optim", "run")
        }
        if cell.name in cells:
            _refuse_differences(f"cell {cell.name} in {folder}", cells[cell.name]["settings"], settings, FREE)
        data = tasks[cell.name].digests()
        _refuse_other_data(folder, cells.values(), settings["task"], data)
        entry = {"cell": cell.name, "axes": dict(cell.axes), "settings": settings, "data": data}
        notes = cells.get(cell.name, {"notes": tasks[cell.name].notes()})["notes"]  # what the first launch said stands
        cells[cell.name] = {**entry, "notes": list(notes)}
    lanes = list(old["lanes"]) if old else []
    known = {(lane["lr"], lane["seed"]) for lane in lanes}
    added = max((lane["group"] for lane in lanes), default=-1) + 1
    new = [lane for lane in plan.lanes if (lane.lr, lane.seed) not in known]
    numbers = [added + group for group, size in enumerate(split(len(new)) if new else ()) for _ in range(size)]
    for lane, group in zip(new, numbers, strict=True):
        lanes.append({"lane": len(lanes), "lr": lane.lr, "seed": lane.seed, "group": group})
    groups = _groups(lanes, plan)
    layouts = list(old["layouts"]) if old else []
    for group in range(len(layouts), len(groups)):
        layouts.append(dict(layout(len(_members(lanes, group)))))
    record = {
        "config": config,
        "axes": list(short_names(_axes(plan.config)).values()),
        "cells": list(cells.values()),
        "lanes": lanes,
        "layouts": layouts,
        **_environments(old, environment),
    }
    return record, groups


def find(folder: Path, cell: str, lane: int) -> Recorded:
    """Find a lane of a cell in the config.json of a workdir.

    Raises:
      UserError: no study, or none with such a cell and lane.
    """
    record = read(folder)
    if record is None:
        raise UserError(f"{folder} holds no study (it has no {CONFIG})")
    entry = next((entry for entry in record["cells"] if entry["cell"] == cell), None)
    if entry is None:
        names = [entry["cell"] for entry in record["cells"]]
        raise UserError(f"{folder} has no cell {cell!r}; it has {', '.join(names)}")
    group = next((other["group"] for other in record["lanes"] if other["lane"] == lane), None)
    if group is None:
        raise UserError(f"{folder} has no lane {lane}; it has 0 to {len(record['lanes']) - 1}")
    lanes = _members(record["lanes"], group)
    settings = {
        section: SECTIONS[section](
            **{key: tuple(value) if isinstance(value, list) else value for key, value in knobs.items()}
        )
        for section, knobs in entry["settings"].items()
    }
    place = [other.lane for other in lanes].index(lane)
    return Recorded(Cell(cell, entry["axes"], **settings), group, lanes, place)


def _groups(lanes: Sequence[Record], plan: Plan) -> list[tuple[Lane, ...]]:
    """Lanes of a record by group; none for a group of whose lanes the plan asks for none."""
    asked = {(lane.lr, lane.seed) for lane in plan.lanes}
    groups = []
    for group in range(max(lane["group"] for lane in lanes) + 1):
        members = _members(lanes, group)
        groups.append(members if any((lane.lr, lane.seed) in asked for lane in members) else ())
    return groups


def _members(lanes: Sequence[Record], group: int) -> tuple[Lane, ...]:
    return tuple(Lane(lane["lane"], lane["lr"], lane["seed"]) for lane in lanes if lane["group"] == group)


def _environments(old: Record | None, environment: Mapping[str, Any]) -> Record:
    if old is None:
        return {"started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), **environment}
    kept = {key: value for key, value in old.items() if key not in ("config", "axes", "cells", "lanes", "layouts")}
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


def _refuse_other_data(folder: Path, cells: Iterable[Record], task: Record, data: Mapping[str, str]) -> None:
    """Refuse files that changed since a cell read them: its numbers are those of other text."""
    for entry in cells:
        for knob, digest in data.items():
            files = task[knob.removeprefix("task.")]
            if entry["settings"]["task"][knob.removeprefix("task.")] == files and entry["data"].get(knob) != digest:
                raise UserError(
                    f"{knob} ({', '.join(files)}) does not hold the text that it held when the study in {folder} "
                    f"began; put that text back, or {ANEW}"
                )


def _axes(config: Record) -> list[str]:
    return [path for path, _ in _flat(config["cells"])]


def _flat(nested: Record) -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of a config of sections; a section that is none stands by itself."""
    for section, entries in nested.items():
        if isinstance(entries, dict):
            yield from ((f"{section}.{key}", value) for key, value in entries.items())
        else:
            yield section, entries


def _union(folder: Path, old: Record, new: Record) -> Record:
    """The newer config, with the older one's values of axes and lanes before its own. Raises UserError for twins."""

    def joined(before: Record, after: Record) -> Record:
        return {
            key: [*before[key], *(value for value in values if value not in before[key])]
            for key, values in after.items()
        }

    cells = {section: joined(old["cells"][section], axes) for section, axes in new["cells"].items()}
    lanes = joined(old["lanes"], new["lanes"])
    try:
        for path, options in _flat({"lanes": lanes, **cells}):
            check_list(path, options)
    except UserError as error:
        raise UserError(f"{folder} with what this command adds: {error}") from None
    return {**new, "lanes": lanes, "cells": cells}


def _listed(settings: Record) -> Record:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
