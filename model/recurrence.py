"""Recurrent cells over sequences that are known beforehand: the function of Flax's cells at the speed of products.

A cell adds what it makes of its input, z = W_i x + b_i, and of its state, s = W_h h + b_h; only s has to wait for the
step before. So z of all steps is one product outside the loop, and the gradient of W_h one product after the loop.
Inputs that are rows of a table with fewer rows than there are steps are projected before they are looked up. An update
takes a third to a half less time (docs/performance.md). Arrays are time-major; Flax's cells hold the parameters, and
make single steps where a step has to wait for more than the state.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from model.products import project

Carry = Any  # the state of a cell: h [b, m], or (c, h) of an LSTM

# Of each cell the endings of its matrices' names in Flax, in the order in which they stand side by side here.
GATES = {"gru": ("r", "z", "n"), "lstm": ("i", "f", "g", "o"), "tanh": ("",)}


class Rows(NamedTuple):
    """Inputs [t, b, i] that are rows of table_ni: the index_tb-th, NaN for an index of -1."""

    table_ni: jax.Array
    index_tb: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """(t, b, i)."""
        return (*self.index_tb.shape, self.table_ni.shape[1])

    @property
    def dtype(self) -> Any:
        """Type of the numbers."""
        return self.table_ni.dtype

    @property
    def rows(self) -> jax.Array:
        """[t, b, i], looked up."""
        return self.table_ni.at[self.index_tb].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


class Weights(NamedTuple):
    """Parameters of a cell, its g / m gates side by side: of the input [i, g] and [g], of the state [m, g] and [g]."""

    input_ig: jax.Array
    input_bias_g: jax.Array
    state_mg: jax.Array
    state_bias_g: jax.Array


def hidden(carry: Carry) -> jax.Array:
    """The part of a state that others see: h."""
    return carry[-1] if isinstance(carry, tuple) else carry


def weights_of(rnn: str, params: Any, dtype: Any) -> Weights:
    """The parameters of a cell of Flax, an entry of GATES; a bias that it does without is 0."""

    def side(letter: str) -> tuple[jax.Array, jax.Array]:
        gates = [params[letter + gate] for gate in GATES[rnn]]
        biases = [gate["bias"] if "bias" in gate else jnp.zeros(gate["kernel"].shape[1]) for gate in gates]
        return (
            jnp.concatenate([gate["kernel"] for gate in gates], axis=1).astype(dtype),
            jnp.concatenate(biases).astype(dtype),
        )

    return Weights(*side("i"), *side("h"))


def projected(input_tbi: jax.Array | Rows, kernel_ig: jax.Array, bias_g: jax.Array) -> jax.Array:
    """[t, b, g]: inputs times a matrix, and a bias, in their type."""
    if isinstance(input_tbi, Rows):
        return Rows(projected(input_tbi.table_ni[None], kernel_ig, bias_g)[0], input_tbi.index_tb).rows
    return project(input_tbi, [kernel_ig])[0].astype(input_tbi.dtype) + bias_g[None, None]


def turn(rnn: str, carry: Carry, z_bg: jax.Array, s_bg: jax.Array) -> Carry:
    """The next state, given what a cell makes of its input and of its state."""
    if rnn == "tanh":
        return jnp.tanh(z_bg + s_bg)
    z, s = (jnp.split(x_bg, len(GATES[rnn]), axis=-1) for x_bg in (z_bg, s_bg))
    if rnn == "gru":
        reset, update = (jax.nn.sigmoid(z[gate] + s[gate]) for gate in (0, 1))
        return (1.0 - update) * jnp.tanh(z[2] + reset * s[2]) + update * carry
    into, forget, out = (jax.nn.sigmoid(z[gate] + s[gate]) for gate in (0, 1, 3))
    c_bm = forget * carry[0] + into * jnp.tanh(z[2] + s[2])
    return c_bm, out * jnp.tanh(c_bm)


def _loop(
    rnn: str, backwards: bool, state_mg: jax.Array, real_tb: jax.Array, first: Carry, z_tbg: jax.Array, s_tbg: jax.Array
) -> tuple[Carry, jax.Array]:
    """-> (last state, h_tbm). `s_tbg` is added to what a cell makes of its state."""

    def step(carry: Carry, here: tuple[jax.Array, ...]) -> tuple[Carry, jax.Array]:
        real_b, z_bg, s_bg = here
        product_bg = jnp.matmul(hidden(carry), state_mg, preferred_element_type=jnp.float32)
        after = turn(rnn, carry, z_bg, product_bg.astype(z_bg.dtype) + s_bg)
        carry = jax.tree.map(lambda new, old: jnp.where(real_b[:, None], new, old), after, carry)
        return carry, hidden(carry)

    return jax.lax.scan(step, first, (real_tb, z_tbg, s_tbg), reverse=backwards)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def over_time(
    rnn: str,
    backwards: bool,
    state_mg: jax.Array,
    state_bias_g: jax.Array,
    real_tb: jax.Array,
    first: Carry,
    z_tbg: jax.Array,
) -> tuple[Carry, jax.Array]:
    """All steps of a cell.

    Args:
      rnn: an entry of GATES.
      backwards: from the last step to the first.
      state_mg, state_bias_g: see Weights.
      real_tb: a step that is not real leaves the state as it is.
      first: the state before all steps.
      z_tbg: what the cell makes of its inputs.

    Returns:
      (the state after all steps, h_tbm after each).
    """
    s_tbg = jnp.broadcast_to(state_bias_g, z_tbg.shape)
    return _loop(rnn, backwards, state_mg, real_tb, first, z_tbg, s_tbg)


def _forward(rnn: str, backwards: bool, state_mg: jax.Array, state_bias_g: jax.Array, *rest: Any) -> tuple[Any, tuple]:
    real_tb, first, z_tbg = rest
    s_tbg = jnp.broadcast_to(state_bias_g, z_tbg.shape)
    out, derivative = jax.vjp(partial(_loop, rnn, backwards, state_mg, real_tb), first, z_tbg, s_tbg)
    return out, (derivative, hidden(first), out[1])


def _backward(rnn: str, backwards: bool, saved: tuple, grads: Any) -> tuple:
    derivative, first_bm, state_tbm = saved
    grad_first, grad_z_tbg, grad_s_tbg = derivative(grads)
    before_tbm = (
        jnp.concatenate([state_tbm[1:], first_bm[None]])
        if backwards
        else jnp.concatenate([first_bm[None], state_tbm[:-1]])
    )
    grad_mg = jnp.einsum("tbm,tbg->mg", before_tbm, grad_s_tbg, preferred_element_type=jnp.float32)
    grad_bias_g = jnp.sum(grad_s_tbg, (0, 1), dtype=jnp.float32)
    dtype = state_tbm.dtype
    return grad_mg.astype(dtype), grad_bias_g.astype(dtype), None, grad_first, grad_z_tbg


over_time.defvjp(_forward, _backward)
