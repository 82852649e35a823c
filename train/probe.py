"""Scores and weights before any training: of unit-normal queries and keys, and of models as they start."""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp

from model import theory
from model.unit_normal import Sample, sample, summary
from train.cells import make_runs, make_tasks
from train.diagnose import diagnosis_rows, fixed_batch
from train.lanes import Lanes
from train.layout import start_backend
from train.log import Row
from train.memory import least_block
from train.plan import Plan
from train.rows import lane_name


def unit_normal_rows(
    names: Sequence[str], widths: Sequence[int], *, keys: int, rows: int, seed: int
) -> Iterator[tuple[Row, Sample]]:
    """For every width and score a row of what `model.unit_normal.summary` gives, and the sample it is of.

    Beside it what theory says, over the log of the number of keys: entropy_expansion, of the variance within rows (for
    variances up to 1/16; None above 2, where it says nothing), and entropy_bound, the least that such a row can have.
    """
    for d_k in widths:
        for name, one in sample(names, d_k, keys=keys, rows=rows, seed=seed).items():
            found = summary(one)
            within = found["variance_within"]
            curves = {
                "entropy_expansion": theory.entropy_of_variance(jnp.float32(within), keys),
                "entropy_bound": theory.least_entropy(jnp.sqrt(within * (keys - 1)), keys),
            }
            relative: Row = {curve: float(value / jnp.log(keys)) for curve, value in curves.items()}
            if within > 2.0:
                relative["entropy_expansion"] = None
            yield {"score": name, "d_k": d_k, **found, **relative}, one


def initial_rows(plan: Plan) -> Iterator[Row]:
    """What diagnostics.jsonl would hold of step 0 of every cell and lane, without the parameter groups.

    A seed comes once: rates are alike before the first update.
    """
    tasks = make_tasks(plan, None)
    runs = make_runs(plan, tasks)
    devices = start_backend(plan.cells[0].run.devices, least_block(plan, runs, tasks))
    seeds = {lane.seed: lane for lane in reversed(plan.lanes)}
    lanes = [seeds[seed] for seed in sorted(seeds)]
    for cell in plan.cells:
        group = Lanes(runs[cell.name], lanes, devices)
        batch = fixed_batch(tasks[cell.name].evaluation("valid"), cell.run.batch_size)
        diagnosis = group.diagnose(group.init(), batch)
        for place, lane in enumerate(lanes):
            for row in diagnosis_rows(diagnosis, place):
                if row["group"] is None:
                    yield lane_name(cell, lane) | {"step": 0} | row
