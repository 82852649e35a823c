import math

import numpy as np
import pytest

from train.metrics import METRICS, of_lane

COUNTS = {
    "loss": np.array([6.0, math.nan]),
    "correct": np.array([3, 0]),
    "tokens": np.array([4, 0]),
    "sequences_correct": np.array([1, 0]),
    "sequences": np.array([2, 0]),
}


def test_each_metric_is_its_sum_over_its_count():
    assert of_lane(COUNTS, 0) == {"loss": 1.5, "token_accuracy": 0.75, "sequence_accuracy": 0.5}


def test_nothing_counted_is_nan_and_no_fault():
    assert all(math.isnan(value) for value in of_lane(COUNTS, 1).values())


def test_only_the_loss_is_better_when_lower():
    assert [name for name, metric in METRICS.items() if not metric.higher_is_better] == ["loss"]


@pytest.mark.parametrize("name", METRICS)
def test_metrics_name_counts_that_an_evaluation_has(name):
    assert {METRICS[name].numerator, METRICS[name].denominator} <= set(COUNTS)
