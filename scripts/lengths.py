"""Accuracy by length of the source, of the lanes of a study as they were best on valid.

python scripts/lengths.py runs/bottleneck
python scripts/lengths.py runs/bottleneck --width=10 --value=token_accuracy --image=lengths.svg --json=lengths.jsonl

Evaluates each cell's lanes at its best rate anew, from their checkpoints: seconds a lane. Changes nothing there.
"""

import argparse
import sys
from pathlib import Path

from train.environment import use_compilation_cache
from train.errors import UserError, exit_status
from train.jsonl import to_json
from train.layout import start_backend
from train.lengths import length_rows
from train.metrics import METRICS
from train.report.charts import check_image, save
from train.report.files import check_files
from train.report.lengths_page import chart, text
from train.report.selection import read_part
from train.report.statistics import best_lanes, choosing_metric, lane_results
from train.report.tables import headline_values


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Accuracy by length of the source, from the checkpoints of a study.")
    parser.add_argument("workdir", type=Path, metavar="WORKDIR", help="the --workdir of the study")
    parser.add_argument("--only", action="append", default=[], help="cells to look at, as for training; repeatable")
    parser.add_argument("--split", choices=("valid", "test"), default="test", help="default: %(default)s")
    parser.add_argument("--value", choices=tuple(METRICS), default="sequence_accuracy", help="default: %(default)s")
    parser.add_argument("--width", type=int, default=5, help="lengths that go together (default: %(default)s)")
    parser.add_argument("--image", type=Path, help="draw it, as .svg or .png")
    parser.add_argument("--json", type=Path, help="write a row a line to this file")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Evaluate, print, write."""
    if options.width < 1:
        raise UserError(f"--width={options.width}: give a whole number from 1 on")
    if options.image is not None:
        check_image(options.image)
    check_files(json=options.json, image=options.image)
    part = read_part(options.workdir, options.only)
    lanes = lane_results(part.rows)
    if not lanes:
        raise UserError(f"{options.workdir} has no evaluations of {', '.join(part.unevaluated)} yet")
    start_backend(0)
    use_compilation_cache()
    chosen = [
        (lane.cell, lane.lane) for lane in best_lanes(lanes, choosing_metric(lanes, headline_values(part.rows)[0]))
    ]
    rows = list(length_rows(options.workdir, chosen, options.split, options.width))
    print(text(rows, options.value, options.split) + part.unfinished(), end="")
    if options.json is not None:
        options.json.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")
        print(options.json)
    if options.image is not None:
        save(chart(rows, options.value, options.split), options.image)
        print(options.image)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 2 after one line that says why."""
    options = parse(arguments)
    return exit_status(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
