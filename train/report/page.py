"""The report of a study: one HTML file with charts and tables that opens offline and loads nothing."""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train.log import Row, metrics_path
from train.report.charts import fixed_rates, headline, layout
from train.report.curves import curves
from train.report.inside_section import inside_section
from train.report.intervals import Spread
from train.report.markup import Figures, document, escape, escape_block, grid, write_page
from train.report.pivot import BEST, Block, Table, default_layout, pivot
from train.report.selection import Part
from train.report.statistics import (
    LaneResult,
    Progress,
    best_rate,
    choosing_metric,
    group_by,
    lane_results,
    lanes_spread,
    ordered,
    progress,
)
from train.report.tables import headline_values, measured, number, parts
from train.report.verdicts_section import verdicts_section
from train.report.words import bounds, label, named, title_of
from train.words import counted

MARKS = (
    "Bars span the smallest to the largest seed; n/m beside a point: a mean over n of m lanes. × marks a cell whose "
    "lanes all diverged before an evaluation, – one that has no value for another reason."
)
CHOICE = (
    "The best rate of a cell is chosen on valid and reported on test. That removes the bias of choosing on the "
    "sentences that are reported, not the luck of the seeds: the lanes that won the choice are those that are tested."
)


def _entry(table: Table, block: Block, row: Any, column: Any) -> str:
    shown, half, rate, share = map(escape, parts(block.entries.get((row, column)), table, block))
    return shown + "".join(f" <small>{text}</small>" for text in (half, rate, share) if text)


def _table(table: Table) -> str:
    """The blocks of a table, beside each other where the window is wide enough."""
    head = [
        escape(table.rows),
        *(
            escape(named(table.columns, c)) if table.columns else escape(label(table.value))
            for c in table.column_values
        ),
    ]
    blocks = []
    for block in table.blocks:
        lines = [
            [escape(row), *(_entry(table, block, row, c) for c in table.column_values)] for row in table.row_values
        ]
        caption = (
            "best rate of each cell"
            if block.heading == BEST
            else f"learning rate {block.lr:g}"
            if block.lr
            else block.heading
        )
        blocks.append(grid(head, lines, escape(caption)))
    notes = f'<p class="note">{escape("; ".join(table.notes))}.</p>'
    gaps = f'<p class="note warning">{"<br>".join(map(escape, table.gaps))}</p>' if table.gaps else ""
    return f'<h3>{escape(table.title)}</h3><div class="tables">{"".join(blocks)}</div>{notes}{gaps}'


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_fact(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        return ("; " if any(isinstance(entry, Mapping) for entry in value) else " ").join(map(_fact, value))
    return "unknown" if value is None else str(value)


def _header(workdir: Path, record: Mapping[str, Any], states: Sequence[Progress]) -> str:
    facts = {"workdir": str(workdir)}
    facts |= {
        key.replace("_", " "): _fact(value)
        for key, value in record.items()
        if key not in ("config", "axes", "cells", "lanes")
    }
    path = metrics_path(workdir)
    if path.exists():
        written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        facts["last row written"] = written.strftime("%Y-%m-%d %H:%M UTC")
    lanes, finished, diverged = (
        sum(getattr(state, name) for state in states) for name in ("lanes", "finished", "diverged")
    )
    runs = f"{counted(len(states), 'cell')}, {counted(lanes, 'training run')} (lanes)"
    lead = f"{runs}: {finished} finished, {diverged} diverged."
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in facts.items())
    return f'<h1>{escape(workdir.resolve().name)}</h1><p class="lead">{lead}</p><dl>{rows}</dl>'


