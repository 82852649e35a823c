"""Charts of a study (Altair). Each function gives a chart, or None where the study has nothing for it to show.

One colour, one dash and one shape per series (usually the score) in every chart. Colours are Okabe and Ito's, which
colour-blind readers tell apart, and where these do not suffice some of Tol's. Bars and bands span the smallest to the
largest seed. What a reader must know of a point stands beside it as text: an image has no tooltip.
"""

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt

from train.errors import UserError
from train.report.axes import apart, is_number, moved, scale_of, title_lines, value_ends
from train.report.gaps import gaps
from train.report.pivot import default_layout
from train.report.statistics import (
    LaneResult,
    best_lanes,
    choosing_metric,
    group_by,
    lanes_spread,
    ordered,
    varying,
)
from train.report.words import printable, title_of

FONT = (
    "Helvetica, Arial, 'Noto Sans', 'Noto Sans CJK JP', 'Noto Sans JP', 'Hiragino Sans', 'Yu Gothic', Meiryo, "
    "'Microsoft YaHei', 'Malgun Gothic', sans-serif"
)
# The three scores of the question keep their colours from study to study; others take what is left.
OWN_COLOUR = {"scaled_dot": "#0072B2", "dot": "#D55E00", "additive": "#009E73"}
COLOURS = (
    *("#CC79A7", "#E69F00", "#56B4E9", "#000000", "#0072B2", "#D55E00", "#009E73"),
    *("#332288", "#882255", "#999933", "#888888"),
)
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 1])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
IN_A_ROW = 6  # names of a legend
AXIS_TITLES = {"d_k": "d_k, width of query and key per head", "lr": "learning rate"}


@dataclass(frozen=True)
class Layout:
    """Which axes of a study become x, series and panels."""

    x: str
    series: str
    panels: tuple[str, ...]
    series_names: tuple[str, ...]

    def series_of(self, lane: LaneResult) -> str:
        """The name of the line a lane belongs to."""
        return printable(lane.axes.get(self.series)) if self.series else "all"

    def panel_of(self, lane: LaneResult) -> str:
        """The heading of the panel a lane belongs to; "" where there is one panel only."""
        return ", ".join(f"{axis}={printable(lane.axes.get(axis))}" for axis in self.panels)


def layout(lanes: Sequence[LaneResult]) -> Layout:
    """d_k along x and a series per score where the study has both; else the axes that vary; for one cell its rates."""
    changing = varying(lanes)
    x, series = default_layout(lanes)
    if x not in changing:
        x = series if series in changing else "lr"
    panels = tuple(axis for axis in changing if axis not in (x, series))
    names = ordered(printable(lane.axes.get(series)) if series else "all" for lane in lanes)
    return Layout(x, series, panels, tuple(names))


def looks(names: Sequence[str]) -> dict[str, alt.Scale]:
    """Colour, dash and shape of each of some series."""
    taken = {OWN_COLOUR[name] for name in names if name in OWN_COLOUR}
    spare = itertools.cycle(colour for colour in COLOURS if colour not in taken)
    choices: dict[str, Sequence[Any]] = {
        "color": [OWN_COLOUR.get(name) or next(spare) for name in names],
        "strokeDash": DASHES,
        "shape": SHAPES,
    }
    return {
        channel: alt.Scale(domain=list(names), range=[chosen[i % len(chosen)] for i in range(len(names))])
        for channel, chosen in choices.items()
    }


def series_encodings(plan: Layout, symbol: str | None = None) -> dict[str, Any]:
    """Colour, dash and shape of each series; the legend shows the shape, or the dash where ``symbol`` is `stroke`."""
    names = plan.series_names
    # A legend of shapes takes the dash of the lines along, and would draw it around the shapes.
    style = {"symbolType": symbol, "symbolOpacity": 1, "symbolStrokeWidth": 2.2} if symbol else {"symbolStrokeWidth": 0}
    legend = None
    if len(names) > 1 and (plan.series != plan.x or symbol):
        size = 260 if symbol else 110
        title, columns = plan.series or None, legend_columns(names)
        legend = alt.Legend(title=title, symbolSize=size, labelLimit=320, columns=columns, **style)
    channels = {"color": alt.Color, "strokeDash": alt.StrokeDash, "shape": alt.Shape}
    scales = looks(names)
    return {name: channel("series:N", legend=legend, scale=scales[name]) for name, channel in channels.items()}


def legend_columns(names: Sequence[str]) -> int:
    """So many names stand beside each other above a chart."""
    return len(names) if len(names) <= IN_A_ROW else 4


