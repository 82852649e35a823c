"""Where numbers stand on the axes of a chart: scales, their ends, series side by side, titles that fit."""

import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from train.report.words import PERCENT_POINTS, SHARE, bounds

APART = 6.8  # pixels between the points of neighbouring series
LETTER = 7  # pixels, on average, in the title of an axis


def is_number(value: Any) -> bool:
    """Whether a value of an axis lies on a line of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def scale_of(values: Sequence[Any]) -> str:
    """`log` for positive numbers over more than a factor of 4, `linear` for other numbers, else `point`."""
    if len(values) < 2 or not all(map(is_number, values)):
        return "point"
    return "log" if min(values) > 0 and max(values) / min(values) >= 4 else "linear"


def moved(at: float, share: float, values: Sequence[float], scale: str) -> float:
    """A place on the axis of these ascending values, moved by a share of its length."""
    if scale == "log":
        return at * math.pow(values[-1] / values[0], share)
    return at + share * (values[-1] - values[0])


def apart(values: Sequence[float], scale: str, series: int, width: int) -> float:
    """The share of an axis of ``width`` pixels from one series to the next, so that their bars do not hide each other.

    All series of one value together stay nearer to it than to the next value.
    """
    places = [math.log(value) if scale == "log" else value for value in values]
    nearest = min(after - before for before, after in itertools.pairwise(places)) / (places[-1] - places[0])
    return min(APART / width, 0.6 * nearest / series)


def value_ends(lowest: float, highest: float, metric: str) -> tuple[float, float]:
    """Ends of the axis of a metric, never beyond what it can be.

    A share is shown whole where the values use much of it, BLEU and chrF from 0 (and at least to 1, so that values next
    to 0 look like that); otherwise what suits the values, with a little room.
    """
    smallest, largest = bounds(metric)
    if (smallest, largest) == SHARE and lowest < 0.6:
        return SHARE
    if (smallest, largest) == PERCENT_POINTS:
        return smallest, min(max(1.05 * highest, 1.0), largest)
    margin = 0.05 * ((highest - lowest) or abs(highest) or 1.0)
    return max(lowest - margin, smallest), min(highest + margin, largest)


def title_lines(title: str, length: int) -> list[str]:
    """The title of an axis as lines that fit its length in pixels."""
    return textwrap.wrap(title, max(length // LETTER, 1))


def thin(count: int, keep: int) -> list[int]:
    """Indices of at most ``keep`` (at least 2) of ``count`` points, evenly spaced, first and last among them."""
    if count <= keep:
        return list(range(count))
    return sorted({round(i * (count - 1) / (keep - 1)) for i in range(keep)})
