"""One run of this project by itself: an update, and decoding step by step from a cache."""

import time
from typing import Any

import jax
import jax.numpy as jnp
from contenders.lanes import BASE
from flax import linen as nn
from serve import Prepared, calls_for, seconds_of

from train.cells import make_runs, make_tasks
from train.chunks import next_chunk
from train.plan import make_plan
from train.step import shift_right


def steps(module: nn.Module, source_bs: jax.Array, input_bt: jax.Array) -> jax.Array:
    """Logits [t, b, n] of steps that follow one another, given their tokens."""
    encoded = module.encode(source_bs, deterministic=True)

    def step(module: nn.Module, cache: Any, token_b: jax.Array) -> tuple[Any, jax.Array]:
        logits_bn, cache = module.step(cache, token_b)
        return cache, logits_bn

    over_time = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
    _, logits_tbn = over_time(module, module.start(encoded, input_bt.shape[1]), input_bt.T)
    return logits_tbn


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat makes each as often as lasts spec["seconds"]; it says seconds a call. spec: "knobs", see lanes.py."""
    plan = make_plan(BASE, spec["knobs"])
    (cell,) = plan.cells
    tasks = make_tasks(plan, None)
    run, (lane,) = make_runs(plan, tasks)[cell.name], plan.lanes
    sizes = {"batch_size": cell.run.batch_size, "most": 1, "longest": 1}
    chunk = next_chunk(tasks[cell.name], [lane.seed], 0, **sizes).batches
    batch = jax.tree.map(lambda x: jnp.asarray(x[0, 0]), chunk)

    knobs = run.knobs(lane.lr, lane.seed)
    state = run.init(knobs)
    update = jax.jit(run.update)
    decode = jax.jit(lambda params, *tokens: run.module.apply({"params": params}, *tokens, method=steps))
    input_bt = shift_right(batch.target_bt)
    calls = {
        "update": lambda: jax.block_until_ready(update(state, batch, knobs)),
        "decoding": lambda: jax.block_until_ready(decode(state.params, batch.source_bs, input_bt)),
    }
    started = time.perf_counter()
    for call in calls.values():
        call()
    compile_seconds = time.perf_counter() - started
    counts = {name: calls_for(spec["seconds"], call) for name, call in calls.items()}

    def repeat() -> dict[str, float]:
        return {name: seconds_of(call, counts[name]) / counts[name] for name, call in calls.items()}

    return Prepared(repeat, {}, compile_seconds)
