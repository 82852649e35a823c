"""Evaluations and diagnoses of a group of lanes, as rows for the logs."""

import functools
import operator
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train.diagnose import diagnosis_rows, fixed_batch
from train.lanes import Lanes
from train.log import Row
from train.plan import Cell
from train.rows import lane_name, make_rows
from train.step import Evaluation, State
from train.tasks import Batch, Task, check_ids
from train.watch import Watchdog


class Evaluations:
    """What a group of lanes is like on the fixed sets of its task.

    folder: of the cell, where predictions go.
    """

    def __init__(self, cell: Cell, task: Task, lanes: Lanes, watchdog: Watchdog, folder: Path):
        self._cell, self._task, self._lanes = cell, task, lanes
        self._watchdog, self._folder = watchdog, folder

    def evaluated(self) -> list[Batch]:
        """A batch of every shape that evaluations have."""
        batches = {
            batch.source_bs.shape + batch.target_bt.shape: batch
            for split in ("valid", "test")
            for batch in self._task.evaluation(split).batches
        }
        return list(batches.values())

    def diagnosed(self) -> list[Batch]:
        """The batch that is diagnosed, as many sentences of valid as an update has; none where nothing is."""
        run = self._cell.run
        return [fixed_batch(self._task.evaluation("valid"), run.batch_size)] if run.diagnose_every else []

    def is_diagnosed(self, step: int) -> bool:
        """Whether `run.diagnose_every` asks for a diagnosis beside the evaluation of this step."""
        run = self._cell.run
        return bool(run.diagnose_every) and (step == run.steps or step % (run.diagnose_every * run.eval_every) == 0)

    def diagnose(self, state: State, step: int) -> list[Row]:
        """Rows of diagnostics.jsonl of every lane."""
        (batch,) = self.diagnosed()
        with self._watchdog.watching():
            diagnosis = self._lanes.diagnose(state, batch)
        return [
            lane_name(self._cell, lane) | {"step": step} | row
            for place, lane in enumerate(self._lanes.lanes)
            for row in diagnosis_rows(diagnosis, place)
        ]

    def valid(self, state: State, step: int, seconds: float) -> tuple[State, list[Row]]:
        """Rows of the train and valid splits for every lane, and the state with the best parameters kept."""
        evaluation, tokens_rnt = self._decode(state.params, state.step, "valid")
        train = self._lanes.to_host(state.train)
        with self._watchdog.watching():
            state = jax.block_until_ready(self._lanes.after_evaluation(state, evaluation))
        counts = {"train": train._asdict(), "valid": self._lanes.to_host(evaluation.counts())}
        measured = {"valid": [self._task.measure("valid", tokens_nt) for tokens_nt in tokens_rnt]}
        return state, self._rows(state, step, seconds, counts, measured)

    def test(self, state: State, step: int) -> list[Row]:
        """Rows of the test split, from each lane's best parameters; predictions go to the cell's folder."""
        since = time.monotonic()
        evaluation, tokens_rnt = self._decode(state.best_params, state.best_step, "test")
        for lane, tokens_nt in zip(self._lanes.lanes, tokens_rnt, strict=True):
            lines = self._task.lines("test", tokens_nt)
            if lines is not None:
                file = self._folder / "predictions" / f"test.lane-{lane.lane}.txt"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        counts = {"test": self._lanes.to_host(evaluation.counts())}
        measured = {"test": [self._task.measure("test", tokens_nt) for tokens_nt in tokens_rnt]}
        return self._rows(state, step, time.monotonic() - since, counts, measured)

    def _decode(self, params: Any, step_r: jax.Array, split: str) -> tuple[Evaluation, np.ndarray]:
        """Counts on an evaluation set, and each lane's decoded tokens [r, n, max_target] in the set's own order."""
        fixed = self._task.evaluation(split)
        parts = []
        for batch in fixed.batches:
            check_ids(batch, self._task)
            with self._watchdog.watching():
                parts.append(self._lanes.evaluate(params, step_r, batch))
        evaluation = functools.reduce(operator.add, (counts for counts, _ in parts))
        token_rbt = np.concatenate([token_rbt for _, token_rbt in parts], axis=1)
        real = fixed.order_n >= 0
        tokens_rnt = np.empty((token_rbt.shape[0], int(real.sum()), token_rbt.shape[2]), np.int32)
        tokens_rnt[:, fixed.order_n[real]] = token_rbt[:, real]
        return evaluation, tokens_rnt

    def _rows(
        self,
        state: State,
        step: int,
        seconds: float,
        counts: dict[str, dict[str, np.ndarray]],
        measured: dict[str, list[dict[str, Any]]],
    ) -> list[Row]:
        state_r = self._lanes.to_host({"best_step": state.best_step, "diverged_at": state.diverged_at})
        return make_rows(self._cell, self._lanes.lanes, step, seconds, state_r, counts, measured)
