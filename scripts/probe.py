"""Look at scores and weights before any training: of unit-normal queries and keys, and of models as they start.

python scripts/probe.py                                                   a table of all scores; 2 minutes on 2 cores
python scripts/probe.py --scores=dot,scaled_dot --d_k=16,64 --rows=200000 --json=probe.jsonl
python scripts/probe.py --config=configs/dk_quick.py --output=probe.html     models of a config too; charts
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from model import SCORES
from train.__main__ import take_overrides
from train.environment import use_compilation_cache
from train.errors import UserError, exit_status
from train.jsonl import to_json
from train.layout import start_backend
from train.log import Row
from train.plan import make_plan
from train.probe import initial_rows, unit_normal_rows
from train.report.files import check_files
from train.report.markup import write_page
from train.report.probe_page import page, table
from train.values import split

SHOWN = ("dot", "scaled_dot")  # of these the distributions are drawn
DRAWN = 20_000  # numbers of each
NUMBERS = 2**26  # of a row of keys, at most: 0.25 GB
WIDEST = 4096  # of d_k: `general` has d_k x d_k numbers
UNIT = (
    "score",
    "d_k",
    "variance",
    "variance_within",
    "entropy",
    "entropy_expansion",
    "max_weight",
    "one_minus_sum_p2",
    "share_saturated",
    "jacobian_mean",
    "jacobian_q10",
    "jacobian_q50",
    "jacobian_q90",
)
INITIAL = (
    "cell",
    "seed",
    "attention",
    "layer",
    "head",
    "query_norm",
    "key_norm",
    "raw_variance",
    "raw_diagonal_mean",
    "effective_variance",
    "entropy",
    "share_saturated",
    "jacobian_q10",
    "jacobian_q50",
    "jacobian_q90",
)


def parse(arguments: list[str] | None) -> tuple[argparse.Namespace, list[str]]:
    """The command line, and what it says of knobs of the config."""
    parser = argparse.ArgumentParser(description="Scores and weights before any training.")
    parser.add_argument("--scores", default=",".join(SCORES), help="default: all")
    parser.add_argument("--d_k", default="4,16,64,256,1024", help="default: %(default)s")
    parser.add_argument("--keys", type=int, default=32, help="keys of a row (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=4096, help="rows drawn at each d_k (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")
    parser.add_argument("--config", help="a config whose cells are looked at too, with their seeds, before any update")
    parser.add_argument("--sweep", action="append", default=[], help="as for training, with --config")
    parser.add_argument("--json", type=Path, help="write a row a line to this file")
    parser.add_argument("--output", type=Path, help="write tables and charts to this HTML file")
    overrides, rest = take_overrides(sys.argv[1:] if arguments is None else arguments)
    return parser.parse_args(rest), overrides


def numbers(flag: str, text: str) -> list[int]:
    """Widths from "4,16". Raises UserError."""
    try:
        found = [int(part) for part in split(flag, text)]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UserError(f"{flag}={text}: give whole numbers from 1 on, as {flag}=4,64")
    return found


def check(options: argparse.Namespace, overrides: list[str]) -> tuple[list[str], list[int]]:
    """Scores and widths. Raises UserError."""
    names = split("--scores", options.scores)
    if not names:
        raise UserError(f"--scores={options.scores}: choose from {', '.join(sorted(SCORES))}")
    if options.config == "":
        raise UserError("--config= names no file")
    for name in names:
        if name not in SCORES:
            raise UserError(f"--scores={options.scores}: {name!r} is unknown; choose from {', '.join(sorted(SCORES))}")
    widths = sorted(set(numbers("--d_k", options.d_k)))
    for flag, least, most in (("keys", 2, NUMBERS), ("rows", 1, NUMBERS), ("seed", 0, 2**32 - 1)):
        if not least <= getattr(options, flag) <= most:
            raise UserError(f"--{flag}={getattr(options, flag)}: give a whole number from {least} to {most}")
    if max(widths) > WIDEST or max(widths) * options.keys > NUMBERS:
        raise UserError(f"--d_k={options.d_k}: at most {WIDEST}, and times --keys={options.keys} at most {NUMBERS}")
    if (overrides or options.sweep) and not options.config:
        raise UserError("--config.KNOB and --sweep need a config: add --config=FILE")
    check_files(json=options.json, output=options.output)
    return list(dict.fromkeys(names)), widths


def show(rows: list[Row], fields: tuple[str, ...]) -> None:
    """Print a table."""
    head, lines = table(rows, fields)
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    for line in [head, *lines]:
        print("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)))


def run(options: argparse.Namespace, overrides: list[str]) -> int:
    """Measure, print, write."""
    names, widths = check(options, overrides)
    plan = make_plan(options.config, overrides, options.sweep) if options.config else None
    if plan is None:
        start_backend(0, 0.0)
    use_compilation_cache()
    initial = list(initial_rows(plan)) if plan else []
    unit: list[Row] = []
    drawn: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    for row, one in unit_normal_rows(names, widths, keys=options.keys, rows=options.rows, seed=options.seed):
        unit.append(row)
        if row["score"] in SHOWN and set(SHOWN) <= set(names):
            drawn[(row["score"], row["d_k"])] = one.effective_rk.ravel()[:DRAWN], one.weight_rk.ravel()[:DRAWN]
    show(unit, UNIT)
    if initial:
        print()
        show(initial, INITIAL)
    if options.json:
        options.json.write_text("".join(to_json(row) + "\n" for row in [*unit, *initial]), encoding="utf-8")
        print(options.json)
    if options.output:
        print(write_page(page(unit, drawn, initial, UNIT, INITIAL), options.output))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 2 after one line that says why."""
    return exit_status(lambda: run(*parse(arguments)))


if __name__ == "__main__":
    sys.exit(main())
