"""Charts and a table of what attention does inside, from diagnostics.jsonl: why a score learns or fails."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from train.log import Row
from train.report.axes import title_lines
from train.report.charts import facets, finish, layout, series_encodings
from train.report.curves import order_of, significant, thin
from train.report.intervals import finite
from train.report.statistics import LaneResult, best_lanes, choosing_metric, ordered
from train.report.words import printable

POINTS = 4000
FLOOR = 1e-8  # what is smaller is drawn there where an axis is of powers of ten


class Quantity(NamedTuple):
    """A field of diagnostics.jsonl in words, and whether its axis is of powers of ten or of shares."""

    words: str
    powers: bool


QUANTITIES = {
    "raw_variance": Quantity("variance of raw scores", True),
    "effective_variance": Quantity("variance of effective scores", True),
    "variance_within": Quantity("variance of effective scores within a row", True),
    "entropy": Quantity("entropy of weights / log of visible keys", False),
    "max_weight": Quantity("largest weight of a row", False),
    "one_minus_sum_p2": Quantity("1 - sum of the squares of a row's weights", False),
    "share_saturated": Quantity("share of rows with a weight above 0.99", False),
    "jacobian_mean": Quantity("mean norm of d weights / d query", True),
    "jacobian_q10": Quantity("10 % quantile of the norm of d weights / d query", True),
    "jacobian_q50": Quantity("median norm of d weights / d query", True),
    "jacobian_q90": Quantity("90 % quantile of the norm of d weights / d query", True),
    "query_norm": Quantity("length of queries", True),
    "key_norm": Quantity("length of keys", True),
    "alignment": Quantity("root mean square cosine of query and key", False),
    "effective_rank": Quantity("effective rank of the weights", True),
}
# In every report. The variance is that within rows: what the scores of a row have in common the softmax takes away.
DRAWN = ("variance_within", "entropy", "jacobian_q50")


def of_chosen(rows: Sequence[Row], lanes: Sequence[LaneResult], choose: str) -> list[tuple[LaneResult, Row]]:
    """Rows of attentions of the lanes at the best rate of each cell."""
    chosen = {(lane.cell, lane.lane): lane for lane in best_lanes(lanes, choosing_metric(lanes, choose))}
    pairs = ((chosen.get((row["cell"], row["lane"])), row) for row in rows if row.get("attention") is not None)
    return [(lane, row) for lane, row in pairs if lane is not None]


def development(
    found: Sequence[tuple[LaneResult, Row]], lanes: Sequence[LaneResult], name: str
) -> alt.TopLevelMixin | None:
    """A quantity of QUANTITIES against the step: a row of panels an attention, a panel a value of d_k, a line a score.

    Lines are medians over seeds, layers and heads; bands span them.
    """
    words, powers = QUANTITIES[name]
    plan = layout(lanes)
    outer = plan.x if plan.x not in (plan.series, "lr") else ""
    numbers: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for lane, row in sorted(found, key=lambda pair: order_of(pair[0].axes.get(outer))):
        number = finite(row.get(name))
        if number is None:
            continue
        facet = f"{outer} = {printable(lane.axes.get(outer))}" if outer else ""
        panel = ", ".join(part for part in (row["attention"], plan.panel_of(lane)) if part)
        steps = numbers.setdefault((panel, facet, plan.series_of(lane)), {})
        steps.setdefault(int(row["step"]), []).append(max(number, FLOOR) if powers else number)
    keep = max(10, POINTS // max(len(numbers), 1))
    data: list[dict[str, Any]] = []
    for (panel, facet, series), steps in numbers.items():
        order = sorted(steps)
        for index in thin(len(order), keep):
            values = steps[order[index]]
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


def at_the_end(found: Sequence[tuple[LaneResult, Row]]) -> list[tuple[str, str, Mapping[str, float | None]]]:
    """(cell, attention, medians over seeds, layers and heads of QUANTITIES) at the last step of each cell."""
    last: dict[str, int] = {}
    for _, row in found:
        last[row["cell"]] = max(last.get(row["cell"], 0), int(row["step"]))
    groups: dict[tuple[str, str], list[Row]] = {}
    for _, row in found:
        if row["step"] == last[row["cell"]]:
            groups.setdefault((row["cell"], row["attention"]), []).append(row)

    def median(rows: Sequence[Row], name: str) -> float | None:
        values = [value for row in rows if (value := finite(row.get(name))) is not None]
        return statistics.median(values) if values else None

    cells = ordered(cell for cell, _ in groups)
    return [
        (cell, attention, {name: median(rows, name) for name in QUANTITIES})
        for cell in cells
        for (owner, attention), rows in groups.items()
        if owner == cell
    ]
