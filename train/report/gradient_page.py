"""Gradients through time, as a table and as an HTML page."""

import math
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np

from train.log import Row
from train.report.axes import thin
from train.report.charts import dress, looks
from train.report.markup import Figures, document, escape, grid
from train.report.statistics import group_by

# By label and group: rows in the order of their distance; values of gates by name, NaN where there is no token.
Series = Mapping[tuple[str, str], Sequence[Row]]
Gates = Mapping[tuple[str, str], Mapping[str, np.ndarray]]

QUANTITIES = {
    "sentences": "sentences so long",
    "norm_q50": "norm, median over sentences",
    "norm_q10": "norm, 10 % quantile",
    "norm_q90": "norm, 90 % quantile",
    "bound": "bound sigma_max^distance",
    "forget_q50": "product of forget gates, median",
    "forget_q10": "same, 10 % quantile over units and sentences",
    "forget_q90": "same, 90 % quantile",
    "forget_max": "same, largest",
}
# Of the main chart: name and dash.
LINES = {"norm_q50": ("norm", [1, 0]), "bound": ("bound", [6, 4]), "forget_q50": ("forget gates", [2, 2])}
POINTS = 200  # of a line
BINS = 40
LEAST, MOST = 1e-30, 1e30  # of what is drawn
NOTE = (
    "Spectral norm of d state(T) / d state(T - distance), T being the last token of a sentence: the most that a "
    "gradient at the end can grow on its way back. Lines are medians over sentences, bands reach from the 10 % to the "
    "90 % quantile. Dashed: sigma_max(W)^distance of the recurrent matrix W of a tanh cell. The norm cannot lie above "
    "it: below 1 it makes gradients vanish; above 1 they may grow, and need not, since tanh' < 1 works against it. "
    "Dotted: the product of the forget gates of an LSTM, the factor on the direct path from c to c, median over units "
    "and sentences; the whole gradient may lie above it, by way of h. The longer the distance, the fewer sentences "
    "are so long: the table counts them."
)
GATES_NOTE = "Values of gates over units, tokens and sentences: the share of all in each of the bins."
FORGET_NOTE = (
    "Product of the last forget gates of an LSTM: median and largest, and a band from the 10 % to the 90 % quantile "
    "over units and sentences. A unit keeps what it holds for as long as its line stays near 1."
)


