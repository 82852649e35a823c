"""Learning curves of a study (Altair), thinned so that the page stays light."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from train.log import Row
from train.report.axes import is_number, thin, title_lines
from train.report.charts import Layout, facets, finish, layout, series_encodings
from train.report.intervals import finite
from train.report.statistics import LaneResult, best_lanes, choosing_metric
from train.report.words import SHARE, bounds, printable, title_of

CURVE_POINTS = 6000
FLOOR = 1e-6


def significant(value: float) -> float:
    """With four digits: a page has no use for more."""
    return float(f"{value:.4g}")


def curves(rows: Sequence[Row], lanes: Sequence[LaneResult], value: str, choose: str) -> alt.TopLevelMixin | None:
    """A metric on `valid` against the step: mean and range of the seeds at each cell's best rate, a panel for each x.

    Of a long run a part of the points is drawn, evenly spaced. A lane is in the mean of a step where its row
    holds a finite number: one that diverged goes on with the parameters it froze at, as far as those give one.
    """
    plan = layout(lanes)
    chosen = {(lane.cell, lane.lane): lane for lane in best_lanes(lanes, choosing_metric(lanes, choose))}
    numbers: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    outer = plan.x if plan.x not in (plan.series, "lr") else ""
    for lane in sorted(chosen.values(), key=lambda lane: order_of(lane.axes.get(outer))):
        facet = f"{outer} = {printable(lane.axes.get(outer))}" if outer else ""
        numbers[(plan.panel_of(lane), facet, plan.series_of(lane))] = {}
    for row in rows:
        run = chosen.get((row.get("cell", ""), row.get("lane", -1)))
        number = finite(row.get(value)) if row.get("split") == "valid" else None
        if run is None or number is None:
            continue
        facet = f"{outer} = {printable(run.axes.get(outer))}" if outer else ""
        steps = numbers[(plan.panel_of(run), facet, plan.series_of(run))]
        steps.setdefault(int(row["step"]), []).append(number)
    keep = max(20, min(100, CURVE_POINTS // max(len(numbers), 1)))
    data = []
    for (panel, facet, series), steps in numbers.items():
        order = sorted(steps)
        for index in thin(len(order), keep):
            seeds = steps[order[index]]
            point = {"panel": panel, "facet": facet, "series": series, "step": order[index]}
            point |= {"mean": significant(math.fsum(seeds) / len(seeds))}
            point |= {"low": significant(min(seeds)), "high": significant(max(seeds))}
            data.append(point)
    if not data:
        return None
    return finish(facets(_curve(data, plan, value, len(numbers)), data, 2 if outer else 3, True), lanes)


def order_of(value: Any) -> tuple[bool, Any]:
    """A key to sort values of an axis by: numbers by size, then anything else."""
    return (False, value) if is_number(value) else (True, str(value))


def _curve(data: Sequence[dict[str, Any]], plan: Layout, value: str, count: int) -> alt.LayerChart:
    remark, scale, ticks = "", alt.Scale(zero=False), 5
    smallest, largest = min(point["low"] for point in data), max(point["high"] for point in data)
    if value == "loss" and largest > 20 * max(smallest, FLOOR):
        # A log scale has no place for 0: what lies below the floor is drawn on it.
        for point in data:
            point |= {field: max(point[field], FLOOR) for field in ("mean", "low", "high")}
        remark = "log scale" + (f", below {FLOOR:g} drawn there" if smallest < FLOOR else "")
        scale, ticks = alt.Scale(type="log", nice=False), 4
    elif bounds(value) == SHARE:
        scale = alt.Scale(domain=list(SHARE))
    width = 620 if count == 1 or len({(point["panel"], point["facet"]) for point in data}) == 1 else 400
    height = 230 if width < 620 else 300
    y = {
        "title": title_lines(title_of(value, "valid", remark), height),
        "scale": scale,
        "axis": alt.Axis(tickCount=ticks, labelOverlap=True),
    }
    series = series_encodings(plan, "stroke")
    base = alt.Chart().encode(x=alt.X("step:Q", title="step (updates)", axis=alt.Axis(tickCount=5, grid=False)))
    band = base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", **y), y2="high:Q", color=series["color"])
    line = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("mean:Q", **y), color=series["color"], strokeDash=series["strokeDash"]
    )
    return alt.layer(band, line).properties(width=width, height=height)
