"""This project's engine: the lanes of a cell, as train/loop.py makes them and hands them chunks."""

import time
from pathlib import Path
from typing import Any

import jax
from serve import Prepared, calls_for, seconds_of

from train.cells import make_runs, make_tasks
from train.chunks import next_chunk
from train.lanes import Lanes
from train.layout import start_backend
from train.memory import least_block
from train.plan import make_plan

BASE = Path(__file__).resolve().parents[3] / "configs" / "base.py"


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat is as many whole chunks (run.chunk_steps updates of every lane) as last about spec["seconds"].

    spec: "knobs", overrides of configs/base.py; "devices"; "seconds". Counts updates of one lane.
    """
    plan = make_plan(BASE, spec["knobs"])
    (cell,) = plan.cells
    tasks = make_tasks(plan, None)
    runs = make_runs(plan, tasks)
    task, run = tasks[cell.name], runs[cell.name]
    devices = start_backend(spec["devices"], least_block(plan, runs, tasks))
    lanes = Lanes(run, plan.lanes, devices)
    updates = cell.run.chunk_steps
    sizes = {"batch_size": cell.run.batch_size, "most": updates, "longest": updates}
    batches = next_chunk(task, [lane.seed for lane in plan.lanes], 0, **sizes).batches
    one = jax.tree.map(lambda x: x[0, 0], batches)

    started = time.perf_counter()
    state = lanes.init()
    state = jax.block_until_ready(lanes.update(state, batches, 1))
    compile_seconds = time.perf_counter() - started

    knobs = run.knobs(plan.lanes[0].lr, plan.lanes[0].seed)
    cost = jax.jit(run.update).lower(run.init(knobs), one, knobs).compile().cost_analysis() or {}

    def one_chunk() -> None:
        nonlocal state
        state = jax.block_until_ready(lanes.update(state, batches, updates))

    calls = calls_for(spec["seconds"], one_chunk)

    def repeat() -> dict[str, float]:
        return {"seconds": seconds_of(one_chunk, calls), "count": calls * updates * len(plan.lanes)}

    parameters = sum(leaf.size // len(plan.lanes) for leaf in jax.tree.leaves(lanes.to_host(state.params)))
    facts = {"flops": cost["flops"], "parameters": parameters, "lanes": len(plan.lanes)}
    return Prepared(repeat, facts, compile_seconds)
