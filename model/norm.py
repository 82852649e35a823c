"""Layer normalisation (Ba et al. 2016, equation 4), with its derivative in closed form.

Flax's own has the same values and parameters; differentiated automatically it takes five sums over each state where the
closed form takes four, and more passes besides: a twelfth of an update of the smaller models (docs/performance.md).
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

EPSILON = 1e-6


def _mean(x_btm: jax.Array) -> jax.Array:
    return jnp.mean(x_btm, axis=-1, keepdims=True)


@jax.custom_vjp
def normalise(state_btm: jax.Array, scale_m: jax.Array, bias_m: jax.Array) -> jax.Array:
    """(x - mean) / sqrt(variance + EPSILON) * scale + bias over the last axis; float32.

    The variance is taken in two passes: E[x^2] - E[x]^2 cancels in float32 when the mean is large.
    """
    return _normalise_forward(state_btm, scale_m, bias_m)[0]


def _normalise_forward(state_btm: jax.Array, scale_m: jax.Array, bias_m: jax.Array) -> tuple[jax.Array, tuple]:
    centred_btm = state_btm - _mean(state_btm)
    factor_bt1 = jax.lax.rsqrt(_mean(centred_btm * centred_btm) + EPSILON)
    unit_btm = centred_btm * factor_bt1
    return unit_btm * scale_m[None, None] + bias_m[None, None], (unit_btm, factor_bt1, scale_m)


def _normalise_backward(saved: tuple, grad_btm: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    unit_btm, factor_bt1, scale_m = saved
    inner_btm = grad_btm * scale_m[None, None]
    grad_state_btm = factor_bt1 * (inner_btm - _mean(inner_btm) - unit_btm * _mean(inner_btm * unit_btm))
    return grad_state_btm, jnp.sum(grad_btm * unit_btm, axis=(0, 1)), jnp.sum(grad_btm, axis=(0, 1))


normalise.defvjp(_normalise_forward, _normalise_backward)


class LayerNorm(nn.Module):
    """`normalise` with a trainable scale (starts at 1) and bias (at 0), as flax.linen.LayerNorm names them.

    Statistics are float32 whatever the state is; the result has the type `dtype`.
    """

    dtype: str

    @nn.compact
    def __call__(self, state_btm: jax.Array) -> jax.Array:
        """-> state_btm."""
        width = (state_btm.shape[-1],)
        scale_m = self.param("scale", nn.initializers.ones, width, jnp.float32)
        bias_m = self.param("bias", nn.initializers.zeros, width, jnp.float32)
        return normalise(state_btm.astype(jnp.float32), scale_m, bias_m).astype(self.dtype)
