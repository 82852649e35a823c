"""The section of the report that shows what attention does inside."""

from collections.abc import Sequence

from train.log import Row
from train.report import inside
from train.report.markup import Figures, escape, grid
from train.report.statistics import LaneResult, best_lanes, choosing_metric
from train.report.tables import number
from train.words import counted


def inside_section(diagnostics: Sequence[Row], lanes: Sequence[LaneResult], value: str, figures: Figures) -> str:
    """What attention does inside, of each cell at its best rate; nothing where nothing was diagnosed."""
    found = inside.of_chosen(diagnostics, lanes, value)
    if not found:
        return ""
    drawn = []
    for name in inside.DRAWN:
        words, powers = inside.QUANTITIES[name]
        remark = f" What is below {inside.FLOOR:g} is drawn there." if powers else ""
        caption = (
            f"{words} against the step, each cell at its best rate: median over seeds, layers and heads; the "
            f"band spans them.{remark}"
        )
        drawn.append(figures.add(inside.development(found, lanes, name), escape(caption)))
    lines = [
        [escape(cell), escape(attention), *(number(value, "") for value in medians.values())]
        for cell, attention, medians in inside.at_the_end(found)
    ]
    table = grid(["cell", "attention", *inside.QUANTITIES], lines, text=2)
    best = best_lanes(lanes, choosing_metric(lanes, value))
    missing = len(best) - len({(lane.cell, lane.lane) for lane, _ in found})
    shown = f"{counted(len(best), 'lane')}, {missing} of them without rows in diagnostics.jsonl."
    lost = f'<p class="warning">{shown}</p>' if missing else ""
    summary = "At the last step: medians over seeds, layers and heads"
    details = f'<details><summary>{summary}</summary><div class="scroll">{table}</div></details>'
    return f"<h2>Inside attention</h2>{lost}{''.join(drawn)}{details}"
