"""Theory: known values, and that bounds bound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model import theory
from model.diagnostics import entropy


def sharpest_scores(length, keys):
    """The scores of that length with the least entropy: one high, all others equal, mean 0 (Zhai et al. 2023)."""
    others = keys - 1
    low = -length / np.sqrt(keys * others)
    return jnp.full((keys,), low).at[0].set(length * np.sqrt(others / keys))


@pytest.mark.parametrize(("length", "least"), [(0.5, 2.76207001), (2.0, 2.418708), (6.0, 0.21372292)])
def test_least_entropy_is_attained(length, least):
    score = sharpest_scores(length, 16)
    assert float(jnp.linalg.norm(score)) == pytest.approx(length, rel=1e-6)
    assert float(score.sum()) == pytest.approx(0.0, abs=1e-5)
    assert float(entropy(jax.nn.softmax(score))) == pytest.approx(least, abs=5e-6)  # scores rounded to float32
    assert float(theory.least_entropy(length, 16)) == pytest.approx(least, abs=1e-6)


def test_no_scores_are_sharper():
    score = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    score = 2.0 * score / np.linalg.norm(score, axis=-1, keepdims=True)
    assert float(entropy(jax.nn.softmax(score)).min()) >= float(theory.least_entropy(2.0, 16))


@pytest.mark.parametrize(("sigma", "measured", "formula"), [(0.1, 3.46089, 3.46089), (0.25, 3.43555, 3.43546)])
def test_entropy_of_scores_of_small_variance(sigma, measured, formula):
    assert float(theory.entropy_of_variance(sigma**2, 32)) == pytest.approx(formula, abs=1e-5)
    score = sigma * np.random.default_rng(0).normal(size=(40_000, 32)).astype(np.float32)
    assert float(entropy(jax.nn.softmax(score)).mean()) == pytest.approx(measured, abs=3e-4)


def test_weights_are_within_their_bounds():
    """exp(-spread) / n to exp(spread) / n, spread = highest - lowest score (Velickovic 2024)."""
    score = 3.0 * np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32)
    weight = np.asarray(jax.nn.softmax(score))
    spread = score.max(-1) - score.min(-1)
    low, high = np.exp(-spread) / 16, np.exp(spread) / 16
    assert (weight.min(-1) >= low).all()
    assert (weight.max(-1) <= high).all()
