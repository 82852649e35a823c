"""From repeats to rows: median, spread, ratios round by round."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Size = Mapping[str, int | str]


@dataclass(frozen=True)
class Row:
    """One measured quantity of one contender (or of two, "a/b") at one size.

    value: the median over repeats. spread: half the distance between the quartiles; None where there is one repeat.
    sizes: what the quantity was measured at; {} for the mean over all sizes.
    """

    section: str
    contender: str
    quantity: str
    value: float
    unit: str
    spread: float | None
    repeats: int
    sizes: Size

    def plain(self) -> dict[str, Any]:
        """The row as plain data, with the sizes as fields."""
        own = {name: value for name, value in vars(self).items() if name != "sizes"}
        return {**own, **self.sizes}


def half_quartile_distance(values: Sequence[float]) -> float | None:
    """Half the distance between the quartiles (linear between values); None for fewer than two values."""
    if len(values) < 2:
        return None
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return (upper - lower) / 2


def row(section: str, contender: str, quantity: str, unit: str, values: Sequence[float], sizes: Size) -> Row:
    """The row of a contender's repeats."""
    spread = half_quartile_distance(values)
    return Row(section, contender, quantity, statistics.median(values), unit, spread, len(values), dict(sizes))


def ratio(section: str, name: str, quantity: str, over: Sequence[float], under: Sequence[float], sizes: Size) -> Row:
    """The row of a ratio, taken in every round by itself: what slows the machine for a while slows both."""
    return row(section, name, quantity, "times", [a / b for a, b in zip(over, under, strict=True)], sizes)


def mean(rows: Sequence[Row], sizes: Size | None = None, *, geometric: bool = False) -> Row:
    """The mean of one contender's rows over all sizes but those named; `repeats` is then the number of rows."""
    values = [one.value for one in rows]
    value = math.exp(statistics.fmean(map(math.log, values))) if geometric else statistics.fmean(values)
    first = rows[0]
    return Row(first.section, first.contender, first.quantity, value, first.unit, None, len(rows), dict(sizes or {}))
