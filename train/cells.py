"""What a cell is made of besides its settings: its task and the functions of its runs."""

from pathlib import Path

import numpy as np

import model
from train.errors import UserError
from train.plan import Cell, Plan
from train.step import Run
from train.tasks import PAD, TASKS, Task


def make_task(cell: Cell, stored: Path | None) -> Task:
    """The task of a cell. `stored`: a cell's folder of an earlier launch, whose vocabularies stand.

    Raises UserError for data that cannot be used.
    """
    sizes = {"batch_size": cell.run.batch_size, "eval_batch_size": cell.run.eval_batch_size}
    return TASKS[cell.task.name](cell.task, **sizes, stored=stored)


def make_tasks(plan: Plan, workdir: Path | None) -> dict[str, Task]:
    """The task of every cell by the cell's name, made once for cells that share it.

    An earlier launch left its vocabularies in the workdir: they stand, in the cells of a later launch too. Where a kill
    came before they were whole, they are made again, from the same text.
    """
    made: dict[tuple, Task] = {}
    tasks = {}
    for cell in plan.cells:
        key = (cell.task, cell.run.batch_size, cell.run.eval_batch_size)
        if key not in made:
            names = [other.name for other in plan.cells if other.task == cell.task]
            folders = [cell_folder(workdir, name) for name in names] if workdir else []
            files = TASKS[cell.task.name].files
            whole = (folder for folder in folders if all((folder / file).is_file() for file in files))
            made[key] = make_task(cell, next(whole, None))
        tasks[cell.name] = made[key]
    return tasks


def make_run(cell: Cell, task: Task) -> Run:
    """The functions of one run of a cell. Raises UserError where its model does not fit the task's vocabularies."""
    fields = {name: value for name, value in vars(cell.model).items() if name != "name"}
    median, long = np.percentile(task.lengths(), (50, 97.5))
    facts = {"pad": PAD, "lengths": model.Lengths(float(median), float(long))}
    sizes = {"source_vocab": task.source_vocab, "target_vocab": task.target_vocab}
    try:
        module = model.build(cell.model.name, **sizes, **facts, **fields)
    except ValueError as error:
        raise UserError(f"cell {cell.name}: {error}") from error
    return Run(module=module, optim=cell.optim, run=cell.run, max_target=task.max_target)


def make_runs(plan: Plan, tasks: dict[str, Task]) -> dict[str, Run]:
    """The functions of one run of every cell, by the cell's name."""
    return {cell.name: make_run(cell, tasks[cell.name]) for cell in plan.cells}


def cell_folder(workdir: Path, cell: str) -> Path:
    """Where a cell leaves its files."""
    return workdir / "cells" / cell


def checkpoint_folder(workdir: Path, cell: str, group: int) -> Path:
    """Where the lanes of a cell that train together leave their checkpoints."""
    return cell_folder(workdir, cell) / "checkpoints" / f"group-{group}"
