"""Metrics and values of axes in the words and units a reader sees, and the range a metric can have."""

import math
from typing import Any

LABELS = {
    "loss": "loss",
    "token_accuracy": "token accuracy",
    "sequence_accuracy": "sequence accuracy",
    "bleu": "BLEU",
    "bleu_unseen": "BLEU of unseen sources",
    "chrf": "chrF",
}
SHARE = (0.0, 1.0)
PERCENT_POINTS = (0.0, 100.0)


def label(metric: str) -> str:
    """The metric as words."""
    return LABELS.get(metric, metric)


def bounds(metric: str) -> tuple[float, float]:
    """The smallest and the largest value a metric can have: SHARE, PERCENT_POINTS, or infinite where none is known."""
    if metric.endswith("accuracy"):
        return SHARE
    if metric.startswith(("bleu", "chrf")):
        return PERCENT_POINTS
    return (0.0 if metric == "loss" else -math.inf, math.inf)


def title_of(metric: str, split: str, remark: str = "") -> str:
    """A metric with its split, its unit and a remark, as a title of an axis or a table."""
    unit = "nats per token" if metric == "loss" else "0 to 100" if bounds(metric) == PERCENT_POINTS else ""
    details = ", ".join(text for text in (unit, remark) if text)
    return f"{label(metric)} on {split}" + (f" ({details})" if details else "")


def named(axis: str, value: Any) -> str:
    """A value that heads a column or names a side: words stand for themselves, a number says of which axis it is."""
    return printable(value) if isinstance(value, str) else f"{axis}={printable(value)}"


def printable(value: Any) -> str:
    """A value of an axis as one line of text: control characters escaped; None, a part that is absent, as none."""
    if value is None:
        return "none"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
