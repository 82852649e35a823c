"""What an evaluation reports: METRICS, each a sum over a count."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Metric(NamedTuple):
    """A number of a row: the ratio of two counts of an evaluation (step.py), and whether more is better."""

    numerator: str
    denominator: str
    higher_is_better: bool


METRICS: dict[str, Metric] = {
    # nats per real target token, EOS counted, without label smoothing
    "loss": Metric("loss", "tokens", higher_is_better=False),
    # share of real target tokens predicted right when the true prefix is given
    "token_accuracy": Metric("correct", "tokens", higher_is_better=True),
    # share of sentences whose greedy decoding is right throughout, EOS included
    "sequence_accuracy": Metric("sequences_correct", "sequences", higher_is_better=True),
}


def of_lane(counts: Mapping[str, np.ndarray], lane: int) -> dict[str, float | None]:
    """Every metric of one lane; NaN where there was nothing to count, None where nobody counted.

    Args:
      counts: name -> [r], summed over an evaluation set.
      lane: position in r.
    """

    def ratio(metric: Metric) -> float | None:
        if metric.denominator not in counts:
            return None
        denominator = float(counts[metric.denominator][lane])
        return float(counts[metric.numerator][lane]) / denominator if denominator else math.nan

    return {name: ratio(metric) for name, metric in METRICS.items()}