def _points(lanes: Sequence[LaneResult], plan: Layout, value: str, split: str, facet: str) -> list[dict[str, Any]]:
    points = []
    groups = group_by(
        lanes,
        lambda lane: (plan.panel_of(lane), plan.series_of(lane), lane.lr if plan.x == "lr" else lane.axes.get(plan.x)),
    )
    for (panel, series, x), group in groups.items():
        spread = lanes_spread(group, split, value)
        points.append(
            {
                "panel": panel,
                "facet": facet,
                "series": series,
                "at": x if is_number(x) else printable(x),
                "mean": spread.mean,
                "low": spread.minimum,
                "high": spread.maximum,
                "lr": ", ".join(f"{rate:g}" for rate in ordered(lane.lr for lane in group)),
                "lanes": f"{spread.finite} of {spread.lanes}",
                "share": f"{spread.finite}/{spread.lanes}" if 0 < spread.finite < spread.lanes else "",
                "missing": "" if spread.mean is not None else "×" if spread.lost else "–",
            }
        )
    return points


def _comparison(
    points: list[dict[str, Any]], plan: Layout, value: str, split: str, size: tuple[int, int]
) -> alt.LayerChart:
    """Mean and range of each series along x, for one panel or as the inside of a facet."""
    width, height = size
    values = ordered(point["at"] for point in points)
    scale = scale_of(values)
    step = apart(values, scale, len(plan.series_names), width) if scale != "point" else 0.0
    middle = (len(plan.series_names) - 1) / 2
    for point in points:
        shift = step * (plan.series_names.index(point["series"]) - middle)
        point["x"] = moved(point["at"], shift, values, scale) if shift else point["at"]
    title = AXIS_TITLES.get(plan.x, plan.x) if width > 500 else plan.x
    if scale == "point":
        x = alt.X(
            "x:N", title=title, sort=[str(v) for v in values], axis=alt.Axis(labelAngle=0 if len(values) < 7 else -40)
        )
    else:
        room = max(0.05, step * middle + 0.02)
        x = alt.X(
            "x:Q",
            title=f"{title} (log scale)" if scale == "log" else title,
            scale=alt.Scale(
                type=scale,
                nice=False,
                domain=[moved(values[0], -room, values, scale), moved(values[-1], room, values, scale)],
            ),
            axis=alt.Axis(
                values=values,
                format="~g" if plan.x == "lr" else "~r",
                grid=False,
                labelOverlap="greedy",
                labelSeparation=3,
                labelFontSize=13 if width > 300 else 11,
            ),
        )
    numbers = [point[field] for point in points for field in ("low", "high") if point[field] is not None]
    ends = alt.Scale(domain=list(value_ends(min(numbers), max(numbers), value)), nice=True)
    y = alt.Y("mean:Q", title=title_lines(title_of(value, split), height), scale=ends)
    side: dict[str, Any] = {}
    if scale == "point" and plan.series != plan.x and len(plan.series_names) > 1:
        side["xOffset"] = alt.XOffset("series:N", sort=list(plan.series_names))
    series = series_encodings(plan)
    tooltip = [
        alt.Tooltip("series:N", title=plan.series or "series"),
        alt.Tooltip("at:N", title=plan.x),
        alt.Tooltip("mean:Q", format=".4g"),
        alt.Tooltip("low:Q", title="smallest seed", format=".4g"),
        alt.Tooltip("high:Q", title="largest seed", format=".4g"),
        alt.Tooltip("lr:N", title="learning rate"),
        alt.Tooltip("lanes:N", title="finite lanes"),
    ]
    base = alt.Chart().encode(x=x, color=series["color"], **side)
    layers = []
    if scale != "point":
        layers.append(base.mark_line(strokeWidth=2.2).encode(y=y, strokeDash=series["strokeDash"]))
    layers += [
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q", scale=ends), y2="high:Q"),
        base.mark_point(size=70, filled=True, opacity=1).encode(y=y, shape=series["shape"], tooltip=tooltip),
    ]
    if any(point["share"] for point in points):
        beside = base.mark_text(fontSize=11, align="left", dx=8, dy=-8)
        layers.append(beside.encode(y=y, text="share:N", tooltip=tooltip))
    if any(point["missing"] for point in points):
        cross = base.mark_text(fontSize=17, fontWeight="bold")
        layers.append(cross.encode(y=alt.value(height - 9), text="missing:N", tooltip=tooltip))
    return alt.layer(*layers).properties(width=width, height=height)


