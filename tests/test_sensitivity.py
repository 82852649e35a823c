"""Steps to a threshold, sensitivity to the rate, dead lanes: hand-made curves with known answers."""

import math

import pytest

from tests.synthetic_study import study_rows
from train.log import Row
from train.report.sensitivity import (
    DEAD_LOSS,
    Reached,
    cell_facts,
    curves_of,
    first_step,
    initial_losses,
    is_dead,
    rate_sensitivity,
    reached,
    sensitivity,
    threshold_of,
)
from train.report.statistics import lane_results

INITIAL = math.log(29)


def lane(number: int, losses: list[float | None], *, lr: float = 0.01, seed: int = 0, end: bool = True) -> list[Row]:
    """A lane evaluated every 10 updates, its first `train` loss the initial one; accuracy is 1 - loss / INITIAL."""
    start = {"cell": "c", "lane": number, "lr": lr, "seed": seed, "task": "copy", "score": "dot", "d_k": 7}
    known = [loss for loss in losses if loss is not None]
    best = losses.index(min(known)) * 10 + 10 if known else 0
    diverged = {"diverged_at": 5 if None in losses else None, "best_step": best}
    rows: list[Row] = [{**start, "step": 10, "split": "train", "loss": INITIAL, "diverged_at": None}]
    for i, loss in enumerate(losses, 1):
        accuracy = None if loss is None else 1 - loss / INITIAL
        rows.append({**start, "step": 10 * i, "split": "valid", "loss": loss, "token_accuracy": accuracy, **diverged})
    if end:
        value = {"loss": min(known, default=INITIAL), "token_accuracy": 1 - min(known, default=INITIAL) / INITIAL}
        rows.append({**start, "step": 10 * len(losses), "split": "test", **value, **diverged})
    return rows


def test_the_first_step_at_the_threshold_counts() -> None:
    curve = [{"step": step, "loss": loss} for step, loss in ((10, 3.0), (20, None), (30, 1.0), (40, 1.5), (50, 0.5))]
    assert first_step(curve, "loss", 1.0) == 30
    assert first_step(curve, "loss", 0.1) is None
    assert first_step([{"step": 7, "token_accuracy": 0.9}], "token_accuracy", 0.9) == 7
    assert (threshold_of("token_accuracy", None), threshold_of("loss", 3.0), threshold_of("bleu", 3.0)) == (
        0.9,
        1.5,
        None,
    )


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        ([[3.0, 0.1], [0.1], [3.0, 3.0]], Reached(3, 2, 0, 20.0)),
        ([[3.0], [3.0], [0.1]], Reached(3, 1, 0, None)),
        ([[0.1], [3.0, 0.1]], Reached(2, 2, 0, 15.0)),
        ([[0.1], [3.0]], Reached(2, 1, 0, None)),
        ([[None], [None]], Reached(2, 0, 0, None)),
    ],
    ids=["one never", "most never", "even", "half never", "diverged"],
)
def test_a_lane_that_never_learns_counts_as_later_than_any(curves: list[list[float | None]], expected: Reached) -> None:
    rows = [row for seed, losses in enumerate(curves) for row in lane(seed, losses, seed=seed)]
    assert reached(lane_results(rows), curves_of(rows, "valid"), "token_accuracy", 0.9) == expected


def test_a_lane_that_still_trains_is_waited_for() -> None:
    rows = [*lane(0, [0.1], seed=0), *lane(1, [3.0], seed=1, end=False)]
    assert reached(lane_results(rows), curves_of(rows, "valid"), "loss", 1.0) == Reached(2, 1, 1, None)


def test_rate_sensitivity_is_wortsmans() -> None:
    # Rates: good, fair, worse than no training, diverged: min(loss, 3) is 0.2, 1.0, 3, 3.
    assert rate_sensitivity([0.2, 1.0, 50.0, None], 3.0, lower_is_better=True) == pytest.approx(7.2 / 4 - 0.2)
    assert rate_sensitivity([0.9, 0.5, None], 0.0, lower_is_better=False) == pytest.approx(0.9 - 1.4 / 3)
    assert rate_sensitivity([0.3, 0.3], 3.0, lower_is_better=True) == pytest.approx(0, abs=1e-12)


def test_sensitivity_is_over_the_seeds_that_every_rate_has() -> None:
    rows = [*lane(0, [0.2], lr=0.01, seed=0), *lane(1, [0.4], lr=0.1, seed=0), *lane(2, [0.1], lr=0.01, seed=1)]
    found = sensitivity(lane_results(rows), "test", "loss", INITIAL)
    assert found is not None
    assert (found.mean, found.lanes) == (pytest.approx(0.1), 1)
    found = sensitivity(lane_results([*rows, *lane(3, [None], lr=0.1, seed=1)]), "test", "loss", INITIAL)
    assert found is not None
    assert found.mean == pytest.approx((0.1 + (INITIAL - 0.1) / 2) / 2)
    assert sensitivity(lane_results(rows[:3]), "test", "loss", INITIAL) is None
    assert sensitivity(lane_results(rows), "test", "loss", None) is None
    assert sensitivity(lane_results(rows), "test", "ter", INITIAL) is None


def test_the_initial_loss_is_that_of_the_slowest_rate() -> None:
    rows = [*lane(0, [0.2], lr=0.01, seed=0), *lane(1, [0.4], lr=0.1, seed=0), *lane(2, [0.4], lr=0.01, seed=1)]
    for row in rows:
        if row["split"] == "train":
            row["loss"] = {0: 3.2, 1: 40.0, 2: 3.4}[row["lane"]]
    assert initial_losses(rows, lane_results(rows)) == {"copy": pytest.approx(3.3)}
    assert initial_losses([row for row in rows if row["split"] != "train"], lane_results(rows)) == {}


def test_a_dead_lane_ended_and_never_learnt() -> None:
    just, short = DEAD_LOSS * INITIAL - 0.01, DEAD_LOSS * INITIAL + 0.01
    rows = [
        *lane(0, [3.5, short], seed=0),
        *lane(1, [3.5, just, 3.5], seed=1),
        *lane(2, [short], seed=2, end=False),
        *lane(3, [None], seed=3),
        *lane(4, [short, None], seed=4),
    ]
    valid = curves_of(rows, "valid")
    assert [is_dead(each, valid, INITIAL) for each in lane_results(rows)] == [True, False, False, False, False]


def test_the_facts_of_a_cell() -> None:
    rows = [*lane(0, [0.2, 0.1], lr=0.01), *lane(1, [3.3], lr=0.1), *lane(2, [0.2, 0.3], lr=0.01, seed=1)]
    rows += lane(3, [None], lr=0.1, seed=1)
    (facts,) = cell_facts(rows, lane_results(rows), "token_accuracy", "test")
    assert (facts.cell, facts.lr, facts.lanes, facts.finished, facts.diverged, facts.dead) == ("c", 0.01, 4, 4, 1, 1)
    assert facts.steps == Reached(2, 2, 0, 10.0)
    assert facts.value.mean == pytest.approx(1 - 0.15 / INITIAL)
    assert set(facts.sensitivity) == {"token_accuracy", "loss"}


@pytest.mark.parametrize("test", [True, False])
def test_what_a_study_can_hold_has_facts(test: bool) -> None:
    for rows in (
        study_rows(steps=200, test=test),
        study_rows(steps=100)[:1],
        [{"cell": "c", "lane": 0, "split": "x", "step": 1}],
    ):
        assert cell_facts(rows, lane_results(rows), "token_accuracy", "test" if test else "valid")
    assert cell_facts([], [], "loss", "test") == []