def _incomplete(states: Sequence[Progress]) -> str:
    waiting = [state for state in states if state.finished < state.lanes]
    if not waiting:
        return ""
    lines = [
        [
            escape(state.cell),
            f"{state.finished} of {state.lanes}",
            str(state.diverged),
            str(state.last_step) if state.last_step else "not started",
        ]
        for state in waiting
    ]
    table = grid(["cell", "lanes finished", "diverged", "last step logged"], lines)
    why = (
        "These cells lack some of the study's lanes, or have lanes without a test row. Lanes that were asked for in a "
        "cell and are not finished are still training, stopped, or failed: the command that asked for them goes on."
    )
    return f'<h2>Incomplete cells</h2><p class="warning">{why}</p><div class="scroll">{table}</div>'


def _diverged(lanes: Sequence[LaneResult], value: str, split: str) -> str:
    gone = [lane for lane in lanes if lane.diverged_at is not None]
    if not gone:
        return "<h2>Diverged lanes</h2><p>None: every loss and gradient of every lane was finite.</p>"
    lines = [
        [
            escape(lane.cell),
            f"{lane.lr:g}",
            str(lane.seed),
            str(lane.diverged_at),
            "-" if lane.best_step is None else str(lane.best_step),
            number(lane.value(split, value), value),
        ]
        for lane in gone
    ]
    head = [
        "cell",
        "learning rate",
        "seed",
        "diverged at step",
        "best step before",
        f"{escape(title_of(value, split))}",
    ]
    why = (
        "A lane freezes at its first loss or gradient that is not finite. Its best parameters from before count; where "
        "it had not been evaluated yet, it has no value and is left out of the means, which then say so."
    )
    return f'<h2>Diverged lanes</h2><p>{why}</p><div class="scroll">{grid(head, lines)}</div>'


def _interval(spread: Spread, value: str) -> tuple[str, str]:
    """The interval, as far as the metric can have such values, and a remark: that it was clipped, or is missing."""
    if spread.low is None or spread.high is None:
        return "-", spread.reason
    smallest, largest = bounds(value)
    low, high = max(spread.low, smallest), min(spread.high, largest)
    clipped = (low, high) != (spread.low, spread.high)
    remark = "interval clipped to the range of the metric" if clipped else ""
    return f"{number(low, value)} to {number(high, value)}", remark


def _every_cell(lanes: Sequence[LaneResult], value: str, split: str) -> str:
    lines = []
    for cell, group in group_by(lanes, lambda lane: lane.cell).items():
        best = best_rate(group, choosing_metric(lanes, value))
        for rate in ordered(lane.lr for lane in group):
            spread = lanes_spread([lane for lane in group if lane.lr == rate], split, value)
            interval, remark = _interval(spread, value)
            shown = [number(each, value) for each in (spread.mean, spread.sd)]
            ends = [number(each, value) for each in (spread.minimum, spread.maximum)]
            counts = [f"{spread.finite} of {spread.lanes}", str(spread.diverged), escape(remark)]
            lines.append([escape(cell), f"{rate:g}{' *' if rate == best else ''}", *shown, interval, *ends, *counts])
    head = [
        "cell",
        "learning rate",
        "mean",
        "sd",
        "95 % interval",
        "smallest",
        "largest",
        "finite lanes",
        "diverged",
        "remark",
    ]
    title = f"Every cell at every rate: {escape(title_of(value, split))} (* best rate on valid)"
    return f'<details><summary>{title}</summary><div class="scroll">{grid(head, lines)}</div></details>'


def _signatures(rows: Sequence[Row]) -> str:
    found = {field: value for row in rows for field, value in row.items() if field.endswith("_signature") and value}
    every = dict.fromkeys((field, str(row[field])) for row in rows for field in found if row.get(field))
    lines = "".join(
        f"<li>{escape(field.removesuffix('_signature'))}: <code>{escape(value)}</code></li>" for field, value in every
    )
    return (
        f"<p class=note>Signatures of the translation scores, to compare with other work:</p><ul>{lines}</ul>"
        if lines
        else ""
    )


