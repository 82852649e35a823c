"""Tables of a study as text for a terminal and as CSV, and the summary at the end of a study. Imports nothing heavy."""

import csv
import io
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from train.log import Row, metric_names
from train.report.intervals import finite
from train.report.pivot import (
    BEST,
    BLEU_NOTE,
    STATISTICS,
    Block,
    Entry,
    Table,
    default_layout,
    hidden_by_bleu,
    pivot,
)
from train.report.statistics import (
    LaneResult,
    best_rate,
    choosing_metric,
    lane_results,
    lanes_spread,
    ordered,
)
from train.report.verdicts import compare, sentences
from train.report.words import PERCENT_POINTS, bounds, label, named, printable
from train.words import counted


def number(value: float | int | None, metric: str) -> str:
    """A measurement with the digits its metric deserves; a dash where there is none."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if bounds(metric) == PERCENT_POINTS:
        return f"{value:.1f}"
    return f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e3 else f"{value:.1e}"


def parts(entry: Entry | None, table: Table, block: Block) -> tuple[str, str, str, str]:
    """An entry as (number, ± half spread, @ rate, finite lanes of all), each "" where it has nothing to say."""
    if entry is None:
        return ("", "", "", "")
    spread = entry.spread
    if table.statistic in STATISTICS:
        return (number(STATISTICS[table.statistic](spread), table.value), "", "", "")
    if not spread.finite:
        text = f"diverged {spread.diverged}/{spread.lanes}" if spread.lost else "-"
        return (text, "", "", "")
    half = "" if spread.half_spread is None else f"±{number(spread.half_spread, table.value)}"
    rate = f"@{entry.lr:g}" if block.heading == BEST and entry.lr is not None else ""
    share = f"({spread.finite}/{spread.lanes})" if spread.finite < spread.lanes else ""
    return (number(spread.mean, table.value), half, rate, share)


def width_of(text: str) -> int:
    """Places of a terminal that a text takes: letters of East Asian scripts take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def pad(text: str, width: int) -> str:
    """The text with blanks up to a width."""
    return text + " " * max(width - width_of(text), 0)


def _block_lines(table: Table, block: Block) -> list[str]:
    """Heading, names of the columns, and one line a row; every line equally wide."""
    columns = []
    for column in table.column_values:
        cells = [parts(block.entries.get((row, column)), table, block) for row in table.row_values]
        # Words ("diverged 3/3") may run over the places of the numbers beside them.
        widths = [max((width_of(cell[i]) for cell in cells if i or any(cell[1:])), default=0) for i in range(4)]
        lines = [
            " ".join(pad(text, width) for text, width in zip(cell, widths, strict=True) if width) for cell in cells
        ]
        name = named(table.columns, column) if table.columns else table.value
        lines = [name, *(line if any(cell[1:]) else cell[0] for line, cell in zip(lines, cells, strict=True))]
        columns.append([pad(line, max(map(width_of, lines))) for line in lines])
    body = ["  ".join(line) for line in zip(*columns, strict=True)]
    width = max([width_of(block.heading), *map(width_of, body)])
    return [pad(line, width) for line in [block.heading, *body]]


def to_text(tables: Sequence[Table], width: int = 120) -> str:
    """Tables for a terminal of this width: as many blocks side by side as fit, the others below."""
    paragraphs = []
    for table in tables:
        names = [printable(value) for value in table.row_values]
        left = max(map(width_of, [table.rows, *names]))
        margin = [pad(text, left) for text in ["", table.rows, *names]]
        bands: list[list[str]] = []
        for block in table.blocks:
            lines = _block_lines(table, block)
            if bands and width_of(bands[-1][0]) + 3 + width_of(lines[0]) <= width:
                bands[-1] = [f"{before} | {line}" for before, line in zip(bands[-1], lines, strict=True)]
            else:
                bands.append([f"{start} | {line}" for start, line in zip(margin, lines, strict=True)])
        texts = ["\n".join(line.rstrip() for line in band) for band in bands]
        paragraphs.append("\n".join([table.title, "\n\n".join(texts), *table.notes, *table.gaps]))
    return "\n\n".join(paragraphs) if paragraphs else "no evaluations yet"


def put(text: str, output: Path | None) -> None:
    """Print a table, or write it to a file and print the path."""
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")
        print(output)


