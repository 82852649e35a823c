"""What a plan will take, for --dry_run: parameters, memory, disk and time, before anything is compiled or written.

Parameters and the state's size are exact. Memory adds the largest temporary tensors, by their sizes, of all lanes that
run at once: more than is needed. Time comes from XLA's count of operations of one update and the rates that this
machine reaches just now on a matrix product and on tanh; evaluations and compilation are put on top by a fixed share.
It tells minutes from hours, not more.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model import SCORES
from train.lanes import Layout
from train.plan import Cell, Plan
from train.progress import clock
from train.step import Knobs, Run
from train.tasks import Batch, Task

# Set by hand, on one CPU: the share of the matrix rate that an update reaches, and of the time that evaluations add.
# dk_quick came out at 5:34 and took 6:03; its widest additive cell at 0:40 and took 1:03.
MATRIX_SHARE = 0.35
EVALUATION_SHARE = 0.15
COMPILE_SECONDS = 12.0


class Estimate(NamedTuple):
    """Of one cell: trainable numbers of one lane; bytes in memory and on disk of all lanes; seconds to train them."""

    parameters: int
    memory: int
    disk: int
    seconds: float


class Rates(NamedTuple):
    """What the device does in a second: floating-point operations of a matrix product, and tanh's."""

    flops: float
    transcendentals: float


def measure_rates() -> Rates:
    """Time a matrix product and a tanh on the default device (under a second)."""

    def best_seconds(function: Any, x: jax.Array) -> float:
        compiled = jax.jit(function).lower(x).compile()
        seconds = []
        for _ in range(4):
            started = time.perf_counter()
            jax.block_until_ready(compiled(x))
            seconds.append(time.perf_counter() - started)
        return min(seconds)

    square = jnp.ones((1024, 1024), jnp.float32)
    return Rates(2 * 1024**3 / best_seconds(lambda x: x @ x, square), 1024**2 / best_seconds(jnp.tanh, square))


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def estimate(cell: Cell, run: Run, task: Task, lanes: int, layout: Layout, rates: Rates) -> Estimate:
    """Of one cell with so many lanes. Traces one update; compiles nothing."""
    knobs = Knobs(jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.uint32))
    state = jax.eval_shape(run.init, knobs)
    widths = np.mean([task.shape(step) for step in range(min(cell.run.steps, 64))], axis=0).round().astype(int)
    sides: list[Any] = [jax.ShapeDtypeStruct((cell.run.batch_size, int(width)), jnp.int32) for width in widths]
    batch = Batch(*sides)
    cost = jax.jit(run.update).lower(state, batch, knobs).cost_analysis() or {}
    model = cell.model
    rows = max(cell.run.batch_size // layout.data_shards, cell.run.eval_batch_size)
    scores = rows * model.num_heads * int(widths.max()) ** 2
    logits = rows * int(widths[1]) * task.target_vocab
    hidden = scores * (model.d_k if SCORES[model.score].parameters else 1)  # a score with a hidden layer of that width
    temporary = 4 * (4 * logits + model.num_layers * 3 * 3 * hidden)
    at_once = min(lanes, layout.lane_shards) if layout.order == "map" else lanes
    # The rates are those of all cores of a CPU, but of one accelerator.
    shards = 1 if layout.platform == "cpu" else layout.lane_shards * layout.data_shards
    update = cost.get("flops", 0.0) / (MATRIX_SHARE * rates.flops)
    update += cost.get("transcendentals", 0.0) / rates.transcendentals
    return Estimate(
        parameters=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        memory=lanes * _bytes(state) + at_once * temporary,
        disk=lanes * _bytes(state),
        seconds=COMPILE_SECONDS + lanes * cell.run.steps * update * (1 + EVALUATION_SHARE) / shards,
    )


def table(plan: Plan, runs: Mapping[str, Run], tasks: Mapping[str, Task], layout: Layout) -> str:
    """The cells and lanes of a plan as text, with an estimate for each cell and for all."""
    rates = measure_rates()
    rows = [("cell", "lanes", "updates", "parameters", "memory MB", "disk MB", "time")]
    total = Estimate(0, 0, 0, 0.0)
    print(f"estimating {len(plan.cells)} cells, about a second each", flush=True)
    for cell in plan.cells:
        one = estimate(cell, runs[cell.name], tasks[cell.name], len(plan.lanes), layout, rates)
        total = Estimate(0, max(total.memory, one.memory), total.disk + one.disk, total.seconds + one.seconds)
        rows.append(
            (
                cell.name,
                str(len(plan.lanes)),
                str(cell.run.steps),
                f"{one.parameters:,}",
                f"{one.memory / 1e6:.0f}",
                f"{one.disk / 1e6:.0f}",
                clock(one.seconds),
            )
        )
    rows.append(("all", "", "", "", f"{total.memory / 1e6:.0f}", f"{total.disk / 1e6:.0f}", clock(total.seconds)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lanes = "  ".join(f"{lane.lane}: lr {lane.lr:g} seed {lane.seed}" for lane in plan.lanes)
    return "\n".join([*lines, "", f"lanes of each cell: {lanes}", "times are rough; nothing was compiled or written"])