def _body(rows: Sequence[Row], lanes: Sequence[LaneResult], figures: Figures) -> str:
    values = headline_values(rows)
    value = values[0]
    split = "test" if any(lane.finished for lane in lanes) else "valid"
    plan = layout(lanes)
    along, across = default_layout(lanes)
    sections = []
    if split == "valid":
        sections.append(
            '<p class="warning">No lane has reached its test yet: everything below is measured on valid. The best '
            "rates are chosen there too, so what is shown for them flatters.</p>"
        )
    elif len({lane.lr for lane in lanes}) > 1:
        sections.append(f'<p class="note">{CHOICE}</p>')
    if not measured(rows):
        sections.append('<p class="warning">The log holds no finite number, so there is nothing to draw.</p>')
    drawn = []
    for shown in values:
        place = "at each learning rate"
        if plan.x != "lr":
            chosen_by = choosing_metric(lanes, shown)
            place = f"each cell at the learning rate with the best mean {label(chosen_by)} on valid"
        caption = f"Mean over seeds of {title_of(shown, split)}, {place}. {MARKS}"
        drawn.append(figures.add(headline(lanes, shown, split, beside=len(values)), escape(caption)))
    if any(drawn):
        heading = "At each learning rate" if plan.x == "lr" else "At the best learning rate of each cell"
        sections += [f"<h2>{heading}</h2>", '<div class="tables">', *drawn, "</div>"]
    sections.append(_signatures(rows))
    extra = [name for name in ("sequence_accuracy", "loss") if name in measured(rows) and name not in values]
    tables = [
        t for name in [*values, *extra] for t in pivot(lanes, rows=along, columns=across, value=name, split=split)
    ]
    main = [table for table in tables if table.value in values]
    others = [table for table in tables if table.value not in values]
    sections += ["<h2>Tables</h2>", *map(_table, main)]
    if others:
        inner = "".join(map(_table, others))
        sections.append(
            f"<details><summary>Further tables: {escape(', '.join(map(label, extra)))}</summary>{inner}</details>"
        )
    sections.append(_every_cell(lanes, value, split))
    sections.append(verdicts_section(rows, lanes, value, split))
    caption = f"One learning rate held for every cell: what a study sees that does not tune each cell. {MARKS}"
    fixed = figures.add(fixed_rates(lanes, value, split), caption)
    if fixed:
        sections.append(f"<h2>At fixed learning rates</h2>{fixed}")
    drawn = []
    for name in dict.fromkeys([choosing_metric(lanes, value), "token_accuracy", "loss"]):
        caption = (
            f"{title_of(name, 'valid')} against the step, each cell at its best rate: mean of the lanes finite "
            "at that step; the band spans them. A diverged lane goes on with the parameters it froze at. "
            "Long curves are thinned evenly."
        )
        drawn.append(figures.add(curves(rows, lanes, name, value), escape(caption)))
    if any(drawn):
        sections += ["<h2>Learning curves</h2>", *drawn]
    sections.append(_diverged(lanes, value, split))
    return "\n".join(sections)


def render(workdir: Path, record: Mapping[str, Any], rows: Sequence[Row], diagnostics: Sequence[Row] = ()) -> str:
    """The page as text. What a study can hold makes no page fail: no rows, one row, nothing finite, cells not run."""
    lanes = lane_results(rows)
    states = progress(record, lanes)
    figures = Figures()
    if lanes:
        body = _body(rows, lanes, figures) + inside_section(diagnostics, lanes, headline_values(rows)[0], figures)
    else:
        body = '<p class="warning">The log has no evaluations yet, so there is nothing to draw.</p>'
    config = escape_block(json.dumps(record.get("config"), indent=2, ensure_ascii=False))
    body += f"{_incomplete(states)}<h2>Configuration</h2>"
    body += f"<details><summary>The resolved config</summary><pre>{config}</pre></details>"
    return document(f"{workdir.resolve().name}: d_k lab report", _header(workdir, record, states), body, figures)


def write_report(part: Part, output: Path) -> Path:
    """Write the report of a study and return its path. Raises UserError where it cannot be read or written."""
    return write_page(render(part.workdir, part.record, part.rows, part.diagnostics), output)
