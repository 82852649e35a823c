"""OPTIMIZERS and SCHEDULES. The learning rate is no part of either: it is the last factor of an update (step.py)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from train.schema import OptimSettings

OPTIMIZERS: dict[str, Callable[[OptimSettings], optax.GradientTransformation]] = {
    # Kingma & Ba 2015, algorithm 1
    "adam": lambda optim: optax.scale_by_adam(b1=optim.b1, b2=optim.b2, eps=optim.eps),
    # Loshchilov & Hutter 2019: decay of the weights beside Adam's direction, not through its moments
    "adamw": lambda optim: optax.chain(
        optax.scale_by_adam(b1=optim.b1, b2=optim.b2, eps=optim.eps), optax.add_decayed_weights(optim.weight_decay)
    ),
    "sgd": lambda optim: optax.identity(),
}


def _constant(update: jax.Array, warmup: int, steps: int) -> jax.Array:
    return jnp.ones_like(update)


def _cosine(update: jax.Array, warmup: int, steps: int) -> jax.Array:
    """Half a cosine from 1 at the last update of the warm-up to 0 at `steps` (Loshchilov & Hutter 2017, eq. 5)."""
    peak = max(warmup, 1)
    return 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip((update - peak) / max(steps - peak, 1), 0.0, 1.0)))


def _inverse_sqrt(update: jax.Array, warmup: int, steps: int) -> jax.Array:
    """sqrt(warmup / update): Vaswani et al. 2017, eq. 3, with the peak factored out."""
    return jnp.sqrt(max(warmup, 1) / update)


SCHEDULES: dict[str, Callable[[jax.Array, int, int], jax.Array]] = {
    "constant": _constant,
    "cosine": _cosine,
    "inverse_sqrt": _inverse_sqrt,
}


def schedule_factor(step: jax.Array | int, optim: OptimSettings, steps: int) -> jax.Array:
    """Factor on the peak rate for the update after `step` updates have been made, in [0, 1].

    Updates count from 1: with w warm-up steps update n <= w has the factor n / w, so the first update already moves,
    and without warm-up it has the peak rate. After that the schedule's own shape follows.

    Args:
      step: [] int32, updates made so far.
      optim: names the schedule and its warm-up.
      steps: updates of the whole run.
    """
    update = jnp.asarray(step + 1, jnp.float32)
    factor = SCHEDULES[optim.schedule](update, optim.warmup_steps, steps)
    if not optim.warmup_steps:
        return factor
    return jnp.where(update <= optim.warmup_steps, update / optim.warmup_steps, factor)


def temperature(step: jax.Array | int, optim: OptimSettings) -> jax.Array:
    """What scores are divided by in the update after `step` updates have been made.

    `optim.temperature` up to and with update `optim.temperature_step`, `optim.temperature_after` from then on: an
    intervention in mid-run (Zhai et al. 2023, section 3). With `temperature_step` 0 there is none.
    """
    before, after = jnp.float32(optim.temperature), jnp.float32(optim.temperature_after)
    return jnp.where(jnp.asarray(step) < optim.temperature_step, before, after) if optim.temperature_step else before


def make_optimizer(optim: OptimSettings) -> optax.GradientTransformation:
    """Clipping by the global norm (`optim.clip`, 0 = off), then the optimizer's direction, without rate and sign.

    The optimizer sees all parameters as one vector: fewer operations to compile and to run, and the same numbers.
    """
    direction = optax.flatten(OPTIMIZERS[optim.name](optim))
    return optax.chain(optax.clip_by_global_norm(optim.clip), direction) if optim.clip else direction
