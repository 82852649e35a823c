"""The host's loop over cells and chunks: the ONLY file that decides when."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.stages import Compiled

from train.ahead import Ahead, in_background
from train.cells import cell_folder, checkpoint_folder, make_runs, make_tasks
from train.checkpoint import Checkpoints
from train.chunks import Updates
from train.environment import describe, use_compilation_cache
from train.errors import UserError
from train.estimate import table
from train.evaluate import Evaluations
from train.lanes import Lanes
from train.layout import Layout, choose_layout, start_backend
from train.log import METRICS as METRICS_FILE
from train.log import Logs, open_logs, read_rows
from train.memory import GB, available, least_block, make_split, room
from train.plan import Cell, Lane, Plan
from train.profile import Recorder
from train.progress import Progress
from train.report.tables import summary
from train.rows import best_in_words, is_finished, lost_rows
from train.step import Run, State
from train.tasks import Task
from train.watch import Stop, Watchdog
from train.workdir import STACKS, Workdir, open_workdir


def run_study(plan: Plan, path: Path, *, overwrite: bool, profile: bool = False) -> int:
    """Train what the plan asks for and the workdir lacks; return the exit status.

    0: finished, or nothing left to do. 128 + n: stopped by signal n, resumable. `profile`: see train/profile.py.

    Raises:
      UserError: bad data, an unusable or foreign workdir, a full disk.
    """
    tasks = make_tasks(plan, None if overwrite else path)
    runs = make_runs(plan, tasks)
    devices = start_backend(_shared(plan, "devices"), least_block(plan, runs, tasks))
    use_compilation_cache()

    def layout(lanes: int) -> dict[str, Any]:
        return _layout(plan, lanes, devices)._asdict()

    split = _split(plan, runs, tasks, devices)
    with open_workdir(path, plan, tasks, layout, overwrite=overwrite, environment=describe(), split=split) as workdir:
        rows = read_rows(workdir.path)
        todo = [
            (cell, index, lanes)
            for cell in plan.cells
            for index, lanes in enumerate(workdir.groups)
            if lanes and not is_finished(rows, cell, lanes)
        ]
        if not todo:
            print(f"nothing left to do{' or to profile' if profile else ''}: {workdir.path} holds the whole study")
            return 0
        updates = sum(cell.run.steps for cell, _, _ in todo)
        with (
            open_logs(workdir.path) as logs,
            Progress(len(todo), updates) as progress,
            in_background() as ahead,
            Stop() as stop,
        ):
            for line in notes(tasks[cell.name] for cell, _, _ in todo):
                progress.say(line)
            for line in _moved(workdir, layout):
                progress.say(line)
            groups = (
                Group(cell, lanes, runs[cell.name], tasks[cell.name], workdir.path, index, devices)
                for cell, index, lanes in todo
            )
            following = next(groups, None)
            while following:
                group, following = following, next(groups, None)
                if profile:
                    group.train(logs, progress, stop, recorder=Recorder(workdir.path))
                else:
                    group.train(logs, progress, stop, begun=functools.partial(_compile, ahead, group, following))
                profile = False
                if stop.signal:
                    progress.say(f"stopped and saved in {workdir.path}; the same command goes on from there")
                    return 128 + stop.signal
    print(summary(read_rows(path)))
    print(f"rows: {path / METRICS_FILE}   report: python scripts/report.py {path}")
    return 0


def _compile(ahead: Ahead, group: "Group", following: "Group | None") -> None:
    """Of a group that has begun what it will call last: the rest it compiles itself. Then all of the next group."""
    ahead(reversed(group.programs()))
    if following:
        ahead(following.programs())


def _layout(plan: Plan, lanes: int, devices: Sequence[jax.Device]) -> Layout:
    return choose_layout(lanes, plan.cells[0].run.batch_size, len(devices), devices[0].platform)


def _split(
    plan: Plan, runs: Mapping[str, Run], tasks: Mapping[str, Task], devices: Sequence[jax.Device]
) -> Callable[[int], list[int]]:
    limit = available(_shared(plan, "memory_gb"), devices)
    return make_split(plan, runs, tasks, lambda lanes: _layout(plan, lanes, devices), len(devices), limit)


def _shared(plan: Plan, knob: str) -> Any:
    wanted = {getattr(cell.run, knob) for cell in plan.cells}
    if len(wanted) > 1:
        raise UserError(f"run.{knob} cannot differ between cells: all share one process; give one value")
    return wanted.pop()


def _moved(workdir: Workdir, layout: Callable[[int], dict[str, Any]]) -> list[str]:
    """What to say where lanes began on other devices than they go on with."""
    return [
        f"group {index} began on {began['lane_shards'] * began['data_shards']} x {began['platform']}"
        f" ({began['order']}) and goes on with another layout: last bits may differ from an undisturbed run"
        for index, (lanes, began) in enumerate(zip(workdir.groups, workdir.record["layouts"], strict=True))
        if lanes and began != layout(len(lanes))
    ]


def notes(tasks: Iterable[Task]) -> list[str]:
    """What some tasks have to say, each line once."""
    return list(dict.fromkeys(line for task in tasks for line in task.notes()))


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
        self._workdir, self._folder = workdir, cell_folder(workdir, cell.name)
        self._checkpoints = checkpoint_folder(workdir, cell.name, index)
        self._lanes = Lanes(run, lanes, devices)
        self._watchdog = Watchdog(cell.run.patience, workdir / STACKS)
        self._evaluations = Evaluations(cell, task, self._lanes, self._watchdog, self._folder)
        self._memory = room(available(cell.run.memory_gb, devices), self._lanes.layout, len(devices))

    def train(
        self,
        logs: Logs,
        progress: Progress,
        stop: Stop,
        recorder: Recorder | None = None,
        begun: Callable[[], None] | None = None,
    ) -> None:
        """Make the updates, evaluations and checkpoints that are still missing, then test; or stop on a signal.

        Rows of an evaluation are on disk before the checkpoint that follows it: what is resumed writes each row once.
        begun: called after the first updates. To compile more at once would only delay these.
        """
        checkpoints = Checkpoints(self._checkpoints)
        self._task.write(self._folder)
        step, state = self._begin(checkpoints, progress)
        logs.truncate(self._cell.name, [lane.lane for lane in self._lanes.lanes], step)
        run = self._cell.run
        updates = self._updates(step)
        compiled = self._lanes.is_compiled(updates.pending.batches)
        progress.start(self._cell.name, len(self._lanes.lanes), step, run.steps, compiled=compiled)
        saved_at, since = step, time.monotonic()
        while step < run.steps and not stop.signal:
            chunk, last = updates.pending, step + updates.pending.updates == run.steps
            traced = recorder.around(chunk.updates, compiles=updates.compiles, last=last) if recorder else None
            with traced or contextlib.nullcontext():
                state = updates.make(state, functools.partial(self._say_memory, progress))
            first, step = not step, updates.step
            progress.advance(chunk.updates)
            if begun:
                begun()
                begun = None
            if first and run.diagnose_every:  # of the initial values, after the first updates: it would delay them
                logs.diagnostics.append(self._evaluations.diagnose(self._lanes.init(), 0))
            if recorder and recorder.updates:
                progress.say(recorder.table(self._lanes.program(chunk.batches).as_text() or ""))
                recorder = None
            if step % run.eval_every == 0 or step == run.steps:
                if self._evaluations.is_diagnosed(step):
                    logs.diagnostics.append(self._evaluations.diagnose(state, step))
                state, rows = self._evaluations.valid(state, step, time.monotonic() - since)
                logs.metrics.append(rows)
                progress.evaluated(step, run.steps, best_in_words(rows, run.select), updates.pace.words())
                since = time.monotonic()
            if step % run.checkpoint_every == 0 or step == run.steps:
                checkpoints.save(step, self._lanes.to_host(state))
                saved_at = step
        if stop.signal and saved_at != step:
            checkpoints.save(step, self._lanes.to_host(state))
        if step == run.steps:
            checkpoints.keep_only(step)
            if not stop.signal:
                logs.metrics.append(self._evaluations.test(state, step))
        checkpoints.close()
        if recorder:
            progress.say(f"profile: {self._cell.name} had no chunk that compiled nothing; give it more run.steps")

    def programs(self) -> list[Callable[[], Compiled]]:
        """Calls that compile what training will call, each one program, in the order in which they are needed."""
        return self._lanes.programs(
            self._updates(0).shapes(), self._evaluations.evaluated(), self._evaluations.diagnosed()
        )

    def _updates(self, step: int) -> Updates:
        return Updates(self._cell, self._task, self._lanes, self._watchdog, step)

    def _say_memory(self, progress: Progress, program: Compiled) -> None:
        """A line where a program needs more memory than there is and than any before."""
        needed = self._lanes.memory(program)
        if needed > self._memory:
            progress.say(
                f"{self._cell.name}: these lanes need {needed / GB:.3g} GB together, more than the"
                f" {self._memory / GB:.3g} GB of run.memory_gb ({self._cell.run.memory_gb:g}); going on"
            )
            self._memory = needed

    def _begin(self, checkpoints: Checkpoints, progress: Progress) -> tuple[int, State]:
        restored = checkpoints.newest(self._lanes.like())
        if restored is None:
            with self._watchdog.watching():
                return 0, jax.block_until_ready(self._lanes.init())
        for steps, why in ((restored.damaged, "is damaged"), (restored.unfinished, "was not finished")):
            for ignored in steps:
                progress.say(
                    f"{self._cell.name}: ignored the checkpoint of step {ignored}, which {why}; going on from step"
                    f" {restored.step}"
                )
        self._refuse_lost_rows(restored.step)
        return restored.step, self._lanes.from_host(restored.state)

    def _refuse_lost_rows(self, step: int) -> None:
        """Refuse to go on from a checkpoint whose evaluations are not in the log: nobody could choose a rate by it."""
        lost = lost_rows(read_rows(self._workdir), self._cell, self._lanes.lanes, step)
        if lost:
            lane, at = lost[0]
            raise UserError(
                f"{self._workdir / METRICS_FILE} has lost the rows of {self._cell.name}, lane {lane}, step {at}; put"
                f" them back, or remove {self._folder} to train that cell anew"
            )


def dry_run(plan: Plan) -> int:
    """Print what the plan would do, and stop: return 0."""
    devices = start_backend(_shared(plan, "devices"))
    tasks = make_tasks(plan, None)
    runs = make_runs(plan, tasks)
    sizes = _split(plan, runs, tasks, devices)(len(plan.lanes))
    print("".join(line + "\n" for line in notes(tasks.values())), end="")
    print(table(plan, runs, tasks, sizes, _layout(plan, max(sizes), devices)))
    return 0
