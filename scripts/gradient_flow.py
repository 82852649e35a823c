"""Follow a gradient back through time in recurrent cells: exact Jacobians of the state, their products, the gates.

python scripts/gradient_flow.py runs/recurrent                     trained cells, on sentences of valid; charts
python scripts/gradient_flow.py runs/recurrent --only rnn=lstm --lane=3 --json=flow.jsonl
python scripts/gradient_flow.py --init --output=flow.html          cells as models start with them

Reads checkpoints and changes nothing there. --init takes half a minute on 2 cores.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from train.environment import use_compilation_cache
from train.errors import UserError, exit_status
from train.gradient_flow import at_initialisation, distance_rows, of_study
from train.jsonl import to_json
from train.layout import start_backend
from train.log import Row
from train.report.files import check_files
from train.report.gradient_page import page, table
from train.report.markup import write_page
from train.report.selection import read_part
from train.report.tables import pad, width_of
from train.values import split

LIMITS = {"d_model": (1, 256), "length": (1, 1000), "sentences": (1, 4096), "seed": (0, 2**32 - 1)}
INITIAL = {"d_model": 64, "length": 50, "seed": 0, "input_size": "1,0.1"}  # defaults of what needs --init


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Follow a gradient back through time in recurrent cells.")
    parser.add_argument("workdir", type=Path, metavar="WORKDIR", nargs="?", help="the --workdir of a study")
    parser.add_argument("--only", action="append", help="of the recurrent cells these, as for training; repeatable")
    parser.add_argument("--lane", type=int, help="a lane of the study (default: of each cell the best on valid)")
    parser.add_argument("--sentences", type=int, default=32, help="at most so many (default: %(default)s)")
    parser.add_argument("--init", action="store_true", help="no study: tanh, gru and lstm as models start with them")
    parser.add_argument("--d_model", type=int, help=f"with --init: width (default: {INITIAL['d_model']})")
    parser.add_argument("--length", type=int, help=f"with --init: tokens (default: {INITIAL['length']})")
    parser.add_argument("--seed", type=int, help=f"with --init: of the draws (default: {INITIAL['seed']})")
    parser.add_argument(
        "--input_size", help=f"with --init: standard deviations of the inputs (default: {INITIAL['input_size']})"
    )
    parser.add_argument("--json", type=Path, help="write a row a line to this file: one a cell and distance")
    parser.add_argument("--output", type=Path, help="the HTML file (default: WORKDIR/gradient_flow.html; --init: none)")
    return parser.parse_args(arguments)


def sizes(text: str) -> list[float]:
    """Standard deviations from "1,0.1". Raises UserError."""
    try:
        found = [float(part) for part in split("--input_size", text)]
    except ValueError:
        found = []
    if not found or not all(0 <= size <= 1e6 for size in found):
        raise UserError(f"--input_size={text}: give numbers from 0 to 1e6, as --input_size=1,0.1")
    return list(dict.fromkeys(found))


def check(options: argparse.Namespace) -> None:
    """Fill in defaults. Raises UserError for flags that do not fit."""
    if options.init == (options.workdir is not None):
        raise UserError("give either the workdir of a study or --init")
    for name in INITIAL if options.workdir else ("only", "lane"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name}: it needs {'--init' if options.workdir else 'a workdir'}")
    for name, default in INITIAL.items():
        setattr(options, name, default if getattr(options, name) is None else getattr(options, name))
    for name, (least, most) in LIMITS.items():
        if not least <= getattr(options, name) <= most:
            raise UserError(f"--{name}={getattr(options, name)}: give a whole number from {least} to {most}")
    options.input_size = sizes(options.input_size)
    check_files(json=options.json, output=options.output)


def show(head: list[str], lines: list[list[str]]) -> None:
    """Print a table: two columns of words, then numbers."""
    widths = [max(map(width_of, column)) for column in zip(head, *lines, strict=True)]
    for line in [head, *lines]:
        cells = [pad(text, width) for text, width in zip(line[:2], widths, strict=False)]
        print("  ".join([*cells, *(text.rjust(width) for text, width in zip(line[2:], widths[2:], strict=True))]))


def run(options: argparse.Namespace) -> int:
    """Measure, print, write."""
    check(options)
    start_backend(0)
    use_compilation_cache()
    unfinished = ""
    if options.init:
        drawn = (options.d_model, options.length, options.sentences, options.seed, options.input_size)
        followed = list(at_initialisation(*drawn))
        subject = f"Cells as models start with them: width {options.d_model}, seed {options.seed}, inputs drawn"
    else:
        part = read_part(options.workdir, options.only or ())
        followed = list(of_study(part, options.lane, options.sentences))
        unfinished = part.unfinished()
        subject = f"{options.workdir}: first layer of the encoder, forwards, on sentences of valid"
    series: dict[tuple[str, str], list[Row]] = {(one.label, one.group): list(distance_rows(one)) for one in followed}
    gates = {
        (one.label, one.group): {name: np.asarray(gate) for name, gate in one.flow.gates.items()} for one in followed
    }
    show(*table(series))
    print(unfinished, end="")
    if options.json is not None:
        rows = [row for each in series.values() for row in each]
        options.json.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")
        print(options.json)
    output = options.output or (options.workdir / "gradient_flow.html" if options.workdir else None)
    if output is not None:
        print(write_page(page(series, gates, subject), output))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 2 after one line that says why."""
    options = parse(arguments)
    return exit_status(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
