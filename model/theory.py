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
    Attained by one high score and all others equal, of mean 0.
    """
    others = keys - 1
    decay = jnp.exp(-length * jnp.sqrt(keys / others))
    return jnp.log1p(others * decay) + length * jnp.sqrt(float(keys * others)) * decay / (1 + others * decay)