def to_csv(tables: Sequence[Table]) -> str:
    """The same tables as CSV with full digits: one line for each table, rate and row; nothing where there is no number.

    A column of the table is one column of numbers for a plain statistic; else five: mean, half spread, rate, number of
    finite lanes, number of lanes.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header: list[str] | None = None
    for table in tables:
        plain = table.statistic in STATISTICS
        fields = ("",) if plain else (" mean", " half_spread", " lr", " finite", " lanes")
        columns = [printable(column) if table.columns else table.value for column in table.column_values]
        names = [*table.panel, "rate", table.rows, *(column + field for column in columns for field in fields)]
        if names != header:
            writer.writerow(header := names)
        for block in table.blocks:
            rate = "best" if block.heading == BEST else "" if block.lr is None else repr(block.lr)
            for row in table.row_values:
                line: list[Any] = [*map(printable, table.panel.values()), rate, printable(row)]
                for column in table.column_values:
                    entry = block.entries.get((row, column))
                    if entry is None:
                        line += [None] * len(fields)
                    elif plain:
                        line.append(STATISTICS[table.statistic](entry.spread))
                    else:
                        spread = entry.spread
                        line += [spread.mean, spread.half_spread, entry.lr, spread.finite, spread.lanes]
                writer.writerow(line)
    return file.getvalue()


def measured(rows: Sequence[Row]) -> tuple[str, ...]:
    """Metrics of which the log holds at least one finite number."""
    return tuple(name for name in metric_names(rows) if any(finite(row.get(name)) is not None for row in rows))


def headline_values(rows: Sequence[Row]) -> tuple[str, ...]:
    """What a study is summed up by: BLEU and chrF where measured, and token accuracy; else what there is."""
    names = measured(rows)
    values = tuple(name for name in ("bleu", "chrf", "token_accuracy") if name in names)
    return values or tuple(name for name in names if name != "loss")[:1] or names or ("token_accuracy",)


def _one_cell(lanes: Sequence[LaneResult], names: Sequence[str], value: str) -> str:
    """A short list for a study of one cell: a line a rate."""
    finished = any(lane.finished for lane in lanes)
    split = "test" if finished else "valid"
    best = best_rate(lanes, choosing_metric(lanes, value))
    rates = ordered(lane.lr for lane in lanes)
    lines = [f"{printable(lanes[0].cell)}: mean ± half spread on {split}{'' if finished else ' (no test row yet)'}"]
    for lr in rates:
        group = [lane for lane in lanes if lane.lr == lr]
        facts = []
        for name in names:
            spread = lanes_spread(group, split, name)
            if spread.mean is not None:
                half = "" if spread.half_spread is None else f" ±{number(spread.half_spread, name)}"
                facts.append(f"{name} {number(spread.mean, name)}{half}")
        facts = facts or ["no finite value"]
        steps = [lane.diverged_at for lane in group if lane.diverged_at is not None]
        if steps:
            facts.append(f"{len(steps)} diverged, the first at step {min(steps)}")
        mark = "  (best rate on valid)" if lr == best and len(rates) > 1 else ""
        lines.append(f"  lr {lr:g}, {counted(len(group), 'seed')}: {', '.join(facts)}{mark}")
    if any(hidden_by_bleu(lanes, name, split) for name in names):
        lines.append(BLEU_NOTE)
    return "\n".join(lines)


def summary(rows: Sequence[Row], width: int = 120) -> str:
    """What a study found, for the end of training: score x d_k for each task, best rate and fixed rates side by side,
    and what of the differences is shown, in a line a pair of scores.

    A study of one cell gives a line a rate; before the first test row, `valid` is shown. Never raises for what a study
    can hold: no rows, one, all diverged.
    """
    lanes = lane_results(rows)
    if not lanes:
        return "no evaluations yet"
    values = headline_values(rows)
    if len({lane.cell for lane in lanes}) == 1:
        return _one_cell(lanes, measured(rows), values[0])
    along, across = default_layout(lanes)
    split = "test" if any(lane.finished for lane in lanes) else "valid"
    tables = [table for value in values for table in pivot(lanes, rows=along, columns=across, value=value, split=split)]
    found = sentences(compare(lanes, values[0], split))
    if not found:
        return to_text(tables, width)
    lead = f"{label(values[0])} on {split}, paired over seeds, 5 % after Holm (scripts/table.py WORKDIR --verdicts):"
    return "\n".join([to_text(tables, width), "", *(part for line in [lead, *found] for part in wrap(line, width))])
