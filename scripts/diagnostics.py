"""Print what attention does inside, over the steps of a study: one quantity of diagnostics.jsonl.

python scripts/diagnostics.py runs/dk_study
python scripts/diagnostics.py runs/dk_study --value=alignment --attention=cross --lr=0.001 --only d_k=1024
python scripts/diagnostics.py runs/dk_study --value=entropy --csv --output=entropy.csv
"""

import argparse
import shutil
import sys
from pathlib import Path

from train.errors import UserError, exit_status
from train.report.files import check_files
from train.report.inside import QUANTITIES, of_chosen
from train.report.inside_table import steps_csv, steps_text
from train.report.pivot import lanes_at
from train.report.selection import read_part
from train.report.statistics import choosing_metric, lane_results, ordered
from train.report.tables import headline_values, put


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Print what attention does inside, over the steps of a study.")
    parser.add_argument("workdir", type=Path, metavar="WORKDIR", help="the --workdir of the study")
    parser.add_argument("--only", action="append", default=[], help="cells to show, as for training; repeatable")
    parser.add_argument(
        "--value", choices=tuple(QUANTITIES), default="variance_within", help="the quantity (default: %(default)s)"
    )
    parser.add_argument("--attention", help="encoder_self, decoder_self or cross (default: all)")
    parser.add_argument("--lr", type=float, help="lanes at this learning rate (default: at each cell's best on valid)")
    parser.add_argument("--csv", action="store_true", help="CSV with full digits, medians and ranges")
    parser.add_argument("--output", type=Path, help="write to this file and print its path")
    return parser.parse_args(arguments)


def table(options: argparse.Namespace) -> str:
    """The text asked for. Raises UserError for a rate or an attention the study does not have."""
    check_files(output=options.output)
    part = read_part(options.workdir, options.only)
    lanes = lane_results(part.rows)
    if not lanes:
        raise UserError(f"{options.workdir}: metrics.jsonl has no evaluations yet")
    metric = headline_values(part.rows)[0]
    rates = f"each cell at its best rate, chosen by {choosing_metric(lanes, metric)} on valid"
    if options.lr is not None:
        lanes, rates = lanes_at(lanes, options.lr), f"at learning rate {options.lr:g}"
    found = of_chosen(part.diagnostics, lanes, metric)
    if options.attention is not None:
        known = ordered(row["attention"] for _, row in found)
        if known and options.attention not in known:
            raise UserError(f"--attention={options.attention}: the study has {', '.join(known)}")
        found = [(lane, row) for lane, row in found if row["attention"] == options.attention]
    if not found:
        raise UserError(f"{options.workdir}: no attention in the rows of these lanes (a model may be without)")
    if options.csv:
        return steps_csv(found, options.value)
    return steps_text(found, options.value, rates, shutil.get_terminal_size((120, 24)).columns) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 2 after one line that says why."""
    options = parse(arguments)
    return exit_status(lambda: put(table(options), options.output))


if __name__ == "__main__":
    sys.exit(main())
