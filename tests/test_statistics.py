"""Statistics over seeds: hand-computed numbers, SciPy's interval, the best rate chosen where it may be chosen."""

from collections.abc import Mapping
from typing import Any

import pytest

from train.log import Row
from train.metrics import METRICS
from train.report.statistics import (
    LOWER_IS_BETTER,
    best_lanes,
    best_rate,
    choosing_metric,
    lane_results,
    lanes_spread,
    ordered,
    progress,
    smallest_count,
    varying,
)


def lane_rows(
    lane: int,
    lr: float,
    valid: list[float | None],
    test: float | None = None,
    *,
    seed: int = 0,
    metric: str = "token_accuracy",
    best: int | None = None,
    diverged: int | None = None,
    **axes: Any,
) -> list[Row]:
    """A lane evaluated at steps 1, 2, ...; its best step is given or the last."""
    start = {"cell": "c", "lane": lane, "lr": lr, "seed": seed, **(axes or {"score": "dot", "d_k": 7})}
    best = len(valid) if best is None else best
    rows: list[Row] = [
        {**start, "step": i, "split": "valid", metric: value, "best_step": min(i, best), "diverged_at": None}
        for i, value in enumerate(valid, 1)
    ]
    if rows:
        rows[-1] |= {"best_step": best or None, "diverged_at": diverged}
    if test is not None or diverged:
        end = {"step": len(valid), "split": "test", metric: test, "best_step": best or None, "diverged_at": diverged}
        rows.append({**start, **end})
    return rows


def test_the_best_rate_is_chosen_on_valid_and_reported_on_test() -> None:
    rows = [*lane_rows(0, 0.001, [0.9], 0.2), *lane_rows(1, 0.01, [0.8], 0.7)]
    lanes = lane_results(rows)
    assert best_rate(lanes, "token_accuracy") == 0.001
    assert lanes_spread(best_lanes(lanes, "token_accuracy"), "test", "token_accuracy").mean == 0.2


def test_a_lane_counts_at_its_best_step() -> None:
    rows = [*lane_rows(0, 0.001, [0.5, 0.9, 0.1], best=2), *lane_rows(1, 0.01, [0.8, 0.8, 0.8])]
    lanes = lane_results(rows)
    assert [lane.value("valid", "token_accuracy") for lane in lanes] == [0.9, 0.8]
    assert best_rate(lanes, "token_accuracy") == 0.001


def test_rates_are_compared_by_their_mean_over_seeds() -> None:
    one = [*lane_rows(0, 0.001, [0.99], seed=0), *lane_rows(1, 0.001, [0.1], seed=1)]
    two = [*lane_rows(2, 0.01, [0.6], seed=0), *lane_rows(3, 0.01, [0.6], seed=1)]
    assert best_rate(lane_results([*one, *two]), "token_accuracy") == 0.01


def test_of_equal_rates_the_smaller_wins_in_any_order() -> None:
    rows = [*lane_rows(0, 0.01, [1.0], 0.9), *lane_rows(1, 0.001, [1.0], 0.1), *lane_rows(2, 0.1, [1.0], 1.0)]
    assert best_rate(lane_results(rows), "token_accuracy") == 0.001
    assert best_rate(lane_results(rows[::-1]), "token_accuracy") == 0.001


def test_of_a_loss_the_lowest_wins() -> None:
    rows = [*lane_rows(0, 0.001, [0.5], metric="loss"), *lane_rows(1, 0.01, [0.4], metric="loss")]
    assert best_rate(lane_results(rows), "loss") == 0.01


