"""What an evaluation says of each lane: rows of metrics.jsonl, the best in words, and whether all are there."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from train.log import Row
from train.metrics import METRICS, of_lane
from train.optim import schedule_factor
from train.plan import Cell, Lane
from train.step import NEVER

Counts = Mapping[str, np.ndarray]


def lane_name(cell: Cell, lane: Lane) -> Row:
    """With what every row begins: the lane, and the axes of its cell."""
    name = {"cell": cell.name, "lane": lane.lane, "lr": lane.lr, "seed": lane.seed}
    axes = {"task": cell.task.name, "model": cell.model.name, "score": cell.model.score, "d_k": cell.model.d_k}
    return {**name, **axes, **cell.axes}


def make_rows(
    cell: Cell,
    lanes: Sequence[Lane],
    step: int,
    seconds: float,
    state_r: Mapping[str, np.ndarray],
    counts: Mapping[str, Counts],
    measured: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[Row]:
    """One row per lane and split, lane after lane.

    Args:
      cell, lanes, step: what was evaluated.
      seconds: wall-clock to put into each row.
      state_r: best_step [r] and diverged_at [r].
      counts: by split, the counts of METRICS [r] and target tokens; of decoded splits also of sequences.
      measured: by decoded split, the task's own metrics of each lane.
    """
    rows = []
    for index, lane in enumerate(lanes):
        best_step, diverged_at = int(state_r["best_step"][index]), int(state_r["diverged_at"][index])
        for split, counts_r in counts.items():
            numbers: Row = {**of_lane(counts_r, index), "target_tokens": int(counts_r["tokens"][index])}
            if split == "train":
                numbers["learning_rate"] = lane.lr * float(schedule_factor(step - 1, cell.optim, cell.run.steps))
            else:
                numbers |= {count: int(counts_r[count][index]) for count in ("sequences", "unfinished")}
                numbers |= measured[split][index]
            if split == "test" and not best_step:  # diverged before any evaluation: nothing was learnt
                numbers = dict.fromkeys(numbers)
            row = {**lane_name(cell, lane), "step": step, "split": split, **numbers}
            row |= {} if split == "train" else {"best_step": best_step}
            row |= {"diverged_at": None if diverged_at == NEVER else diverged_at, "seconds": round(seconds, 3)}
            rows.append(row)
    return rows


def best_in_words(rows: Sequence[Row], select: str) -> str:
    """The best lane of an evaluation by the metric `select` on valid, and how many lanes diverged."""
    valid = [row for row in rows if row["split"] == "valid"]
    finite = [row[select] for row in valid if row[select] is not None and math.isfinite(row[select])]
    choose = max if METRICS[select].higher_is_better else min
    best = f"{choose(finite):.4g}" if finite else "none"
    diverged = sum(row["diverged_at"] is not None for row in valid)
    return f"best valid {select} {best}" + (f", {diverged} of {len(valid)} diverged" if diverged else "")


def lost_rows(rows: Sequence[Mapping[str, Any]], cell: Cell, lanes: Sequence[Lane], step: int) -> list[tuple[int, int]]:
    """(lane, step) of evaluations on valid that were due up to a step and have no row."""
    due = [at for at in range(1, step + 1) if at % cell.run.eval_every == 0 or at == cell.run.steps]
    there = {
        (row.get("lane"), row.get("step"))
        for row in rows
        if row.get("cell") == cell.name and row.get("split") == "valid"
    }
    return [(lane.lane, at) for at in due for lane in lanes if (lane.lane, at) not in there]


def is_finished(rows: Sequence[Mapping[str, Any]], cell: Cell, lanes: Sequence[Lane]) -> bool:
    """Whether every lane has its row of the test set, the last that is written, and those of all evaluations."""
    tested = {row["lane"] for row in rows if row["cell"] == cell.name and row["split"] == "test"}
    return tested.issuperset(lane.lane for lane in lanes) and not lost_rows(rows, cell, lanes, cell.run.steps)
