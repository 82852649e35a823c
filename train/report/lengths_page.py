"""Metrics by length of the source, as a chart and as a table. Lanes are those of each cell's best rate."""

from collections.abc import Sequence

import altair as alt

from train.log import Row
from train.report.charts import dress, legend_columns, looks
from train.report.statistics import group_by
from train.report.tables import pad, width_of
from train.report.words import bounds, title_of


def _lines(rows: Sequence[Row], value: str) -> dict[tuple[str, int, int], list[float]]:
    """Values of the seeds by cell and bin, those that exist."""
    groups = group_by(rows, lambda row: (row["cell"], row["shortest"], row["longest"]))
    return {place: [row[value] for row in group if row[value] is not None] for place, group in groups.items()}


def chart(rows: Sequence[Row], value: str, split: str) -> alt.TopLevelMixin:
    """A metric against the length: a line a cell, means of seeds, bars from the smallest to the largest seed."""
    data = [
        {
            "cell": cell,
            "length": (shortest + longest) / 2,
            "mean": sum(values) / len(values),
            "low": min(values),
            "high": max(values),
        }
        for (cell, shortest, longest), values in _lines(rows, value).items()
        if values
    ]
    names = list(dict.fromkeys(row["cell"] for row in rows))
    scales = looks(names)
    legend = alt.Legend(title=None, columns=min(2, legend_columns(names)), symbolSize=110, symbolStrokeWidth=0)
    base = alt.Chart(alt.Data(values=data)).encode(
        x=alt.X("length:Q", title="tokens of the source, middle of a bin", axis=alt.Axis(tickMinStep=1)),
        color=alt.Color("cell:N", scale=scales["color"], legend=legend),
        tooltip=["cell:N", "length:Q", *(alt.Tooltip(f"{name}:Q", format=".4g") for name in ("mean", "low", "high"))],
    )
    ends = alt.Scale(domain=list(bounds(value))) if value != "loss" else alt.Scale()
    y = alt.Y("mean:Q", title=title_of(value, split), scale=ends)
    lines = base.mark_line().encode(y=y, strokeDash=alt.StrokeDash("cell:N", scale=scales["strokeDash"], legend=None))
    points = base.mark_point(size=50, filled=True, opacity=1).encode(
        y=y, shape=alt.Shape("cell:N", scale=scales["shape"], legend=legend)
    )
    bars = base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q"), y2="high:Q")
    return dress((bars + lines + points).properties(width=640, height=320))


def text(rows: Sequence[Row], value: str, split: str) -> str:
    """A line a cell, a column a bin: means over seeds."""
    found = _lines(rows, value)
    bins = list(dict.fromkeys(place[1:] for place in sorted(found, key=lambda place: place[1])))
    columns = [["cell", *dict.fromkeys(cell for cell, _, _ in found)]]
    for shortest, longest in bins:
        values = [found.get((cell, shortest, longest)) for cell in columns[0][1:]]
        means = [f"{sum(each) / len(each):.3f}" if each else "-" for each in values]
        columns.append([f"{shortest}-{longest}" if longest > shortest else f"{shortest}", *means])
    widths = [max(map(width_of, column)) for column in columns]
    body = [
        "  ".join(pad(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]
    title = f"{title_of(value, split)} by tokens of the source, EOS not counted; mean over seeds at each best rate"
    return "\n".join([title, *body]) + "\n"
