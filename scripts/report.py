"""Write the report of a study: charts and tables in one HTML file that opens offline.

python scripts/report.py runs/dk_study
python scripts/report.py runs/dk_study --image=docs/dk_study.svg

Takes a few seconds. Prints the path of each file it wrote.
"""

import argparse
import sys
from pathlib import Path

import altair as alt

from train.errors import UserError, exit_status
from train.log import read_config, read_rows
from train.report.charts import check_image, headline, save
from train.report.page import write_report
from train.report.statistics import lane_results
from train.report.tables import headline_values


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the report of a study as one HTML file that opens offline.")
    parser.add_argument("workdir", type=Path, metavar="WORKDIR", help="the --workdir of the study")
    parser.add_argument("--output", type=Path, help="the HTML file to write (default: WORKDIR/report.html)")
    parser.add_argument("--image", type=Path, help="also write the headline chart, as .svg or .png")
    parser.add_argument("--value", help="with --image: its metric (default: the headline metric of the report)")
    return parser.parse_args(arguments)


def draw_image(workdir: Path, value: str | None) -> alt.TopLevelMixin:
    """The headline chart alone. Raises UserError where the study has nothing to draw."""
    read_config(workdir)
    rows = read_rows(workdir)
    lanes = lane_results(rows)
    split = "test" if any(lane.finished for lane in lanes) else "valid"
    value = value or headline_values(rows)[0]
    chart = headline(lanes, value, split) if lanes else None
    if chart is None:
        raise UserError(f"--image: {workdir} has no finite {value} on {split} to draw")
    return chart


def run(options: argparse.Namespace) -> int:
    """Write what was asked for: all of it, or nothing where a part is refused."""
    if options.image is None:
        if options.value is not None:
            raise UserError(f"--value={options.value}: it names the metric of the image; add --image=NAME.svg")
        chart = None
    else:
        check_image(options.image)
        chart = draw_image(options.workdir, options.value)
    print(write_report(options.workdir, options.output or options.workdir / "report.html"))
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
