"""What a report is of: a study, or the part of it that is looked at."""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.errors import UserError
from train.log import Row, read_config, read_diagnostics, read_rows


@dataclass(frozen=True)
class Part:
    """Some cells of the study in a workdir: config.json with these cells, and their rows of metrics.jsonl."""

    workdir: Path
    record: Mapping[str, Any]
    rows: Sequence[Row]

    @property
    def unevaluated(self) -> list[str]:
        """Names of the cells without rows: training has not come to their first evaluation."""
        cells = {row["cell"] for row in self.rows}
        return [str(entry["cell"]) for entry in self.record.get("cells") or [] if entry["cell"] not in cells]

    @property
    def untested(self) -> list[str]:
        """Names of the cells with rows and lanes whose training has not ended."""
        lanes = {(row["cell"], row["lane"]) for row in self.rows}
        ended = {(row["cell"], row["lane"]) for row in self.rows if row["split"] == "test"}
        return list(dict.fromkeys(cell for cell, _ in sorted(lanes - ended)))

    def unfinished(self) -> str:
        """A line for each of the two, empty where there are none."""
        told = (("left out, not evaluated yet: ", self.unevaluated), ("not trained to the end yet: ", self.untested))
        return "".join(f"{what}{', '.join(cells)}\n" for what, cells in told if cells)

    @functools.cached_property
    def diagnostics(self) -> list[Row]:
        """Rows of diagnostics.jsonl of the cells that have rows."""
        cells = {row["cell"] for row in self.rows}
        return [row for row in read_diagnostics(self.workdir) if row["cell"] in cells]


def read_part(workdir: Path, only: Sequence[str] = ()) -> Part:
    """The cells that have all values of an element of `only`, written as in training; all cells where it is empty.

    Raises UserError where the workdir cannot be read, and where an element fits no cell.
    """
    record, rows = read_config(workdir), read_rows(workdir)
    if not only:
        return Part(workdir, record, rows)
    entries = record.get("cells") or []
    kept = _matching({str(entry.get("cell")) for entry in entries} | {row["cell"] for row in rows}, only)
    return Part(
        workdir,
        {**record, "cells": [entry for entry in entries if str(entry.get("cell")) in kept]},
        [row for row in rows if row["cell"] in kept],
    )


def _matching(cells: Collection[str], only: Sequence[str]) -> set[str]:
    values = {cell: set(cell.split(",")) for cell in cells}
    found: set[str] = set()
    for text in only:
        wanted = {value.strip() for value in text.split(",")}
        fitting = {cell for cell, of_cell in values.items() if wanted <= of_cell}
        if not fitting:
            example = f"; cells are named like {min(cells)}" if cells else ""
            raise UserError(f"--only={text}: the study has no such cell{example}")
        found |= fitting
    return found
