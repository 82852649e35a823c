"""Rows as text and as JSON lines, and what machine they come from."""

import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from measurement import Row

from train.words import counted

SPREAD = "median ±half the distance between the quartiles; a/b: ratio within each round; all: mean over the sizes"

DISTRIBUTIONS = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "keras", "joeynmt")
VERSIONS = """
import platform, sys
from importlib import metadata
found = ["python " + platform.python_version()]
for name in sys.argv[1:]:
    try:
        found.append(name + " " + metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
print(", ".join(found))
"""


def number(value: float) -> str:
    """Three digits, or all before the point; very large and very small ones with an exponent."""
    if 999.5 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(row: Row | None) -> str:
    """Value and spread; nothing where nothing was measured."""
    if row is None:
        return ""
    return number(row.value) + (f" ±{number(row.spread)}" if row.spread is not None else "")


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def block(rows: Sequence[Row]) -> str:
    """One quantity: a line a size, a column a contender."""
    sizes = list(dict.fromkeys(name for row in rows for name in row.sizes))
    columns = list(dict.fromkeys(row.contender for row in rows))
    lines: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        lines.setdefault(tuple(str(row.sizes.get(name, "all")) for name in sizes), {})[row.contender] = row
    body = [[*place, *(cell(line.get(name)) for name in columns)] for place, line in lines.items()]
    unit = f", {rows[0].unit}" if rows[0].unit else ""
    return "\n".join([f"{rows[0].quantity}{unit}", *_aligned([[*sizes, *columns], *body])])


def to_text(rows: Sequence[Row]) -> str:
    """All quantities, each in its own block; ratios in a block of their own."""
    blocks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        blocks.setdefault((row.quantity, row.unit), []).append(row)
    return "\n\n".join(map(block, blocks.values()))


def to_json(rows: Iterable[Row]) -> str:
    """Strict JSON, one row a line."""
    return "".join(json.dumps(row.plain(), allow_nan=False) + "\n" for row in rows)


def machine() -> str:
    """The processor and the cores that may be used."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return (
        f"{next(models, platform.processor() or platform.machine())}, {counted(len(os.sched_getaffinity(0)), 'core')}"
    )


def versions(python: str) -> str:
    """Those of an interpreter and of the packages in its environment; "" where it cannot be started."""
    try:
        done = subprocess.run([python, "-c", VERSIONS, *DISTRIBUTIONS], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def heading(section: str, bench_python: str) -> str:
    """What was measured where, when and with what."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    found = filter(None, (versions(sys.executable), versions(bench_python)))
    return "\n".join([f"{section}  {date}  {machine()}", *found, SPREAD])
