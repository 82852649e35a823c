"""Write the report of a study: charts and tables in one HTML file that opens offline.

python scripts/report.py runs/dk_study
python scripts/report.py runs/dk_study --image=docs/dk_study.svg
python scripts/report.py runs/dk_study --only score=dot --only score=scaled_dot --image=inside.svg --value=entropy

Takes a few seconds. Prints the path of each file it wrote.
"""

import argparse
import sys
from pathlib import Path

import altair as alt

from train.errors import UserError, exit_status
from train.report.charts import check_image, headline, save
from train.report.files import check_files
from train.report.inside import QUANTITIES, of_chosen
from train.report.inside_section import development
from train.report.page import write_report
from train.report.selection import Part, read_part
from train.report.statistics import lane_results
from train.report.tables import headline_values, measured


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the report of a study as one HTML file that opens offline.")
    parser.add_argument("workdir", type=Path, metavar="WORKDIR", help="the --workdir of the study")
    parser.add_argument("--output", type=Path, help="the HTML file to write (default: WORKDIR/report.html)")
    parser.add_argument("--only", action="append", default=[], help="cells to show, as for training; repeatable")
    parser.add_argument("--image", type=Path, help="also write one chart, as .svg or .png")
    parser.add_argument(
        "--value",
        help="with --image: what it draws at the end of training, a metric (default: the headline metric of the "
        "report), or over the steps, a quantity of diagnostics.jsonl, one of " + ", ".join(QUANTITIES),
    )
    return parser.parse_args(arguments)


def draw_image(part: Part, value: str | None) -> alt.TopLevelMixin:
    """One chart alone. Raises UserError where the study has nothing to draw."""
    lanes = lane_results(part.rows)
    metric = headline_values(part.rows)[0]
    if value and value not in (*QUANTITIES, *measured(part.rows)):
        known = ", ".join([*measured(part.rows), *QUANTITIES])
        raise UserError(f"--value={value}: the study has no such number; it has {known}")
    if value in QUANTITIES:
        chart = development(of_chosen(part.diagnostics, lanes, metric), lanes, value)
        what = f"{value} in diagnostics.jsonl"
    else:
        split = "test" if any(lane.finished for lane in lanes) else "valid"
        chart = headline(lanes, value or metric, split) if lanes else None
        what = f"{value or metric} on {split}"
    if chart is None:
        raise UserError(f"--image: {part.workdir} has no finite {what} to draw")
    return chart


def run(options: argparse.Namespace) -> int:
    """Write what was asked for: all of it, or nothing where something is refused."""
    check_files(output=options.output, image=options.image)
    if options.image is not None:
        check_image(options.image)
    part = read_part(options.workdir, options.only)
    if options.image is None:
        if options.value is not None:
            raise UserError(f"--value={options.value}: it names the metric of the image; add --image=NAME.svg")
        chart = None
    else:
        chart = draw_image(part, options.value)
    print(write_report(part, options.output or options.workdir / "report.html"))
    if chart is not None:
        save(chart, options.image)
        print(options.image)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Entry point: 0, or 2 after one line that says why."""
    options = parse(arguments)
    return exit_status(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
