"""A config as its user gives it: a file, overrides and sweeps. Typed by the schema, not yet checked."""

import difflib
import traceback
import types
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from train.errors import UserError
from train.schema import FREE, KNOBS, SECTIONS, Knob
from train.values import inside, is_tuple, parsed, show, split, typed

# Knobs of the process, not of a cell, and knobs that change nothing: as axes they would make cells of equal results.
NOT_AXES = FREE | {"run.devices", "run.eval_batch_size"}

_WHAT = "give a Python file with get_config(); --help lists the configs"


@dataclass(frozen=True)
class Config:
    """Values of all knobs, and the values of each axis of the grid in their order, both by dotted path."""

    values: dict[str, Any]
    axes: dict[str, tuple[Any, ...]]

    def override(self, text: str) -> None:
        """Set a knob, "model.d_k=64", or an axis, "cells.model.d_k=4,64". Raises UserError."""
        path, value = _assignment("--config.", text)
        if path.startswith("cells."):
            self._set_axis(path.removeprefix("cells."), value, "--config.cells.")
            return
        knob = find_knob(path, "--config.")
        if path in self.axes:
            raise UserError(f"--config.{path} would change nothing: it is an axis of the grid; use --sweep {path}=...")
        if "," in value and not is_tuple(knob.kind) and path not in NOT_AXES:
            raise UserError(f"--config.{path}={value} must be one value; several are an axis: --sweep {path}={value}")
        self.values[path] = parsed(path, knob.kind, value)

    def sweep(self, text: str) -> None:
        """Set or add an axis, "model.d_k=4,64", or set a list of lanes, "lanes.lr=1e-3,1e-2". Raises UserError."""
        path, value = _assignment("--sweep ", text)
        if path.startswith("lanes."):
            self.values[path] = parsed(path, find_knob(path, "--sweep ").kind, value)
        else:
            self._set_axis(path, value, "--sweep ")

    def _set_axis(self, path: str, text: str, place: str) -> None:
        """Values of an axis: a,b or (a,b); where the knob itself is a tuple, each value in brackets: (a,b),(c,)."""
        knob = _axis(path, place)
        parts = split(path, text if is_tuple(knob.kind) else inside(text))
        if is_tuple(knob.kind) and len(parts) == 1:
            within = split(path, inside(parts[0]))
            parts = within if within and all(inside(part) != part for part in within) else parts
        for part in parts:
            if is_tuple(knob.kind) and inside(part) == part:
                raise UserError(f"{place}{path}: each value is a tuple, in brackets: ({part},) instead of {part}")
        self.axes[path] = tuple(parsed(path, knob.kind, part) for part in parts)


def read_file(path: str | Path) -> Config:
    """Run a config file and hold what it gives against the schema.

    Raises:
      UserError: no such file, an exception in it, keys that are unknown or missing, values of the wrong type.
    """
    config = _run(path)
    result = Config({}, {})
    known = [*SECTIONS, "cells"]
    for section in config:
        if section not in known:
            raise UserError(f"{path}: config.{section} is no section{close_to(section, known)}")
    for section in known:
        if not isinstance(config.get(section), dict):
            raise UserError(f"{path}: the section config.{section} is missing; begin with base.get_config()")
    for section in SECTIONS:
        for key, value in config[section].items():
            knob = find_knob(f"{section}.{key}", f"{path}: config.")
            result.values[knob.path] = typed(f"{path}: config.{knob.path}", knob.kind, value)
    for knob_path in KNOBS:
        if knob_path not in result.values:
            raise UserError(f"{path}: config.{knob_path} is missing; begin with base.get_config()")
    for section, entries in config["cells"].items():
        if not isinstance(entries, dict):
            raise UserError(f"{path}: config.cells.{section} must be a section, as in config.cells.model.d_k = (4, 64)")
        for key, options in entries.items():
            place = f"{path}: config.cells."
            knob = _axis(f"{section}.{key}", place)
            if not isinstance(options, tuple | list):
                raise UserError(f"{place}{knob.path} = {show(options)} must be a tuple of values")
            result.axes[knob.path] = tuple(typed(f"{place}{knob.path}", knob.kind, option) for option in options)
    return result


def _run(path: str | Path) -> dict[str, Any]:
    """What get_config() of a config file returns, as nested dicts."""
    try:
        source = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--config={path}: {reason}{_other_file(Path(path))}") from error
    module = types.ModuleType("config")
    module.__file__ = str(path)
    try:
        # Not imported: of a file edited twice within a second Python's cache of compiled files would give the first.
        exec(compile(source, str(path), "exec"), module.__dict__)
        if not callable(getattr(module, "get_config", None)):
            raise UserError(f"{path}: no function get_config() in it; {_WHAT}")
        config = _nested(module.get_config())
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        what = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        hint = "" if b"get_config" in source else f"; {_WHAT}"
        raise UserError(f"{place}: {type(error).__name__}: {what}{hint}") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: get_config() must return a ConfigDict, not {type(config).__name__}")
    return config


def _other_file(path: Path) -> str:
    """What to give instead of a path that cannot be read: a file beside it or in configs/ of nearly that name."""
    files = [file for folder in (Path("configs"), path.parent) for file in sorted(folder.glob("[!_]*.py"))]
    by_name = {file.stem: file for file in files}
    close = difflib.get_close_matches(path.stem, by_name, n=1, cutoff=0.7)
    return f"; did you mean {by_name[close[0]]}?" if close else f"; {_WHAT}"


def _nested(config: Any) -> Any:
    if isinstance(config, ConfigDict | Mapping):
        return {str(key): _nested(value) for key, value in config.items()}
    return config


def _assignment(flag: str, text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not path.strip():
        raise UserError(f"{flag}{text}: a knob is missing; write {flag}SECTION.KNOB=VALUE")
    if not equals:
        raise UserError(f"{flag}{text}: a value is missing; write {flag}{path}=VALUE")
    return path.strip(), value


def _axis(path: str, place: str) -> Knob:
    """The knob of an axis of the grid. Raises UserError for what cannot be one."""
    knob = find_knob(path, place)
    if path.startswith("lanes."):
        raise UserError(f"{place}{path} is no axis of the grid: lanes are listed in config.{path}")
    if path in NOT_AXES:
        raise UserError(f"{place}{path} is no axis of the grid: it tells no cells apart; use --config.{path}=VALUE")
    return knob


def find_knob(path: str, place: str) -> Knob:
    """The knob of a dotted path. Raises UserError with a suggestion; `place` stands before the path in its message."""
    if path in KNOBS:
        return KNOBS[path]
    if path in SECTIONS:
        knobs = ", ".join(knob for knob in KNOBS if knob.startswith(f"{path}."))
        raise UserError(f"{place}{path} is a section, not a knob; its knobs: {knobs}")
    last = path.rpartition(".")[2]
    alike = [known for known in KNOBS if known.rpartition(".")[2] == last]
    hint = f"; did you mean {' or '.join(alike)}?" if alike else close_to(path, KNOBS)
    raise UserError(f"{place}{path} is no knob{hint or '; all knobs are in configs/base.py'}")


def close_to(word: Any, known: Collection[str]) -> str:
    """A suggestion, or nothing where no known word is close. The last parts of dotted words count by themselves too."""
    whole = difflib.get_close_matches(str(word), known, n=1, cutoff=0.7)
    last = {name.rpartition(".")[2]: name for name in known}
    parts = difflib.get_close_matches(str(word).rpartition(".")[2], last, n=1, cutoff=0.7)
    close = whole or [last[part] for part in parts]
    return f"; did you mean {close[0]}?" if close else ""
