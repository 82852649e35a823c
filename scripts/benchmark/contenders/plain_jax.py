"""What a competent user of JAX writes: a loop in Python over one compiled step, its state donated, Adam of Optax."""

import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from contenders.plain_model import PlainTransformer
from serve import Prepared, calls_for, seconds_of

from train.cells import make_task
from train.plan import make_plan
from train.tasks import BOS, PAD

BASE = Path(__file__).resolve().parents[3] / "configs" / "base.py"
BATCHES = 50  # made beforehand, taken in turn


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat is as many updates of one run as last about spec["seconds"]; "knobs": overrides of configs/base.py."""
    cell = make_plan(BASE, spec["knobs"]).cells[0]
    task = make_task(cell, None)
    names = ("d_model", "num_heads", "d_k", "d_v", "d_ff", "num_layers")
    sizes = {name: getattr(cell.model, name) for name in names}
    module = PlainTransformer(task.source_vocab, task.target_vocab, **sizes, pad=PAD)
    optimizer = optax.adam(1e-3)
    batches = [task.batch(0, step) for step in range(BATCHES)]

    def loss(params: Any, source_bs: jax.Array, target_bt: jax.Array) -> jax.Array:
        input_bt = jnp.pad(target_bt[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
        logits_btn = module.apply({"params": params}, source_bs, input_bt)
        loss_bt = optax.softmax_cross_entropy_with_integer_labels(logits_btn, target_bt)
        return jnp.mean(loss_bt, where=target_bt != PAD)

    def step(params: Any, moments: Any, source_bs: jax.Array, target_bt: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, grads = jax.value_and_grad(loss)(params, source_bs, target_bt)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, value

    compiled = jax.jit(step, donate_argnums=(0, 1))
    started = time.perf_counter()
    params = jax.jit(module.init)(jax.random.key(0), *batches[0])
    state = (params["params"], optimizer.init(params["params"]))
    *state, _ = jax.block_until_ready(compiled(*state, *batches[0]))
    compile_seconds = time.perf_counter() - started

    def some_updates() -> None:
        nonlocal state
        for source_bs, target_bt in batches:
            *state, _ = compiled(*state, source_bs, target_bt)
        jax.block_until_ready(state)

    calls = calls_for(spec["seconds"], some_updates)

    def repeat() -> dict[str, float]:
        return {"seconds": seconds_of(some_updates, calls), "count": calls * BATCHES}

    return Prepared(repeat, {}, compile_seconds)