def _named(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _number(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def _shown(distances: int) -> list[int]:
    """Distances of a table: 1, 2, 5, 10, 20, 50 ... and the last."""
    marks = [step * 10**power for power in range(6) for step in (1, 2, 5)]
    return [*(mark for mark in marks if mark < distances), distances]


def table(series: Series) -> tuple[list[str], list[list[str]]]:
    """Head and lines: a line a quantity that there is of a series, a column a distance."""
    shown = _shown(max(len(rows) for rows in series.values()))
    lines = []
    for (label, group), rows in series.items():
        for quantity, title in QUANTITIES.items():
            if rows[0][quantity] is not None:
                values = [rows[distance - 1][quantity] if distance <= len(rows) else None for distance in shown]
                lines.append([_named(label, group), title, *map(_number, values)])
    return ["", "distance", *map(str, shown)], lines


def _powers(ends: Sequence[float]) -> tuple[int, int, int]:
    """Start, end and step of the powers of ten that an axis names: 9 at most."""
    least, most = (math.floor(math.log10(end)) for end in ends)
    step = (most - least) // 8 + 1
    return -(-least // step) * step, most + 2, step


def _log_axis(title: str, numbers: Sequence[float]) -> alt.Y:
    ends = [max(min(numbers), LEAST), min(max(numbers), MOST)]
    scale = alt.Scale(type="log", domain=ends, clamp=True, nice=True)
    ticks = [10.0**power for power in range(*_powers(ends))]
    return alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(format="~e", values=ticks))


def _points(rows: Sequence[Row], **fields: str) -> list[Row]:
    """Of some quantities, what a logarithm has a place for. fields: names of the quantities in the data."""
    kept = [rows[index] for index in thin(len(rows), POINTS)]
    return [
        {"distance": row["distance"], **{name: row[quantity] for name, quantity in fields.items()}}
        for row in kept
        if all(row[quantity] is not None and row[quantity] > 0 for quantity in fields.values())
    ]


def against_distance(series: Series) -> alt.TopLevelMixin:
    """The norm against the distance, a panel a kind of cell; beside it the bound and the forget gates."""
    labels = list(dict.fromkeys(label for label, _ in series))
    colour = alt.Color(
        "series:N",
        scale=looks(labels)["color"],
        legend=alt.Legend(
            title=None,
            columns=2 if max(map(len, labels)) > 24 else 4,
            labelLimit=420,
            symbolType="stroke",
            symbolOpacity=1,
            symbolStrokeWidth=3,
            symbolSize=260,
        ),
    )
    data, bands = [], []
    for (label, group), rows in series.items():
        names = {"panel": _named(rows[0]["cell_type"], group), "series": label}
        for quantity, (line, _) in LINES.items():
            data += [{**names, "line": line, **point} for point in _points(rows, value=quantity)]
        bands += [{**names, **point} for point in _points(rows, low="norm_q10", high="norm_q90")]
    numbers = [point["value"] for point in data]
    panels = []
    x = alt.X(
        "distance:Q", title="distance in tokens", axis=alt.Axis(tickMinStep=1, grid=False), scale=alt.Scale(nice=False)
    )
    dashes = {line: dash for line, dash in LINES.values() if any(point["line"] == line for point in data)}
    dash = alt.StrokeDash(
        "line:N",
        scale=alt.Scale(domain=list(dashes), range=list(dashes.values())),
        legend=alt.Legend(title=None, columns=1, symbolType="stroke", symbolSize=500, symbolStrokeWidth=2),
    )
    for panel, points in group_by(data, lambda point: point["panel"]).items():
        inside = alt.Data(values=[band for band in bands if band["panel"] == panel])
        y = _log_axis("norm (log scale)", numbers)
        band = (
            alt.Chart(inside)
            .mark_area(opacity=0.15)
            .encode(x=x, y=alt.Y("low:Q", scale=y["scale"]), y2="high:Q", color=colour)
        )
        lines = alt.Chart(alt.Data(values=points), title=panel).mark_line(strokeWidth=1.8)
        tooltip = ["series:N", "line:N", "distance:Q", alt.Tooltip("value:Q", format=".4g")]
        panels.append(
            (lines.encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tooltip) + band).properties(
                width=300, height=300
            )
        )
    return dress(alt.concat(*panels, columns=3))


def forget_paths(series: Series) -> alt.TopLevelMixin | None:
    """The products of forget gates against the distance, a panel a series; None where no cell has such gates."""
    panels = []
    for (label, group), rows in series.items():
        if rows[0]["forget_q50"] is None:
            continue
        data = [
            {"line": name, **point}
            for name, line in (("median", "forget_q50"), ("largest", "forget_max"))
            for point in _points(rows, value=line)
        ]
        band = _points(rows, low="forget_q10", high="forget_q90")
        y = _log_axis("product (log scale)", [*(p["value"] for p in data), *(p["low"] for p in band)])
        x = alt.X("distance:Q", title="distance in tokens", axis=alt.Axis(tickMinStep=1, grid=False))
        colour = alt.Color(
            "line:N",
            sort=["median", "largest"],
            legend=alt.Legend(title=None),
            scale=alt.Scale(range=["#0072B2", "#D55E00"]),
        )
        lines = alt.Chart(alt.Data(values=data), title=_named(label, group)).mark_line()
        area = alt.Chart(alt.Data(values=band)).mark_area(opacity=0.15, color="#0072B2")
        panels.append(
            (
                lines.encode(x=x, y=y, color=colour) + area.encode(x=x, y=alt.Y("low:Q", scale=y["scale"]), y2="high:Q")
            ).properties(width=300, height=230)
        )
    return dress(alt.concat(*panels, columns=3)) if panels else None


def histograms(gates: Gates) -> alt.TopLevelMixin | None:
    """Shares of gate values, a panel a series, a line a gate; None where no cell has gates."""
    panels = []
    scales = looks(list(dict.fromkeys(name for by_name in gates.values() for name in by_name)))
    for (label, group), by_name in gates.items():
        data = []
        for name, values in by_name.items():
            counts, edges = np.histogram(values[~np.isnan(values)], bins=BINS, range=(0.0, 1.0))
            shares = (counts / max(int(counts.sum()), 1)).tolist()
            data += [
                {"gate": name, "at": at, "share": share}
                for at, share in zip(((edges[1:] + edges[:-1]) / 2).tolist(), shares, strict=True)
            ]
        if not data:
            continue
        lines = alt.Chart(alt.Data(values=data), title=_named(label, group))
        panels.append(
            lines.mark_line(interpolate="step", strokeWidth=1.8)
            .encode(
                x=alt.X(
                    "at:Q",
                    title="value of the gate",
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1]),
                ),
                y=alt.Y("share:Q", title="share of all"),
                color=alt.Color("gate:N", scale=scales["color"], legend=alt.Legend(title="gate")),
                strokeDash=alt.StrokeDash("gate:N", scale=scales["strokeDash"]),
            )
            .properties(width=300, height=200)
        )
    return dress(alt.concat(*panels, columns=2 if len(panels) == 4 else 3)) if panels else None


def page(series: Series, gates: Gates, subject: str) -> str:
    """The page as text. subject: what it is of, one line."""
    figures = Figures()
    parts = [figures.add(against_distance(series), escape(NOTE))]
    paths, gate_chart = forget_paths(series), histograms(gates)
    if paths is not None:
        parts += ["<h2>The direct path of an LSTM</h2>", figures.add(paths, escape(FORGET_NOTE))]
    if gate_chart is not None:
        parts += ["<h2>Gates</h2>", figures.add(gate_chart, escape(GATES_NOTE))]
    head, lines = table(series)
    escaped = [[escape(cell) for cell in line] for line in lines]
    parts += ["<h2>Table</h2>", f'<div class="scroll">{grid([*map(escape, head)], escaped, text=2)}</div>']
    header = f'<h1>Gradients through time</h1><p class="lead">{escape(subject)}</p>'
    return document("d_k lab gradients through time", header, "\n".join(parts), figures)
