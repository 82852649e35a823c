"""What theory says of scores and weights: curves beside what is measured."""

import jax
import jax.numpy as jnp


def entropy_of_variance(variance: jax.Array, keys: int) -> jax.Array:
    """Entropy in nats of a softmax over `keys` scores of a small variance: log n - (n - 1) variance / (2 n).

    The error is of second order in the variance (Hong & Lee 2025).
    """
    return jnp.log(keys) - (keys - 1) * variance / (2 * keys)


def least_entropy(length: jax.Array, keys: int) -> jax.Array:
    """The least entropy in nats that scores of one row can have whose vector is at most so long (Zhai et al. 2023).

    Theorem 3.1 there: log(1 + (T - 1) b) + s sqrt(T (T - 1)) b / (1 + (T - 1) b), with b = exp(-s sqrt(T / (T - 1))).
    It is attained by `sharpest_scores`.
    """
    others = keys - 1
    decay = jnp.exp(-length * jnp.sqrt(keys / others))
    return jnp.log1p(others * decay) + length * jnp.sqrt(float(keys * others)) * decay / (1 + others * decay)


def sharpest_scores(length: float, keys: int) -> jax.Array:
    """The scores [k] of that length with the least entropy: one high, all others equal, mean 0."""
    others = keys - 1
    low = -length / jnp.sqrt(float(keys * others))
    return jnp.full((keys,), low).at[0].set(length * jnp.sqrt(others / keys))


def weight_bounds(spread: jax.Array, keys: int) -> tuple[jax.Array, jax.Array]:
    """No weight is outside [exp(-spread) / n, exp(spread) / n], spread = highest - lowest score (Velickovic 2024)."""
    return jnp.exp(-spread) / keys, jnp.exp(spread) / keys
