"""The section of the report that shows what attention does inside: charts over the steps, and a table of the end."""

import statistics
from collections.abc import Sequence
from typing import Any

import altair as alt

from train.log import Row
from train.report.axes import thin, title_lines
from train.report.charts import facets, finish, layout, series_encodings
from train.report.curves import order_of, significant
from train.report.inside import QUANTITIES, at_the_end, of_chosen, over_steps
from train.report.markup import Figures, escape, grid
from train.report.statistics import LaneResult, best_lanes, choosing_metric
from train.report.tables import number
from train.report.words import printable
from train.words import counted

POINTS = 4000
FLOOR = 1e-8  # what is smaller is drawn there where an axis is of powers of ten
# In every report. The variance is that within rows: what the scores of a row have in common the softmax takes away.
DRAWN = ("variance_within", "entropy", "jacobian_q50")


def development(
    found: Sequence[tuple[LaneResult, Row]], lanes: Sequence[LaneResult], name: str
) -> alt.TopLevelMixin | None:
    """A quantity of QUANTITIES against the step: a row of panels an attention, a panel a value of d_k, a line a score.

    Lines are medians over seeds, layers and heads; bands span them.
    """
    words, powers = QUANTITIES[name]
    plan = layout(lanes)
    outer = plan.x if plan.x not in (plan.series, "lr") else ""
    cells = {lane.cell: lane for lane, _ in found}
    numbers: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    places = over_steps(found, name)
    for cell, attention in sorted(places, key=lambda place: order_of(cells[place[0]].axes.get(outer))):
        facet = f"{outer} = {printable(cells[cell].axes.get(outer))}" if outer else ""
        panel = ", ".join(part for part in (attention, plan.panel_of(cells[cell])) if part)
        numbers[(panel, facet, plan.series_of(cells[cell]))] = places[(cell, attention)]
    keep = max(10, POINTS // max(len(numbers), 1))
    data: list[dict[str, Any]] = []
    for (panel, facet, series), steps in numbers.items():
        order = sorted(steps)
        for index in thin(len(order), keep):
            values = [max(value, FLOOR) if powers else value for value in steps[order[index]]]
            point: dict[str, Any] = {"panel": panel, "facet": facet, "series": series, "step": order[index]}
            point |= {"middle": significant(statistics.median(values))}
            point |= {"low": significant(min(values)), "high": significant(max(values))}
            data.append(point)
    if not data:
        return None
    scale = alt.Scale(type="log", nice=False) if powers else alt.Scale(domain=[0, 1])
    y = {
        "title": title_lines(words, 170),
        "scale": scale,
        "axis": alt.Axis(tickCount=5, format="~e" if powers else "~g", labelOverlap=True),
    }
    encodings = series_encodings(plan, "stroke")
    base = alt.Chart().encode(x=alt.X("step:Q", title="step", axis=alt.Axis(tickCount=4, grid=False)))
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", **y), y2="high:Q", color=encodings["color"])
    line = base.mark_line(strokeWidth=1.8, point={"size": 12, "filled": True}).encode(
        y=alt.Y("middle:Q", **y), color=encodings["color"], strokeDash=encodings["strokeDash"]
    )
    inner = alt.layer(band, line).properties(width=215, height=170)
    return finish(facets(inner, data, 4, True), lanes)


def inside_section(diagnostics: Sequence[Row], lanes: Sequence[LaneResult], value: str, figures: Figures) -> str:
    """What attention does inside, of each cell at its best rate; nothing where nothing was diagnosed."""
    found = of_chosen(diagnostics, lanes, value)
    if not found:
        return ""
    drawn = []
    for name in DRAWN:
        words, powers = QUANTITIES[name]
        remark = f" What is below {FLOOR:g} is drawn there." if powers else ""
        caption = (
            f"{words} against the step, each cell at its best rate: median over seeds, layers and heads; the "
            f"band spans them.{remark}"
        )
        drawn.append(figures.add(development(found, lanes, name), escape(caption)))
    lines = [
        [escape(cell), escape(attention), *(number(value, "") for value in medians.values())]
        for cell, attention, medians in at_the_end(found)
    ]
    table = grid(["cell", "attention", *QUANTITIES], lines, text=2)
    best = best_lanes(lanes, choosing_metric(lanes, value))
    missing = len(best) - len({(lane.cell, lane.lane) for lane, _ in found})
    shown = f"{counted(len(best), 'lane')}, {missing} of them without rows in diagnostics.jsonl."
    lost = f'<p class="warning">{shown}</p>' if missing else ""
    summary = "At the last step: medians over seeds, layers and heads"
    details = f'<details><summary>{summary}</summary><div class="scroll">{table}</div></details>'
    return f"<h2>Inside attention</h2>{lost}{''.join(drawn)}{details}"