def test_a_lane_without_a_value_counts_as_the_worst() -> None:
    def study(metric: str, good: float, fair: float) -> list[Row]:
        lost = lane_rows(1, 0.01, [None], seed=1, metric=metric, best=0, diverged=1)
        return [
            *lane_rows(0, 0.01, [good], seed=0, metric=metric),
            *lost,
            *lane_rows(2, 0.001, [fair], seed=0, metric=metric),
            *lane_rows(3, 0.001, [fair], seed=1, metric=metric),
        ]

    assert best_rate(lane_results(study("token_accuracy", 0.9, 0.5)), "token_accuracy") == 0.001
    assert best_rate(lane_results(study("token_accuracy", 0.9, 0.4)), "token_accuracy") == 0.01
    assert best_rate(lane_results(study("loss", 0.1, 2.0)), "loss") == 0.001


def test_metrics_say_themselves_which_way_is_better() -> None:
    assert {name for name in METRICS if name in LOWER_IS_BETTER} == {
        name for name, metric in METRICS.items() if not metric.higher_is_better
    }
    assert LOWER_IS_BETTER - set(METRICS) == {"ter"}


def rates(values: Mapping[float, Mapping[int, float | None]]) -> list[Row]:
    """Lanes of one cell: rate -> seed -> value on valid, None for one that diverged before its first evaluation."""
    rows = []
    lanes = [(lr, seed, value) for lr, seeds in values.items() for seed, value in seeds.items()]
    for lane, (lr, seed, value) in enumerate(lanes):
        best, diverged = (0, 1) if value is None else (1, None)
        rows += lane_rows(lane, lr, [value], value, seed=seed, best=best, diverged=diverged)
    return rows


def test_rates_are_compared_on_the_seeds_they_all_have() -> None:
    added = {0.001: {0: 0.9, 1: 0.5, 2: 0.1}, 0.01: {0: 0.8}}
    lanes = lane_results(rates(added))
    assert best_rate(lanes, "token_accuracy") == 0.001
    # What is shown is the mean over every seed of the rate.
    assert lanes_spread(best_lanes(lanes, "token_accuracy"), "test", "token_accuracy").mean == pytest.approx(0.5)
    assert best_rate(lane_results(rates(added | {0.01: {0: 0.95}})), "token_accuracy") == 0.01
    assert best_rate(lane_results(rates(added | {0.01: {0: 0.8, 1: 0.7}})), "token_accuracy") == 0.01


def test_rates_without_a_common_seed_are_compared_where_they_have_the_most() -> None:
    most = {0.001: {0: 0.4, 1: 0.4}, 0.01: {0: 0.5, 1: 0.5}, 0.1: {2: 0.9}}
    assert best_rate(lane_results(rates(most)), "token_accuracy") == 0.01
    # Of those with as many seeds, the largest number that have the same ones; of equal numbers, that of the smallest.
    assert best_rate(lane_results(rates(most | {0.1: {2: 0.9, 3: 0.9}})), "token_accuracy") == 0.01
    assert best_rate(lane_results(rates({0.01: {0: 0.5}, 0.001: {1: 0.4}})), "token_accuracy") == 0.001


def test_where_no_compared_lane_has_a_value_the_others_decide() -> None:
    lanes = lane_results(rates({0.001: {0: None, 1: 0.3}, 0.01: {0: None}}))
    assert best_rate(lanes, "token_accuracy") == 0.001


def test_a_metric_measured_on_test_only_is_chosen_by_loss() -> None:
    rows = lane_rows(0, 0.001, [0.5], metric="loss")
    rows.append({**rows[0], "split": "test", "bleu": 31.0})
    lanes = lane_results(rows)
    assert choosing_metric(lanes, "bleu") == "loss"
    assert choosing_metric(lanes, "loss") == "loss"
    assert lanes_spread(lanes, "test", "bleu").mean == 31.0


def test_a_diverged_lane_is_counted_and_its_earlier_best_still_counts() -> None:
    rows = [
        *lane_rows(0, 0.01, [0.3, None], 0.25, best=1, diverged=2),
        *lane_rows(1, 0.01, [None, None], None, best=0, diverged=1),
    ]
    result = lanes_spread(lane_results(rows), "test", "token_accuracy")
    assert (result.mean, result.lanes, result.finite, result.diverged) == (0.25, 2, 1, 2)


