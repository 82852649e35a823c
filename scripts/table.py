"""Print a study as a table: one metric, pivoted over two axes, at the best rate of each cell and at each fixed rate.

python scripts/table.py runs/dk_study
python scripts/table.py runs/dk_study --value=sequence_accuracy --statistic=best
python scripts/table.py runs/dk_study --verdicts
python scripts/table.py runs/dk_study --split=valid --step=600
python scripts/table.py runs/dk_study --rows=lr --columns=score --statistic=sd --csv --output=table.csv
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from train.errors import UserError, exit_status
from train.log import Row
from train.report.files import check_files
from train.report.pivot import STATISTICS, VIEWS, default_layout, lanes_at, pivot
from train.report.selection import read_part
from train.report.statistics import LaneResult, lane_results, ordered
from train.report.tables import headline_values, measured, put, to_csv, to_text
from train.report.verdict_table import verdict_csv, verdict_text


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Print a study as a table.")
    parser.add_argument("workdir", type=Path, metavar="WORKDIR", help="the --workdir of the study")
    parser.add_argument("--only", action="append", default=[], help="cells to show, as for training; repeatable")
    parser.add_argument("--rows", help="axis down the side, or lr, or seed (default: d_k where it varies)")
    parser.add_argument("--columns", help="axis along the top, or lr, or seed (default: score where it varies)")
    parser.add_argument("--value", help="metric (default: token_accuracy; bleu where it was measured)")
    parser.add_argument("--split", choices=("test", "valid", "train"), default="test", help="default: %(default)s")
    parser.add_argument(
        "--statistic",
        choices=(*VIEWS, *STATISTICS),
        default="both",
        help="best: mean ± half the spread over seeds at each cell's best rate on valid; fixed: at each rate; "
        "both (default); any other: that number, at the best rate and at each rate",
    )
    parser.add_argument("--step", type=int, help="valid or train after this update (default: of the best parameters)")
    parser.add_argument("--lr", type=float, help="this learning rate only")
    parser.add_argument(
        "--verdicts",
        action="store_true",
        help="compare the scores at each d_k, at their best rates or at --lr: differences, tests, verdicts",
    )
    parser.add_argument("--csv", action="store_true", help="CSV with full digits")
    parser.add_argument("--output", type=Path, help="write to this file and print its path")
    return parser.parse_args(arguments)


def table(options: argparse.Namespace) -> str:
    """The text asked for. Raises UserError for a name the log does not have."""
    check_files(output=options.output)
    rows = read_part(options.workdir, options.only).rows
    lanes = lane_results(rows, options.step)
    if not lanes:
        raise UserError(f"{options.workdir}: no evaluations yet")
    if options.step is not None:
        check_step(options, rows)
    names = measured(rows)
    value = options.value or headline_values(rows)[0]
    if options.value is not None and names and value not in names:
        raise UserError(f"--value={value}: the log has no such metric; it has {', '.join(sorted(names))}")
    if options.verdicts:
        return verdict_table(options, lanes, value)
    along, across = default_layout(lanes)
    if options.rows is not None and options.rows == options.columns:
        raise UserError(f"--rows={options.rows} --columns={options.columns}: rows and columns must differ")
    if options.rows is not None:
        along, across = options.rows, along if options.rows == across else across
    if options.columns is not None:
        along, across = across if options.columns == along else along, options.columns
    tables = pivot(
        lanes, rows=along, columns=across, value=value, split=options.split, statistic=options.statistic, lr=options.lr
    )
    if options.csv:
        return to_csv(tables)
    when = "" if options.step is None else f"after update {options.step}\n"
    return when + to_text(tables, shutil.get_terminal_size((120, 24)).columns) + "\n"


def check_step(options: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Raises UserError where the split was not evaluated after that update."""
    if options.split == "test":
        raise UserError(f"--step={options.step}: test is evaluated once, with the best parameters; add --split=valid")
    known = ordered(row["step"] for row in rows if row["split"] == options.split)
    if options.step not in known:
        raise UserError(f"--step={options.step}: {options.split} was evaluated after {', '.join(map(str, known))}")


def verdict_table(options: argparse.Namespace, lanes: Sequence[LaneResult], value: str) -> str:
    """The comparisons asked for. Raises UserError for a flag that arranges tables, and for a rate nobody trained at."""
    for flag, given in (("--rows", options.rows), ("--columns", options.columns)):
        if given is not None:
            raise UserError(f"{flag}={given}: it arranges a table; leave it out with --verdicts")
    if options.statistic != "both":
        raise UserError(f"--statistic={options.statistic}: it chooses a number; leave it out with --verdicts")
    if options.lr is not None:
        lanes = lanes_at(lanes, options.lr)
    if options.csv:
        return verdict_csv(lanes, value, options.split)
    return verdict_text(lanes, value, options.split, shutil.get_terminal_size((120, 24)).columns) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 2 after one line that says why."""
    options = parse(arguments)
    return exit_status(lambda: put(table(options), options.output))


if __name__ == "__main__":
    sys.exit(main())
