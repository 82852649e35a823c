"""What a plan will take, for --dry_run: parameters, memory, disk and time, before anything is trained or written.

Parameters and the state's size are exact; memory is that of the largest group of lanes (train/memory.py). Time comes
from XLA's count of operations of one update and the rates that this machine reaches just now on a matrix product and on
tanh, which is all that is compiled; evaluations and compilation are put on top by a fixed share. It tells minutes from
hours, not more.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from train.layout import Layout
from train.memory import SHAPES, attentions, hidden_layers, nbytes, need, state_of
from train.plan import Cell, Plan
from train.progress import clock
from train.step import Run
from train.tasks import Batch, Task
from train.words import counted

# Set by hand, on one CPU: the share of the matrix rate that an update reaches, of the time that evaluations and
# checkpoints add, what a number of a score's hidden layer takes forwards and backwards in tanh's, its own one or two
# among them, and how long a set of programs compiles. dk_quick came out at 4:39 and took 4:36 in the same hour.
MATRIX_SHARE = 0.35
EVALUATION_SHARE = 0.25
WHOLE_TANHS, TILED_TANHS = 3.0, 4.0
COMPILE_SECONDS = 6.0

HIDDEN_FLOPS = 11  # that XLA counts of a number of a hidden layer, forwards and backwards (model/additive.py)

WARM_SECONDS = 0.3  # of measuring a rate


class Estimate(NamedTuple):
    """Of one cell: trainable numbers of one lane; bytes in memory and on disk of all lanes; seconds to train them.

    programs: what has to be compiled first, unless an earlier cell has compiled it.
    """

    parameters: int
    memory: int
    disk: int
    seconds: float
    programs: frozenset[Any]


class Rates(NamedTuple):
    """What the device does in a second: floating-point operations of a matrix product, and tanh's."""

    flops: float
    transcendentals: float


def measure_rates() -> Rates:
    """Time a matrix product and a tanh on the default device (under a second)."""

    def best_seconds(function: Any, x: jax.Array) -> float:
        compiled = jax.jit(function).lower(x).compile()
        best, until = float("inf"), time.perf_counter() + WARM_SECONDS
        while (started := time.perf_counter()) < until:  # the first calls wake threads and touch new memory
            jax.block_until_ready(compiled(x))
            best = min(best, time.perf_counter() - started)
        return best

    square = jnp.ones((1024, 1024), jnp.float32)
    return Rates(2 * 1024**3 / best_seconds(lambda x: x @ x, square), 1024**2 / best_seconds(jnp.tanh, square))


def estimate(cell: Cell, run: Run, task: Task, groups: Sequence[int], layout: Layout, rates: Rates) -> Estimate:
    """Of one cell. Traces one update; compiles nothing.

    groups: sizes of the groups that the lanes train in, one after another.
    layout: of the largest group.
    """
    lanes = sum(groups)
    state = state_of(run)
    shapes = [task.shape(step) for step in range(min(cell.run.steps, SHAPES))]
    widths = np.mean(shapes, axis=0).round().astype(int)
    part = cell.run.batch_size // cell.optim.accumulate
    sides: list[Any] = [jax.ShapeDtypeStruct((part, int(width)), jnp.int32) for width in widths]
    one_part = jax.jit(dataclasses.replace(run, optim=dataclasses.replace(run.optim, accumulate=1)).update)
    traced = one_part.trace(state, Batch(*sides), run.knobs(0.0, 0))
    cost = traced.lower().cost_analysis() or {}
    # The rates are those of all cores of a CPU, but of one accelerator.
    shards = 1 if layout.platform == "cpu" else layout.lane_shards * layout.data_shards
    # XLA counts what is in a loop once: a step of a recurrent cell and, of hidden layers in tiles, one tile.
    hidden = hidden_layers(cell.model, part, attentions(*map(int, widths)), layout.platform)
    flops = (
        cost.get("flops", 0.0)
        + repeated(traced.jaxpr.jaxpr)
        - HIDDEN_FLOPS * cell.model.num_layers * sum(one.tile for one in hidden)
    )
    tanhs = sum((WHOLE_TANHS if one.whole else TILED_TANHS) * one.numbers for one in hidden) * cell.model.num_layers
    update = cell.optim.accumulate * (flops / (MATRIX_SHARE * rates.flops) + tanhs / rates.transcendentals)
    return Estimate(
        parameters=sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        memory=need(cell, run, task, layout).total(max(groups), layout),
        disk=lanes * nbytes(state),
        seconds=lanes * cell.run.steps * update * (1 + EVALUATION_SHARE) / shards,
        programs=frozenset((run.program, size, shape) for size in groups for shape in shapes),
    )


def _hands_on(equation: Any) -> bool:
    """Whether it is a loop of a fixed length with a state; what it stacks has one axis more than what a round makes."""
    if equation.primitive.name != "scan":
        return False
    of_round = equation.params["jaxpr"].jaxpr.outvars
    return any(out.aval.shape == one.aval.shape for out, one in zip(equation.outvars, of_round, strict=True))


def repeated(jaxpr: Any, rounds: int = 1) -> float:
    """Operations of the matrix products that loops over time make after their first step.

    Such loops hand a state on; those over tiles of a hidden layer do not. rounds: how often the program itself runs.
    """
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (inner, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in inner)
            total += (rounds - 1) * 2 * summed * equation.outvars[0].aval.size
        times = rounds * equation.params["length"] if _hands_on(equation) else rounds
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner_jaxpr = getattr(value, "jaxpr", value)
            if hasattr(inner_jaxpr, "eqns"):
                total += repeated(inner_jaxpr, times)
    return total


def table(plan: Plan, runs: Mapping[str, Run], tasks: Mapping[str, Task], groups: Sequence[int], layout: Layout) -> str:
    """The cells and lanes of a plan as text, with an estimate for each cell and for all.

    groups: sizes of the groups that the lanes train in. layout: of the largest.
    """
    rates = measure_rates()
    rows = [("cell", "lanes", "updates", "parameters", "memory MB", "disk MB", "time")]
    total = Estimate(0, 0, 0, 0.0, frozenset())
    print(f"estimating {counted(len(plan.cells), 'cell')}, about a second each", flush=True)
    for cell in plan.cells:
        one = estimate(cell, runs[cell.name], tasks[cell.name], groups, layout, rates)
        seconds = one.seconds + COMPILE_SECONDS * len(one.programs - total.programs)
        total = Estimate(
            parameters=0,
            memory=max(total.memory, one.memory),
            disk=total.disk + one.disk,
            seconds=total.seconds + seconds,
            programs=total.programs | one.programs,
        )
        rows.append(
            (
                cell.name,
                str(len(plan.lanes)),
                str(cell.run.steps),
                f"{one.parameters:,}",
                f"{one.memory / 1e6:.0f}",
                f"{one.disk / 1e6:.0f}",
                clock(seconds),
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
    lines += ["", f"lanes of each cell: {lanes}"]
    if len(groups) > 1:
        sizes = ", ".join(map(str, groups))
        lines.append(
            f"they train in {counted(len(groups), 'group')}, one after another; lanes of each: {sizes} (run.memory_gb)"
        )
    return "\n".join([*lines, "times are rough; nothing was trained or written"])
