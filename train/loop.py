"""The host's loop over cells and chunks: the ONLY file that decides when."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from train.cells import cell_folder, checkpoint_folder, make_runs, make_tasks
from train.checkpoint import Checkpoints
from train.environment import describe, use_compilation_cache
from train.errors import UserError
from train.estimate import table
from train.lanes import Lanes, choose_layout, start_backend
from train.log import METRICS as METRICS_FILE
from train.log import MetricsLog, read_rows
from train.metrics import of_lane
from train.plan import Cell, Lane, Plan
from train.progress import Progress
from train.report.tables import summary
from train.step import NEVER, Evaluation, Run, State
from train.tasks import PAD, Batch, Task
from train.watch import Stop, Watchdog
from train.workdir import open_workdir

# A chunk is shortened to about this long, so that progress shows and a signal is heeded soon.
CHUNK_SECONDS = 2.0


def run_study(plan: Plan, path: Path, *, overwrite: bool) -> int:
    """Train what the plan asks for and the workdir lacks; return the exit status.

    0: finished, or nothing left to do. 128 + n: stopped by signal n, resumable.

    Raises:
      UserError: bad data, an unusable or foreign workdir, a full disk.
    """
    devices = start_backend(_devices(plan))
    use_compilation_cache()
    tasks = make_tasks(plan, None if overwrite else path)
    runs = make_runs(plan, tasks)
    layout = choose_layout(len(plan.lanes), plan.cells[0].run.batch_size, len(devices), devices[0].platform)
    environment = {**describe(), "layout": layout._asdict()}
    data = {name: task.digests() for name, task in tasks.items()}
    with open_workdir(path, plan, data, overwrite=overwrite, environment=environment) as workdir:
        rows = read_rows(workdir.path)
        todo = [
            (cell, index, lanes)
            for cell in plan.cells
            for index, lanes in enumerate(workdir.groups)
            if lanes and not is_finished(rows, cell, lanes)
        ]
        if not todo:
            print(f"nothing left to do: {workdir.path} holds the whole study")
            return 0
        updates = sum(cell.run.steps for cell, _, _ in todo)
        with MetricsLog(workdir.path) as log, Progress(len(todo), updates) as progress, Stop() as stop:
            for line in dict.fromkeys(note for cell, _, _ in todo for note in tasks[cell.name].notes()):
                progress.say(line)
            for cell, index, lanes in todo:
                group = Group(cell, lanes, runs[cell.name], tasks[cell.name], workdir.path, index, devices)
                group.train(log, progress, stop)
                if stop.signal:
                    return 128 + stop.signal
        print(summary(read_rows(workdir.path)))
        print(f"rows: {workdir.path / METRICS_FILE}   report: python scripts/report.py {workdir.path}")
    return 0


def _devices(plan: Plan) -> int:
    wanted = {cell.run.devices for cell in plan.cells}
    if len(wanted) > 1:
        raise UserError("run.devices cannot differ between cells: all share one process; give one value")
    return wanted.pop()


def is_finished(rows: Sequence[dict[str, Any]], cell: Cell, lanes: Sequence[Lane]) -> bool:
    """Whether every lane has its row of the test set, the last that is written."""
    tested = {row["lane"] for row in rows if row["cell"] == cell.name and row["split"] == "test"}
    return tested.issuperset(lane.lane for lane in lanes)


class Group:
    """The lanes of a cell that train together, from their newest checkpoint to their rows of the test set."""

    def __init__(
        self,
        cell: Cell,
        lanes: Sequence[Lane],
        run: Run,
        task: Task,
        workdir: Path,
        index: int,
        devices: Sequence[jax.Device],
    ):
        self._cell, self._task = cell, task
        self._folder = cell_folder(workdir, cell.name)
        self._checkpoints = checkpoint_folder(workdir, cell.name, index)
        self._lanes = Lanes(run, lanes, devices)
        self._watchdog = Watchdog(cell.run.patience)
        self._seconds_a_step = 0.0

    def train(self, log: MetricsLog, progress: Progress, stop: Stop) -> None:
        """Make the updates, evaluations and checkpoints that are still missing, then test; or stop on a signal.

        Rows of an evaluation are on disk before the checkpoint that follows it: what is resumed writes each row once.
        """
        checkpoints = Checkpoints(self._checkpoints)
        self._task.write(self._folder)
        step, state = self._begin(checkpoints, progress)
        log.truncate(self._cell.name, [lane.lane for lane in self._lanes.lanes], step)
        run = self._cell.run
        progress.start(self._cell.name, len(self._lanes.lanes), step, run.steps)
        evaluated_at, since = step, time.monotonic()
        saved_at = step
        pending = self._batches(step)
        while step < run.steps and not stop.signal:
            batches, count = pending
            started = time.monotonic()
            with self._watchdog.watching():
                state = self._lanes.update(state, batches, count)
                step += count
                pending = self._batches(step)  # made while the devices are busy
                jax.block_until_ready(state.step)
            self._seconds_a_step = (time.monotonic() - started) / count
            progress.advance(count)
            if step % run.eval_every == 0 or step == run.steps:
                seconds = time.monotonic() - since
                state, rows = self._evaluate(state, step, seconds)
                log.append(rows)
                progress.evaluated(step, run.steps, seconds, step - evaluated_at, self._words(rows))
                evaluated_at, since = step, time.monotonic()
            if step % run.checkpoint_every == 0 or step == run.steps:
                checkpoints.save(step, self._lanes.to_host(state))
                saved_at = step
        if stop.signal and saved_at != step:
            checkpoints.save(step, self._lanes.to_host(state))
        if step == run.steps:
            checkpoints.keep_only(step)
            if not stop.signal:
                log.append(self._test(state, step))
        checkpoints.close()

    def _begin(self, checkpoints: Checkpoints, progress: Progress) -> tuple[int, State]:
        restored = checkpoints.newest(self._lanes.like())
        if restored is None:
            with self._watchdog.watching():
                return 0, jax.block_until_ready(self._lanes.init())
        for damaged in restored.damaged:
            progress.say(
                f"{self._cell.name}: ignored the checkpoint of step {damaged}, which is damaged; going on from step"
                f" {restored.step}"
            )
        return restored.step, self._lanes.from_host(restored.state)

    def _batches(self, step: int) -> tuple[Batch, int]:
        """The batches of the next updates, for every seed, and how many they are.

        As many as share one shape, up to the next evaluation or checkpoint, and last about CHUNK_SECONDS.
        """
        run = self._cell.run
        boundary = min(step // every * every + every for every in (run.eval_every, run.checkpoint_every))
        most = min(boundary, run.steps, step + run.chunk_steps) - step
        if self._seconds_a_step:
            most = min(most, max(1, round(CHUNK_SECONDS / self._seconds_a_step)))
        shape = self._task.shape(step)
        count = next((ahead for ahead in range(1, most) if self._task.shape(step + ahead) != shape), most)
        seeds = self._lanes.seeds
        source = np.full((len(seeds), run.chunk_steps, run.batch_size, shape[0]), PAD, np.int32)
        target = np.full((len(seeds), run.chunk_steps, run.batch_size, shape[1]), PAD, np.int32)
        for row, seed in enumerate(seeds):
            for ahead in range(count):
                source[row, ahead], target[row, ahead] = self._task.batch(seed, step + ahead)
        return Batch(source, target), count

    def _evaluate(self, state: State, step: int, seconds: float) -> tuple[State, list[dict[str, Any]]]:
        """Rows of the train and valid splits for every lane, and the state with the best parameters kept."""
        evaluation, tokens_rnt = self._decode(state.params, "valid")
        train = self._lanes.to_host(state.train)
        with self._watchdog.watching():
            state = jax.block_until_ready(self._lanes.after_evaluation(state, evaluation))
        counts = {"train": train._asdict(), "valid": self._lanes.to_host(evaluation.counts())}
        extras = {"valid": [self._task.measure("valid", tokens_nt) for tokens_nt in tokens_rnt]}
        return state, self._rows(state, step, seconds, counts, extras)

    def _test(self, state: State, step: int) -> list[dict[str, Any]]:
        """Rows of the test split, from each lane's best parameters; predictions go to the cell's folder."""
        since = time.monotonic()
        evaluation, tokens_rnt = self._decode(state.best_params, "test")
        for lane, tokens_nt in zip(self._lanes.lanes, tokens_rnt, strict=True):
            lines = self._task.lines("test", tokens_nt)
            if lines is not None:
                file = self._folder / "predictions" / f"test.lane-{lane.lane}.txt"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        counts = {"test": self._lanes.to_host(evaluation.counts())}
        extras = {"test": [self._task.measure("test", tokens_nt) for tokens_nt in tokens_rnt]}
        return self._rows(state, step, time.monotonic() - since, counts, extras)

    def _decode(self, params: Any, split: str) -> tuple[Evaluation, np.ndarray]:
        """Counts on an evaluation set, and each lane's decoded tokens [r, n, max_target] in the set's own order."""
        fixed = self._task.evaluation(split)
        with self._watchdog.watching():
            evaluation, token_rbt = self._lanes.evaluate(params, fixed.batches)
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
        extras: dict[str, list[dict[str, Any]]],
    ) -> list[dict[str, Any]]:
        """One row per lane and split. `seconds`: wall-clock of the whole group since its last evaluation."""
        best_step_r, diverged_at_r = self._lanes.to_host((state.best_step, state.diverged_at))
        cell = self._cell
        rows = []
        for index, lane in enumerate(self._lanes.lanes):
            name = {"cell": cell.name, "lane": lane.lane, "lr": lane.lr, "seed": lane.seed}
            axes = {"task": cell.task.name, "model": cell.model.name, "score": cell.model.score, "d_k": cell.model.d_k}
            diverged_at = int(diverged_at_r[index])
            for split, counts_r in counts.items():
                row = {**name, **axes, **cell.axes, "step": step, "split": split}
                numbers = _numbers(split, counts_r, index)
                if split in extras:
                    numbers |= extras[split][index]
                if split == "test" and not best_step_r[index]:  # diverged before any evaluation: nothing was learnt
                    numbers = dict.fromkeys(numbers)
                row |= numbers
                row |= {} if split == "train" else {"best_step": int(best_step_r[index])}
                row |= {"diverged_at": None if diverged_at == NEVER else diverged_at, "seconds": round(seconds, 3)}
                rows.append(row)
        return rows

    def _words(self, rows: list[dict[str, Any]]) -> str:
        """The best lane of an evaluation, in words."""
        values = [row[self._cell.run.select] for row in rows if row["split"] == "valid"]
        diverged = sum(row["diverged_at"] is not None for row in rows if row["split"] == "valid")
        choose: Callable = min if self._cell.run.select == "loss" else max
        finite = [value for value in values if np.isfinite(value)]
        best = f"{choose(finite):.4g}" if finite else "none"
        return f"best valid {self._cell.run.select} {best}" + (
            f", {diverged} of {len(values)} diverged" if diverged else ""
        )


def _numbers(split: str, counts_r: dict[str, np.ndarray], index: int) -> dict[str, Any]:
    """The metrics of one lane. Of training there is only what teacher forcing with dropout gives: loss and tokens."""
    target_tokens = int(counts_r["tokens"][index])
    if split == "train":
        loss = float(counts_r["loss"][index]) / target_tokens if target_tokens else None
        return {"loss": loss, "token_accuracy": None, "sequence_accuracy": None, "target_tokens": target_tokens}
    return {
        **of_lane(counts_r, index),
        "target_tokens": target_tokens,
        "sequences": int(counts_r["sequences"][index]),
        "unfinished": int(counts_r["unfinished"][index]),
    }


def dry_run(plan: Plan) -> int:
    """Print what the plan would do, and stop: return 0."""
    devices = start_backend(_devices(plan))
    tasks = make_tasks(plan, None)
    print(table(plan, make_runs(plan, tasks), tasks, len(devices)))
    return 0
