"""What scores and weights are like before training, as one HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from train.log import Row
from train.report.charts import dress, legend_columns, looks
from train.report.markup import Figures, document, escape, grid

# Of unit-normal rows, what is drawn against d_k: quantity, title, whether the axis is of powers of ten.
DRAWN = (
    ("variance", "variance of scores", True),
    ("entropy", "entropy / log(keys)", False),
    ("share_saturated", "share of rows with a weight above 0.99", False),
    ("jacobian_q50", "median norm of d weights / d query", True),
    ("jacobian_q10", "10 % quantile of that norm", True),
    ("jacobian_mean", "mean of that norm", True),
)
BINS = 60
NOTE = (
    "Independent entries of mean 0 and variance 1 for queries and keys; parameters of a score as a model starts with, "
    "drawn anew. All scores get the same queries and keys; queries of dot_t5_init are sqrt(d_k) shorter, as its "
    "projection starts, so that its weights move sqrt(d_k) more with them than those of scaled_dot."
)
LEFT_OUT = (
    "Left out where it is 0: weights of additive_linear do not depend on the query. Lines may hide each other: "
    "scaled_dot, learned_temperature and scaled_dot_log_n start alike."
)


def against_width(rows: Sequence[Row]) -> alt.TopLevelMixin:
    """A panel a quantity of DRAWN, a line a score."""
    names = list(dict.fromkeys(row["score"] for row in rows))
    widths = sorted({row["d_k"] for row in rows})
    scales = looks(names)
    legend = alt.Legend(columns=legend_columns(names), symbolStrokeWidth=0, symbolSize=80)
    panels = []
    for quantity, title, powers in DRAWN:
        data = [
            {"score": row["score"], "d_k": row["d_k"], "value": row[quantity]}
            for row in rows
            if row[quantity] > 0 or not powers  # a logarithm has no place for 0
        ]
        base = alt.Chart(alt.Data(values=data), title=title).encode(
            x=alt.X(
                "d_k:Q",
                scale=alt.Scale(type="log", base=2),
                title="d_k (log scale)",
                axis=alt.Axis(values=widths, format="d"),
            ),
            y=alt.Y(
                "value:Q",
                title=None,
                scale=alt.Scale(type="log") if powers else alt.Scale(domain=[0, 1]),
                axis=alt.Axis(format="~e" if powers else "~g", tickCount=5),
            ),
            color=alt.Color("score:N", scale=scales["color"], legend=legend),
            tooltip=["score:N", "d_k:Q", alt.Tooltip("value:Q", format=".4g")],
        )
        lines = base.mark_line().encode(strokeDash=alt.StrokeDash("score:N", scale=scales["strokeDash"], legend=legend))
        points = base.mark_point(size=45, filled=True, opacity=1)
        points = points.encode(shape=alt.Shape("score:N", scale=scales["shape"], legend=legend))
        panels.append((lines + points).properties(width=270, height=200))
    return dress(alt.concat(*panels, columns=3))


def _densities(values: np.ndarray, ends: tuple[float, float]) -> list[tuple[float, float]]:
    """Middles of bins and the share of the values in each; what lies beyond the ends is counted in the last bins."""
    counts, edges = np.histogram(np.clip(values, *ends), bins=BINS, range=ends)
    return list(zip(((edges[1:] + edges[:-1]) / 2).tolist(), (counts / counts.sum()).tolist(), strict=True))


def distributions(samples: Mapping[tuple[str, int], tuple[np.ndarray, np.ndarray]]) -> alt.TopLevelMixin:
    """Scores and weights of the unscaled and the scaled product for some d_k: the figure of what the root mends.

    samples: by score and d_k, its effective scores and its weights.
    """
    widths = sorted({d_k for _, d_k in samples})
    panels = []
    for place, title, ends in (
        (0, "scores (ends: all beyond)", (-24.0, 24.0)),
        (1, "log10 of weights (left end: all below)", (-12.0, 0.0)),
    ):
        for name in ("dot", "scaled_dot"):
            data = []
            for d_k in widths:
                values = samples[(name, d_k)][place]
                if place:
                    values = np.log10(np.maximum(values, 10.0 ** ends[0]))
                data += [{"d_k": f"{d_k}", "at": at, "share": share} for at, share in _densities(values, ends)]
            lines = alt.Chart(alt.Data(values=data), title=name).mark_line(interpolate="step", strokeWidth=1.6)
            panels.append(
                lines.encode(
                    x=alt.X("at:Q", title=title, scale=alt.Scale(domain=list(ends), nice=False)),
                    y=alt.Y("share:Q", title="share of all"),
                    color=alt.Color("d_k:N", sort=[str(d_k) for d_k in widths], scale=alt.Scale(scheme="viridis")),
                ).properties(width=380, height=210)
            )
    return dress(alt.concat(*panels, columns=2))


def _number(value: Any) -> str:
    return "" if value is None or value != value else f"{value:.3g}"


def table(rows: Sequence[Row], names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of some fields of rows, numbers with three digits."""
    lines = [
        [_number(row[name]) if isinstance(row[name], float | None) else str(row[name]) for name in names]
        for row in rows
    ]
    return list(names), lines


def page(
    unit: Sequence[Row],
    drawn: Mapping[tuple[str, int], tuple[np.ndarray, np.ndarray]],
    initial: Sequence[Row],
    unit_fields: Sequence[str],
    initial_fields: Sequence[str],
) -> str:
    """The page as text. unit: rows of unit normals. drawn: see `distributions`. initial: of models, or none."""
    figures = Figures()
    parts = ["<h2>Unit-normal queries and keys</h2>", f'<p class="note">{escape(NOTE)}</p>']
    parts.append(figures.add(against_width(unit), escape(LEFT_OUT)))
    if drawn:
        caption = "What dividing by the root of d_k does: scores and softmax outputs, unscaled and scaled."
        parts.append(figures.add(distributions(drawn), escape(caption)))
    of_models = "Models before their first update"
    for heading, rows, fields in (("", unit, unit_fields), (of_models, initial, initial_fields)):
        if rows:
            head, lines = table(rows, fields)
            escaped = [[escape(cell) for cell in line] for line in lines]
            parts.append(f"<h2>{heading}</h2>" if heading else "")
            parts.append(f'<div class="scroll">{grid([*map(escape, head)], escaped)}</div>')
    return document("d_k lab probe", "<h1>Before training</h1>", "\n".join(parts), figures)
