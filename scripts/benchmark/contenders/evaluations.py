"""This project's evaluations and diagnoses, as train/evaluate.py makes them."""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
from serve import Prepared, calls_for, seconds_of

from train.cells import make_runs, make_tasks
from train.evaluate import Evaluations
from train.lanes import Lanes
from train.layout import start_backend
from train.memory import least_block
from train.plan import make_plan
from train.watch import Watchdog

BASE = Path(__file__).resolve().parents[3] / "configs" / "base.py"
SECONDS = 0.5  # of one quantity in a repeat


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat gives seconds of an "evaluation" and of a "diagnosis" of all lanes, rows and all. spec: "knobs"."""
    plan = make_plan(BASE, spec["knobs"])
    (cell,) = plan.cells
    tasks = make_tasks(plan, None)
    runs = make_runs(plan, tasks)
    lanes = Lanes(runs[cell.name], plan.lanes, start_backend(0, least_block(plan, runs, tasks)))
    watchdog = Watchdog(cell.run.patience)
    evaluations = Evaluations(cell, tasks[cell.name], lanes, watchdog, Path(tempfile.gettempdir()))
    state = lanes.init()

    def evaluate() -> None:
        nonlocal state
        state, _ = evaluations.valid(state, 1, 0.0)
        jax.block_until_ready(state.step)

    def diagnose() -> None:
        evaluations.diagnose(state, 1)

    started = time.perf_counter()
    evaluate()
    diagnose()
    compile_seconds = time.perf_counter() - started
    pairs = (("evaluation", evaluate), ("diagnosis", diagnose))
    calls = {name: (call, calls_for(SECONDS, call)) for name, call in pairs}

    def repeat() -> dict[str, float]:
        return {name: seconds_of(call, count) / count for name, (call, count) in calls.items()}

    return Prepared(repeat, {"lanes": len(plan.lanes)}, compile_seconds)
