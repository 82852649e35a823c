"""Command line of training: flags, config file, one call.

JAX is imported only once a plan is asked for, so that help and refused flags are instant.
"""

import ast
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from train.errors import UserError, exit_status

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

USAGE = """\
usage: python -m train --config=FILE --workdir=DIR [flags]

Trains every cell of a grid, all learning rates and seeds of a cell at once. The same command again continues where it
stopped; with more cells, rates or seeds it runs those that are missing.

  --config=FILE              Python file with get_config(): what to run (see below)
  --workdir=DIR              folder of the study: config.json, metrics.jsonl, checkpoints; made where it is missing
  --config.SECTION.KNOB=VALUE
                             another value for a knob; the last of two wins. Lists: a,b or (a, b); empty: ()
                             --config.run.steps=200 --config.lanes.seed=0,1,2 --config.model.score=dot
  --sweep SECTION.KNOB=A,B   sets or adds an axis of the grid, or the rates and seeds; repeatable, of two for one
                             knob the last wins
                             --sweep model.d_k=4,64,256 --sweep lanes.lr=1e-3,3e-3
  --only AXIS=VALUE          runs the cells that match; repeatable: --only score=dot --only score=scaled_dot,d_k=4
  --dry_run                  prints cells, lanes and what they cost, and stops
  --overwrite                starts anew: removes the study that the workdir holds
  --profile                  traces a few updates of the cell trained first into WORKDIR/profile, prints which
                             operations took longest, and trains on
  --flagfile=FILE            reads flags from a file, one a line, written with =: --sweep=model.d_k=4,64
  --help                     this text

Every knob, with its meaning and default, stands in configs/base.py. Configs here:
"""


def make_flags() -> flags.FlagValues:
    """The flags, apart from --config.SECTION.KNOB, which are taken out before."""
    values = flags.FlagValues()
    flags.DEFINE_string("config", None, "config file", flag_values=values)
    flags.DEFINE_string("workdir", None, "folder of the study", flag_values=values)
    flags.DEFINE_multi_string("sweep", [], "axis of the grid", flag_values=values)
    flags.DEFINE_multi_string("only", [], "cells to run", flag_values=values)
    flags.DEFINE_bool("dry_run", False, "print and stop", flag_values=values)
    flags.DEFINE_bool("overwrite", False, "start anew", flag_values=values)
    flags.DEFINE_bool("profile", False, "trace a chunk", flag_values=values)
    flags.DEFINE_bool("help", False, "print help", flag_values=values, short_name="h")
    return values


def take_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split --config.a.b=v and --config.a.b v from the other arguments: ("a.b=v" each, the rest), in their order."""
    overrides, rest = [], []
    remaining = iter(arguments)
    for argument in remaining:
        match = re.match(r"--?config\.([^=]*)(=?)(.*)", argument, re.DOTALL)
        if not match:
            rest.append(argument)
            continue
        path, equals, value = match.groups()
        if not equals:
            following = next(remaining, None)
            if following is None or following.startswith("--"):
                raise UserError(f"{argument}: a value is missing; write {argument}=VALUE")
            value = following
        overrides.append(f"{path}={value}")
    return overrides, rest


def read_flag_files(values: flags.FlagValues, arguments: Sequence[str]) -> list[str]:
    """The arguments with the flags of a file in the place of each --flagfile=FILE. Raises UserError."""
    try:
        return list(values.read_flags_from_files(list(arguments)))
    except (flags.Error, UnicodeError) as error:
        opening = error.__context__
        what = f"={opening.filename}: {opening.strerror}" if isinstance(opening, OSError) else f": {error}"
        raise UserError(f"--flagfile{what}; give a text file with a flag a line") from error


def help_text() -> str:
    """Usage, and the configs with the first line of their docstrings."""
    files = [file for file in sorted(CONFIGS.rglob("*.py")) if file.name != "__init__.py"]
    names = [str(file.relative_to(CONFIGS.parent)) for file in files]
    width = max(map(len, names), default=0)
    lines = [USAGE.rstrip("\n")]
    for name, file in zip(names, files, strict=True):
        summary = (ast.get_docstring(ast.parse(file.read_bytes())) or "").partition("\n")[0]
        lines.append(f"  {name:<{width}} {summary}")
    return "\n".join(lines)


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit status. Raises UserError."""
    values = make_flags()
    try:
        overrides, rest = take_overrides(read_flag_files(values, arguments))
        positional = values(["python -m train", *rest])[1:]
    except flags.Error as error:
        reason = re.sub(r"^ERROR:: |\('|', '.*'\)$| \?$", "", " ".join(str(error).split()))
        raise UserError(f"{reason}; --help lists all flags") from error
    if values.help:
        print(help_text())
        return 0
    if positional:
        raise UserError(f"unexpected argument {positional[0]!r}; --help lists all flags")
    if not values.config:
        raise UserError("--config=FILE is missing; --help lists the configs")
    if not (values.workdir or values.dry_run):
        raise UserError("--workdir=DIR is missing: where the study is kept; or --dry_run")

    # XLA's loader of cached CPU programs logs an error for two tuning hints that it mistakes for missing instructions.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from train.plan import make_plan

    plan = make_plan(values.config, overrides, values.sweep, values.only)

    from train import loop

    if values.dry_run:
        return loop.dry_run(plan)
    return loop.run_study(plan, Path(values.workdir), overwrite=values.overwrite, profile=values.profile)


def main() -> int:
    """Entry point: 0 finished, 2 refused, 130 interrupted."""
    try:
        return exit_status(lambda: run(sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted before training began", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
