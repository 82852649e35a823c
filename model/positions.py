"""What tells positions apart: POSITIONS.

An entry maps integer positions [t] and d_model to float32 codes [t, m], which are added to the embeddings. A code is a
function of the position itself, not a row of a table: there is no longest sequence, and decoding asks for one position.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


def none(position_t: jax.Array, d_model: int) -> jax.Array:
    """Zeros: attention then sees a set, not a sequence (only the causal mask orders the decoder)."""
    return jnp.zeros((position_t.shape[0], d_model), jnp.float32)


def sinusoidal(position_t: jax.Array, d_model: int) -> jax.Array:
    """sin(p / 10000^(2i/d_model)) in slot 2i, cos of the same angle in slot 2i+1 (Vaswani et al. 2017, section 3.5).

    An odd d_model ends on a sine. Angles are float32: at position p they are right to about p * 1e-7.
    """
    exponent_i = np.arange(0, d_model, 2) / d_model
    frequency_i = (10000.0**-exponent_i).astype(np.float32)
    angle_ti = position_t.astype(jnp.float32)[:, None] * frequency_i[None]
    pair_tic = jnp.stack([jnp.sin(angle_ti), jnp.cos(angle_ti)], axis=-1)
    return pair_tic.reshape(position_t.shape[0], -1)[:, :d_model]


POSITIONS: dict[str, Callable[[jax.Array, int], jax.Array]] = {"none": none, "sinusoidal": sinusoidal}