def finish(chart: alt.TopLevelMixin, lanes: Sequence[LaneResult], width: int = 600) -> alt.TopLevelMixin:
    """Dressed, and below the chart the cells that lack seeds or rates.

    ``width``: pixels that a line below the chart may take.
    """
    lines = [part for line in gaps(lanes, lanes) for part in textwrap.wrap(line, width // 6)]
    if lines:
        below = alt.TitleParams(lines, orient="bottom", anchor="start", offset=12, fontSize=12, fontWeight="normal")
        chart = chart.properties(title=below)
    return dress(chart)


def dress(chart: alt.TopLevelMixin) -> alt.TopLevelMixin:
    """Sizes of text, fonts and quiet lines as in every chart."""
    return (
        chart.configure(font=FONT, background="white", padding=8)
        .configure_axis(
            labelFontSize=13,
            titleFontSize=14,
            titleFontWeight="normal",
            titlePadding=9,
            gridColor="#e8e8e8",
            domainColor="#666",
            tickColor="#666",
            labelColor="#222",
            titleColor="#222",
        )
        .configure_legend(labelFontSize=13, titleFontSize=13, titleFontWeight="normal", orient="top", padding=2)
        .configure_header(labelFontSize=14, labelFontWeight="bold", titleFontSize=14, labelColor="#222")
        .configure_view(stroke="#d9d9d9")
    )


def facets(inner: alt.LayerChart, data: list[dict[str, Any]], columns: int, per_row: bool) -> alt.TopLevelMixin:
    """Small multiples, at most ``columns`` side by side: by `facet`, a row for each panel where a row holds them."""
    panels, columns_shown = (list(dict.fromkeys(point[field] for point in data)) for field in ("panel", "facet"))
    if len(panels) == 1 and len(columns_shown) == 1:
        return inner.properties(data=alt.Data(values=data))
    if len(panels) == 1 or (len(columns_shown) == 1 and not per_row):
        field, names = ("facet", columns_shown) if len(panels) == 1 else ("panel", panels)
        by = alt.Facet(f"{field}:N", title=None, sort=names)
        return inner.facet(by, data=alt.Data(values=data), columns=min(columns, len(names)))
    if len(columns_shown) > columns:
        for point in data:
            point["panel and facet"] = f"{point['panel']}, {point['facet']}"
        found = {point["panel and facet"] for point in data}
        names = [name for panel in panels for facet in columns_shown if (name := f"{panel}, {facet}") in found]
        by = alt.Facet("panel and facet:N", title=None, sort=names)
        return inner.facet(by, data=alt.Data(values=data), columns=columns)
    return inner.facet(
        data=alt.Data(values=data),
        row=alt.Row("panel:N", title=None, sort=panels),
        column=alt.Column("facet:N", title=None, sort=columns_shown),
    )


def headline(lanes: Sequence[LaneResult], value: str, split: str, beside: int = 1) -> alt.TopLevelMixin | None:
    """The value of each series along x, each cell at its best rate; a panel for each task and other varying axis.

    ``beside``: how many such charts share the width of the page.
    """
    plan = layout(lanes)
    chosen = lanes if plan.x == "lr" else best_lanes(lanes, choosing_metric(lanes, value))
    points = _points(chosen, plan, value, split, facet="")
    if not any(point["mean"] is not None for point in points):
        return None
    panels = len({point["panel"] for point in points})
    size = (
        (760 if beside == 1 else 380, 390 if beside == 1 else 300)
        if panels == 1
        else (390, 280)
        if panels == 2
        else (285, 220)
    )
    chart = facets(_comparison(points, plan, value, split, size), points, 2 if panels == 2 else 3, False)
    return finish(chart, lanes, size[0] if panels == 1 else 2 * size[0])


def fixed_rates(lanes: Sequence[LaneResult], value: str, split: str) -> alt.TopLevelMixin | None:
    """The same with one learning rate held for all cells, a panel a rate. None for one rate or one cell."""
    plan = layout(lanes)
    rates = ordered(lane.lr for lane in lanes)
    if plan.x == "lr" or len(rates) < 2:
        return None
    points = []
    for rate in rates:
        points += _points([lane for lane in lanes if lane.lr == rate], plan, value, split, f"learning rate {rate:g}")
    if not any(point["mean"] is not None for point in points):
        return None
    return finish(facets(_comparison(points, plan, value, split, (285, 230)), points, 3, True), lanes)


def check_image(path: Path) -> None:
    """Raises UserError for another ending than .svg or .png, which `save` cannot write."""
    if path.suffix not in (".svg", ".png"):
        raise UserError(f"--image={path}: the name must end in .svg or .png")


def save(chart: alt.TopLevelMixin, path: Path) -> None:
    """Write a chart as .svg or .png. Raises UserError where `check_image` or the disk refuses."""
    check_image(path)
    try:
        chart.save(str(path), scale_factor=2 if path.suffix == ".png" else 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
