"""From a config and what the command line adds to it, to a Plan: typed, frozen, checked. Nothing is written yet."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from train.config import NOT_AXES, close_to, read_file
from train.errors import UserError
from train.schema import (
    KNOBS,
    SECTIONS,
    ModelSettings,
    OptimSettings,
    RunSettings,
    TaskSettings,
    check,
    check_together,
)
from train.values import parsed, show, single, split

Axes = Mapping[str, tuple[Any, ...]]
Names = Mapping[str, Collection[str]]

LONGEST_NAME = 200  # bytes of a cell's name; it is the name of a folder, and file systems stop at 255


@dataclass(frozen=True)
class Cell:
    """One point of the grid, its settings resolved. `axes`: short name of each axis -> this cell's value."""

    name: str
    axes: dict[str, str | int | float | bool]
    task: TaskSettings
    model: ModelSettings
    optim: OptimSettings
    run: RunSettings


@dataclass(frozen=True)
class Lane:
    """One training run of every cell: its number, peak learning rate and seed."""

    lane: int
    lr: float
    seed: int


@dataclass(frozen=True)
class Plan:
    """What a command asks for. `config`: the resolved config as plain JSON, with the cells that --only leaves out."""

    cells: tuple[Cell, ...]
    lanes: tuple[Lane, ...]
    config: dict[str, Any]


def make_plan(
    config_path: str | Path,
    overrides: Sequence[str] = (),
    sweeps: Sequence[str] = (),
    only: Sequence[str] = (),
) -> Plan:
    """Read a config file, apply what the command line adds, refuse nonsense, expand the grid.

    Args:
      config_path: Python file with a function `get_config()`.
      overrides: "model.d_k=64", each replacing a value of the file; of two the last wins.
      sweeps: "model.d_k=4,64", each replacing or adding an axis of the grid (or a list of `lanes`); likewise.
      only: "score=dot,d_k=64", each keeping the cells that have these values; a cell has to match one of them.

    Raises:
      UserError: anything a user can get wrong, in one line.
    """
    config = read_file(config_path)
    for text in sweeps:
        config.sweep(text)
    for text in overrides:
        config.override(text)
    twice = {_path(text) for text in sweeps} & {_path(text).removeprefix("cells.") for text in overrides}
    if twice:
        raise UserError(f"{min(twice)} is given by --sweep and by --config too: give it once")
    names = _known_names()
    for path, value in config.values.items():
        _check(path, value, names)
    lanes = {path: config.values[path] for path in ("lanes.lr", "lanes.seed")}
    # By section, as config.json nests them: in one order, however the command line mixed them, cells have one name.
    axes = {path: config.axes[path] for section in SECTIONS for path in config.axes if path.startswith(f"{section}.")}
    for path, options in {**axes, **lanes}.items():
        check_list(path, options)
    cells = _expand(config.values, axes, names)
    _check_change(cells)
    return Plan(
        cells=tuple(_matching(cells, axes, only)),
        lanes=tuple(Lane(number, lr, seed) for number, (lr, seed) in enumerate(itertools.product(*lanes.values()))),
        config=_plain(config.values, axes),
    )


def _check_change(cells: Sequence[Cell]) -> None:
    """Refuse a temperature that no cell changes to. A grid may well hold cells that never change, to compare with."""
    for cell in cells:
        before, after = cell.optim.temperature, cell.optim.temperature_after
        if after not in (before, 1.0) and not any(other.optim.temperature_step for other in cells):
            raise UserError(
                f"optim.temperature_after = {after:g} would not be used: give optim.temperature_step, the last update"
                " before the change"
            )


