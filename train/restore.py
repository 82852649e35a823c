"""(workdir, cell, lane) -> model, parameters, task, ready to use: one call for scripts and notebooks."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from train.cells import cell_folder, checkpoint_folder, make_run, make_task
from train.checkpoint import Checkpoints
from train.errors import UserError
from train.plan import Cell, Lane
from train.record import find
from train.tasks import Task


class Trained(NamedTuple):
    """One lane of a study as its newest checkpoint has it.

    cell, lane: what it was trained with.
    task: its batches, evaluation sets and vocabularies; of changed files the text is new, the vocabularies are not.
    module: Flax module; `module.apply({"params": params}, source_bs, input_bt, deterministic=True)` gives logits_btn.
    params: the parameters that were best on the valid split so far.
    step: the update after which they were; 0 where none was evaluated yet: initial values.
    """

    cell: Cell
    lane: Lane
    task: Task
    module: nn.Module
    params: Any
    step: int


def restore(workdir: str | Path, cell: str, lane: int) -> Trained:
    """Read a lane of a study, finished or running, and change nothing there.

    Args:
      workdir: of the study.
      cell: name of the cell, as in the rows: "score=dot,d_k=64".
      lane: number of the lane, as in the rows.

    Raises:
      UserError: no such study, cell or lane; no checkpoint yet; text files that are not there any more.
    """
    folder = Path(workdir)
    found = find(folder, cell, lane)
    directory = checkpoint_folder(folder, cell, found.group)
    newest = None
    if directory.is_dir():
        checkpoints = Checkpoints(directory, read_only=True)
        newest = checkpoints.newest()
        checkpoints.close()
    if newest is None:
        raise UserError(f"cell {cell} of {folder} has no checkpoint of lane {lane} yet")
    task = make_task(found.cell, stored=cell_folder(folder, cell))
    run, step = make_run(found.cell, task), int(newest.state["best_step"][found.place])
    factor = run.after(run.knobs(0.0, 0), step).score_factor  # at the temperature of that step
    return Trained(
        cell=found.cell,
        lane=found.lanes[found.place],
        task=task,
        module=run.module.clone(score_factor=float(factor)),
        params=jax.tree.map(lambda value_r: jnp.asarray(value_r[found.place]), newest.state["best_params"]),
        step=step,
    )
