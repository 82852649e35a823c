import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_run import OPTIM

from train.optim import OPTIMIZERS, SCHEDULES, make_optimizer, schedule_factor, temperature


def factor(update: int, steps: int = 100, **changes: object) -> float:
    """Of update number `update`, from 1."""
    return float(schedule_factor(jnp.int32(update - 1), dataclasses.replace(OPTIM, **changes), steps))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_warm_up_climbs_linearly_to_the_peak_and_the_first_update_moves(schedule):
    for update in (1, 5, 9, 10):
        assert factor(update, schedule=schedule, warmup_steps=10) == pytest.approx(update / 10, rel=1e-6)


@pytest.mark.parametrize("steps", [1, 10, 10**6])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_warm_up_the_first_update_has_the_peak_rate(schedule, steps):
    assert factor(1, schedule=schedule, warmup_steps=0, steps=steps) == 1.0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 99, 100])
def test_every_factor_is_finite_and_between_0_and_1(schedule, warmup):
    factors = [factor(update, schedule=schedule, warmup_steps=warmup) for update in range(1, 101)]
    assert np.all(np.isfinite(factors))
    assert min(factors) >= 0
    assert max(factors) <= 1


def test_cosine_agrees_with_optax_after_the_warm_up():
    theirs = optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)
    for update in (10, 11, 55, 99, 100):
        assert factor(update, schedule="cosine", warmup_steps=10) == pytest.approx(float(theirs(update)), abs=1e-6)
    assert factor(55, schedule="cosine", warmup_steps=10) == pytest.approx(0.5, abs=1e-6)


def test_inverse_square_root_has_the_rates_of_the_paper():
    peak = 512**-0.5 * 4000**-0.5
    known = {1: 1.746928e-7, 4000: 6.987712e-4, 8000: 4.941058e-4}
    for update, rate in known.items():
        ours = peak * factor(update, schedule="inverse_sqrt", warmup_steps=4000, steps=10**5)
        assert ours == pytest.approx(rate, rel=1e-5)


def test_clipping_bounds_the_global_norm():
    chain = make_optimizer(dataclasses.replace(OPTIM, name="sgd", clip=1.0))
    gradient = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    direction, _ = chain.update(gradient, chain.init(gradient), gradient)
    np.testing.assert_allclose(optax.tree.norm(direction), 1.0, rtol=1e-6)
    np.testing.assert_allclose(direction["b"] / direction["a"], 4 / 3, rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_updates_equal_optax(name):
    optim = dataclasses.replace(OPTIM, name=name, weight_decay=0.1 if name == "adamw" else 0.0)
    theirs = {"adam": optax.adam(0.01), "adamw": optax.adamw(0.01, weight_decay=0.1), "sgd": optax.sgd(0.01)}[name]
    ours = make_optimizer(optim)
    params = other = jax.random.normal(jax.random.key(0), (7,))
    state, other_state = ours.init(params), theirs.init(other)
    for step in range(10):
        gradient = jnp.sin(params + step)
        direction, state = ours.update(gradient, state, params)
        params = params - 0.01 * direction
        change, other_state = theirs.update(jnp.sin(other + step), other_state, other)
        other = optax.apply_updates(other, change)
    np.testing.assert_allclose(params, other, rtol=1e-5, atol=1e-7)


def test_the_temperature_changes_once_after_its_step():
    optim = dataclasses.replace(OPTIM, temperature=2.0, temperature_after=0.1, temperature_step=3)
    steps = [float(temperature(jnp.int32(step), optim)) for step in range(5)]
    assert steps == pytest.approx([2.0, 2.0, 2.0, 0.1, 0.1])
    assert float(temperature(10**6, dataclasses.replace(optim, temperature_step=0))) == 2.0
