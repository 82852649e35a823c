"""Position codes: the 2017 paper's formula, at any width and any position."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.positions import POSITIONS
from tests import reference


@pytest.mark.parametrize(
    ("d_model", "expected"),
    [
        (4, [0.841471, 0.540302, 0.0099998, 0.99995]),
        (5, [0.841471, 0.540302, 0.0251162, 0.9996845, 0.0006310]),
        (2, [0.841471, 0.540302]),
        (1, [0.841471]),
    ],
)
def test_known_values_at_position_one(d_model, expected):
    np.testing.assert_allclose(POSITIONS["sinusoidal"](jnp.array([1]), d_model)[0], expected, atol=5e-7)


@pytest.mark.parametrize("d_model", [1, 2, 3, 7, 64])
def test_equals_the_reference(d_model):
    positions = [0, 1, 2, 63, 64, 65, 997]
    code = POSITIONS["sinusoidal"](jnp.array(positions), d_model)
    expected = np.array([reference.sinusoid(p, d_model) for p in positions])
    np.testing.assert_allclose(code, expected, atol=1e-4)
    np.testing.assert_array_equal(code[0], np.arange(d_model) % 2)


def test_shift_is_a_rotation():
    d_model, shift = 14, 5
    code = np.asarray(POSITIONS["sinusoidal"](jnp.arange(23), d_model)).reshape(23, -1, 2)
    omega = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    cos, sin = np.cos(shift * omega), np.sin(shift * omega)
    rotation = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], -2)
    np.testing.assert_allclose(np.einsum("iab,pib->pia", rotation, code[:-shift]), code[shift:], atol=1e-5)
    np.testing.assert_allclose((code**2).sum((1, 2)), d_model / 2, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_one_position_equals_its_row_of_many(name):
    many = POSITIONS[name](jnp.arange(100), 7)
    one = jax.jit(lambda position: POSITIONS[name](position[None], 7))(jnp.int32(64))
    np.testing.assert_allclose(one[0], many[64], atol=1e-5)
    assert many.dtype == jnp.float32


def test_no_position_repeats_and_none_is_zero():
    code = np.asarray(POSITIONS["sinusoidal"](jnp.arange(1000), 8))
    distance = np.abs(code[:, None] - code[None]).max(-1) + np.eye(1000)
    assert distance.min() > 1e-3
    assert not POSITIONS["none"](jnp.arange(3), 5).any()