@pytest.mark.parametrize("untrained", [0, None])
def test_a_test_row_of_initial_parameters_is_no_value(untrained: int | None) -> None:
    rows = lane_rows(0, 0.01, [None, None], 0.04, best=0, diverged=1)
    rows[-1]["best_step"] = untrained
    lanes = lane_results(rows)
    assert lanes[0].value("test", "token_accuracy") is None
    assert lanes[0].finished
    assert lanes_spread(lanes, "test", "token_accuracy").reason == "no finite value in 1 lane, 1 diverged"


def test_a_study_before_its_test_says_so() -> None:
    lanes = lane_results(lane_rows(0, 0.01, [0.3]))
    assert lanes_spread(lanes, "test", "token_accuracy").reason == "no test row yet in 1 of 1 lane"
    assert not lanes[0].finished
    lanes += lane_results(rates({0.01: {1: None}}))
    result = lanes_spread(lanes, "test", "token_accuracy")
    assert result.reason == "no test row yet in 1 of 2 lanes, 1 diverged"
    assert not result.lost


def test_no_finite_value_gives_no_rate_and_keeps_the_lanes() -> None:
    rows = [*lane_rows(0, 0.01, [None], best=0, diverged=1), *lane_rows(1, 0.1, [None], best=0, diverged=1)]
    lanes = lane_results(rows)
    assert best_rate(lanes, "token_accuracy") is None
    assert len(best_lanes(lanes, "token_accuracy")) == 2
    assert lane_results([]) == []
    assert best_rate([], "loss") is None


def test_rows_that_do_not_say_the_best_step_count_at_their_lowest_loss() -> None:
    start = {"cell": "c", "lane": 0, "lr": 0.1, "seed": 0, "d_k": 7}
    rows = [
        {**start, "step": s, "split": "valid", "loss": x, "token_accuracy": s / 10}
        for s, x in ((1, 2.0), (2, 1.0), (3, 3.0))
    ]
    assert lane_results(rows)[0].value("valid", "token_accuracy") == 0.2


def test_rows_that_are_no_evaluations_are_passed_over() -> None:
    assert lane_results([{}, {"cell": "c"}, {"cell": "c", "lane": None, "split": "valid", "step": 1}]) == []


def test_axes_that_vary_and_their_order() -> None:
    rows = [*lane_rows(0, 0.1, [0.1], score="dot", d_k=64)]
    rows += [{**row, "cell": "e", "d_k": 7} for row in rows]
    lanes = lane_results(rows)
    assert varying(lanes) == ("d_k",)
    assert ordered(lane.axes["d_k"] for lane in lanes) == [7, 64]
    assert ordered(["b", "a", "b", None]) == ["b", "a", None]
    assert ordered([True, False]) == [True, False]


def test_progress_names_cells_that_never_ran() -> None:
    record = {"cells": [{"cell": "c"}, {"cell": "never"}], "lanes": [{"lane": 0}, {"lane": 1}]}
    done, never = progress(record, lane_results(lane_rows(0, 0.1, [0.1, 0.2], 0.3)))
    assert (done.cell, done.lanes, done.finished, done.last_step) == ("c", 2, 1, 2)
    assert (never.cell, never.lanes, never.finished, never.last_step) == ("never", 2, 0, 0)
    assert progress({}, []) == []


def test_a_count_is_known_where_every_lane_that_has_a_value_says_it() -> None:
    rows = [*lane_rows(0, 0.01, [0.5], 0.5, seed=0), *lane_rows(1, 0.01, [0.5], 0.5, seed=1)]
    assert smallest_count(lane_results(rows), "test", "token_accuracy") is None
    rows[-1]["target_tokens"] = 512
    assert smallest_count(lane_results(rows), "test", "token_accuracy") is None
    rows[1]["target_tokens"] = 500
    assert smallest_count(lane_results(rows), "test", "token_accuracy") == 500
    assert smallest_count(lane_results(rows), "test", "sequence_accuracy") is None