def _path(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


def _known_names() -> Names:
    """The dicts that say what a name may be. Imported late: they bring JAX, which a help text does not need."""
    import model
    from model.cells import CELLS, INITIALS
    from model.contract import DTYPES
    from model.layers import NORMS
    from model.recurrent import BRIDGES, DECODERS
    from train.metrics import METRICS
    from train.optim import OPTIMIZERS, SCHEDULES
    from train.tasks import TASKS
    from train.text.scoring import BLEU_TOKENIZERS
    from train.text.tokenise import TOKENISERS

    return {
        "task.name": TASKS,
        "task.tokenizer": TOKENISERS,
        "model.name": model.ARCHITECTURES,
        "model.score": model.SCORES,
        "model.position": model.POSITIONS,
        "model.norm": NORMS,
        "model.dtype": DTYPES,
        "model.rnn": CELLS,
        "model.decoder": DECODERS,
        "model.bridge": BRIDGES,
        "model.initial": INITIALS,
        "task.bleu_tokenize": BLEU_TOKENIZERS,
        "optim.name": OPTIMIZERS,
        "optim.schedule": SCHEDULES,
        "run.select": METRICS,
    }


def _check(path: str, value: Any, names: Names) -> None:
    known = names.get(path, (value,))
    if value not in known:
        choices = ", ".join(sorted(known))
        raise UserError(f"{path} = {show(value)} is unknown: choose from {choices}{close_to(value, known)}")
    check(KNOBS[path], value)


def check_list(path: str, options: Sequence[Any]) -> None:
    """Raise UserError for a list that gives nothing to run, or that would run one thing twice."""
    if not options:
        raise UserError(f"{path} has an empty list of values: give at least one")
    trained = [single(option) if isinstance(option, float) else option for option in options]
    for place, option in enumerate(options):
        if option in options[:place]:
            raise UserError(f"{path} = {show(options)} names {show(option)} twice: give each value once")
        if trained[place] in trained[:place]:
            pair = f"{show(options[trained.index(trained[place])])} and {show(option)}"
            raise UserError(f"{path}: {pair} are the same in float32, in which training runs; give one of them")


def short_names(paths: Collection[str]) -> dict[str, str]:
    """Names of axes in cells and rows: the last part of the path, x for `x.name`; the path where two would be equal."""
    short = {path: path.removesuffix(".name").rpartition(".")[2] for path in paths}
    taken = list(short.values())
    return {path: name if taken.count(name) == 1 else path for path, name in short.items()}


def _expand(values: Mapping[str, Any], axes: Axes, names: Names) -> list[Cell]:
    """The product of the axes, the last one fastest. One impossible point refuses all of it, by name."""
    short = short_names(axes)
    cells = []
    for point in itertools.product(*axes.values()):
        chosen = dict(zip(axes, point, strict=True))
        resolved = {**values, **chosen}
        name = ",".join(f"{short[path]}={_as_name(value)}" for path, value in chosen.items())
        try:
            for path, value in chosen.items():
                _check(path, value, names)
            check_together(resolved)
            _check_used(chosen, resolved["task.name"], resolved["model.name"])
            cells.append(
                Cell(
                    name=name or f"task={_as_name(values['task.name'])}",
                    axes={short[path]: _as_axis(value) for path, value in chosen.items()},
                    **{section: _section(section, resolved) for section in ("task", "model", "optim", "run")},
                )
            )
            _check_model(cells[-1].model, chosen)
        except UserError as error:
            raise UserError(f"cell {name}: {error}" if name else str(error)) from error
        if len(name) > LONGEST_NAME:
            raise UserError(f"cell {name[:50]}...: {len(name)} bytes are too long for the name of a folder")
    return cells


def _check_used(axes: Collection[str], task: str, architecture: str) -> None:
    """Refuse an axis that the task or the model does not read: its cells would be equal."""
    import model
    from train.tasks import TASKS

    used = {"task": (task, TASKS[task].knobs), "model": (architecture, model.fields_of(architecture))}
    for path in axes:
        section, _, key = path.partition(".")
        if section in used and key not in {"name", *used[section][1]}:
            raise UserError(f"{path} is no axis of the grid: {section}.name={used[section][0]} does not use it")


def _section(section: str, values: Mapping[str, Any]) -> Any:
    prefix = f"{section}."
    return SECTIONS[section](**{path.removeprefix(prefix): values[path] for path in values if path.startswith(prefix)})


ATTENTION_KNOBS = frozenset({"model.score", "model.num_heads", "model.d_k", "model.d_v", "model.attention_bias"})


def _check_model(settings: ModelSettings, axes: Collection[str]) -> None:
    """Let the architecture refuse what does not fit. What depends on vocabularies is known only with the task."""
    import model

    fields = {name: value for name, value in vars(settings).items() if name != "name"}
    try:
        module = model.build(
            settings.name, source_vocab=5, target_vocab=5, pad=0, lengths=model.Lengths(2.0, 2.0), **fields
        )
    except ValueError as error:
        raise UserError(f"model.{' '.join(str(error).split())}") from error
    for path in ATTENTION_KNOBS.intersection(axes):
        if not module.places:
            raise UserError(f"{path} is no axis of the grid: without attention (model.decoder) it is not used")


def _as_axis(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def _as_name(value: Any) -> str:
    """A value in the name of a folder. Different values have different names, made of letters, digits and -._~%+."""
    if isinstance(value, tuple):
        return "+".join(map(_as_name, value))
    return quote(value if isinstance(value, str) else show(value), safe="")


def _matching(cells: list[Cell], axes: Axes, only: Sequence[str]) -> list[Cell]:
    """Cells that have all values of at least one element of `only`; all cells where it is empty."""
    short = {name: path for path, name in short_names(axes).items()}
    wanted = []
    for text in only:
        point = {}
        for part in split("--only", text) or [""]:
            name, equals, value = part.partition("=")
            name = name.strip()
            if name not in short or not equals:
                known = ", ".join(short) or "none, there is one cell"
                what = f"{name or 'nothing'} is no axis (axes: {known})" if name not in short else "a value is missing"
                raise UserError(
                    f"--only {text}: {what}; write --only AXIS=VALUE,AXIS=VALUE, for alternatives repeat --only"
                    f"{_instead_of_only(name, short)}"
                )
            if name in point:
                raise UserError(f"--only {text}: {name} is given twice; for alternatives repeat --only")
            path = short[name]
            point[name] = _as_axis(parsed(path, KNOBS[path].kind, value))
            if point[name] not in map(_as_axis, axes[path]):
                options = ", ".join(str(_as_axis(option)) for option in axes[path])
                raise UserError(
                    f"--only {text}: no cell has {part}; values of {name} are {options}; "
                    f"add others, those that the workdir has too, by --sweep {path}=..."
                )
        wanted.append(point)
    return [cell for cell in cells if not wanted or any(point.items() <= cell.axes.items() for point in wanted)]


def _instead_of_only(name: str, axes: Collection[str]) -> str:
    """What to do for a knob that is no axis."""
    knobs = [path for path in KNOBS if path not in NOT_AXES and name in short_names([path]).values()]
    return f"; {name} is set by --sweep {knobs[0]}=..." if knobs and name not in axes else ""


def _plain(values: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    """The config in its own nesting, with lists for tuples: what config.json holds."""
    config: dict[str, Any] = {section: {} for section in [*SECTIONS, "cells"]}
    for path in KNOBS:  # in the schema's order, whatever that of the file
        section, _, key = path.partition(".")
        config[section][key] = list(values[path]) if isinstance(values[path], tuple) else values[path]
    for path, options in axes.items():
        section, _, key = path.partition(".")
        listed = [list(option) if isinstance(option, tuple) else option for option in options]
        config["cells"].setdefault(section, {})[key] = listed
    return config
