"""Recurrent cells over sequences that are known beforehand: the function of Flax's cells at the speed of products.

A cell adds what it makes of its input, z = W_i x + b_i, and of its state, s = W_h h + b_h; only s has to wait for the
step before. So z of all steps is one product outside the loop, and the gradient of W_h one product after the loop.
Derivatives of a step are spelt out: but for a product with W_h they are factors, made of all steps at once. Inputs that
are rows of a table with fewer rows than there are steps are projected before they are looked up. An update takes half
to six tenths of the time (docs/performance.md). Arrays are time-major; Flax's cells hold the parameters, and make
single steps where a step has to wait for more than the state.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from model.products import einsum, made, project

Carry = Any  # the state of a cell: h [b, m], or (c, h) of an LSTM


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
    """The parameters of a cell of Flax, an entry of STEPS; a bias that it does without is 0."""

    def side(letter: str) -> tuple[jax.Array, jax.Array]:
        gates = [params[letter + gate] for gate in STEPS[rnn].gates]
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


class Step(NamedTuple):
    """A step of a cell as a function of z and s, and that function's derivative.

    gates: endings of the names of its matrices in Flax, in the order in which they stand side by side here.
    turn: (state, z_bg, s_bg) -> the next state, and what the derivative needs besides the states.
    slopes: (states before, after, what was kept), of all steps at once -> what does not depend on gradients: for
      `pull`, and by what the gradient of z has to be multiplied to be that of s, None for 1.
    pull: (gradient of the next state, slopes of a step) -> gradient of z_bg, and of the state other than through s.
    """

    gates: tuple[str, ...]
    turn: Callable[[Carry, jax.Array, jax.Array], tuple[Carry, Any]]
    slopes: Callable[[Carry, Carry, Any], tuple[Any, jax.Array | None]]
    pull: Callable[[Carry, Any], tuple[jax.Array, Carry]]


def _side_by_side(*parts: jax.Array) -> jax.Array:
    return jnp.concatenate(parts, axis=-1)


def _sigmoid(x: jax.Array) -> jax.Array:
    return 0.5 + 0.5 * jnp.tanh(0.5 * x)


def _tanh_turn(_: jax.Array, z_bm: jax.Array, s_bm: jax.Array) -> tuple[jax.Array, None]:
    return jnp.tanh(z_bm + s_bm), None


def _tanh_slopes(_: jax.Array, after: jax.Array, __: None) -> tuple[jax.Array, None]:
    return 1.0 - after * after, None


def _tanh_pull(grad_bm: jax.Array, slope_bm: jax.Array) -> tuple[jax.Array, jax.Array]:
    return grad_bm * slope_bm, jnp.zeros_like(grad_bm)


def _gru_turn(h_bm: jax.Array, z_bg: jax.Array, s_bg: jax.Array) -> tuple[jax.Array, Any]:
    width = h_bm.shape[-1]
    # Made once: XLA would repeat it in each of the loops that use it, at up to three times the price of a step.
    open_bg = made(_sigmoid(z_bg[:, : 2 * width] + s_bg[:, : 2 * width]))
    reset, update = jnp.split(open_bg, 2, axis=-1)
    s_new = s_bg[:, 2 * width :]
    new = jnp.tanh(z_bg[:, 2 * width :] + reset * s_new)
    return (1.0 - update) * new + update * h_bm, (open_bg, new, s_new)


def _gru_slopes(before: jax.Array, _: jax.Array, kept: Any) -> tuple[Any, jax.Array]:
    open_, new, s_new = kept
    reset, update = jnp.split(open_, 2, axis=-1)
    of_new = (1.0 - update) * (1.0 - new * new)
    of_reset = of_new * s_new * reset * (1.0 - reset)
    of_update = (before - new) * update * (1.0 - update)
    ones = jnp.ones_like(reset)
    return (_side_by_side(of_reset, of_update, of_new), update), _side_by_side(ones, ones, reset)


def _gru_pull(grad_bm: jax.Array, slopes: Any) -> tuple[jax.Array, jax.Array]:
    slope_bg, update = slopes
    return slope_bg * _side_by_side(grad_bm, grad_bm, grad_bm), update * grad_bm


def _lstm_turn(carry: Carry, z_bg: jax.Array, s_bg: jax.Array) -> tuple[Carry, Any]:
    gate = jax.lax.broadcasted_iota(jnp.int32, z_bg.shape, 1) // carry[0].shape[-1]
    new = gate == 2
    x_bg = z_bg + s_bg
    tanh_bg = jnp.tanh(jnp.where(new, x_bg, 0.5 * x_bg))  # one loop makes all four
    open_bg = jnp.where(new, tanh_bg, 0.5 + 0.5 * tanh_bg)
    into, forget, new, out = jnp.split(open_bg, 4, axis=-1)
    c_bm = forget * carry[0] + into * new
    return (c_bm, out * jnp.tanh(c_bm)), open_bg


def _lstm_slopes(before: Carry, after: Carry, open_: jax.Array) -> tuple[Any, None]:
    into, forget, new, out = jnp.split(open_, 4, axis=-1)
    seen = jnp.tanh(after[0])
    of_c = (new * into * (1.0 - into), before[0] * forget * (1.0 - forget), into * (1.0 - new * new))
    return (_side_by_side(*of_c, seen * out * (1.0 - out)), out * (1.0 - seen * seen), forget), None


def _lstm_pull(grad: Carry, slopes: Any) -> tuple[jax.Array, Carry]:
    slope_bg, c_to_h, forget = slopes
    grad_c, grad_h = grad
    grad_c = grad_c + grad_h * c_to_h
    return slope_bg * _side_by_side(grad_c, grad_c, grad_c, grad_h), (grad_c * forget, jnp.zeros_like(grad_h))


# By the names of model/cells.py CELLS.
STEPS = {
    "gru": Step(("r", "z", "n"), _gru_turn, _gru_slopes, _gru_pull),
    "lstm": Step(("i", "f", "g", "o"), _lstm_turn, _lstm_slopes, _lstm_pull),
    "tanh": Step(("",), _tanh_turn, _tanh_slopes, _tanh_pull),
}


def _add_to_hidden(carry: Carry, x_bm: jax.Array) -> Carry:
    return (carry[0], carry[1] + x_bm) if isinstance(carry, tuple) else carry + x_bm


def _where(real_b: jax.Array, new: Carry, old: Carry) -> Carry:
    return jax.tree.map(lambda new, old: jnp.where(real_b[:, None], new, old), new, old)


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
      rnn: an entry of STEPS.
      backwards: from the last step to the first.
      state_mg, state_bias_g: see Weights.
      real_tb: a step that is not real leaves the state as it is.
      first: the state before all steps.
      z_tbg: what the cell makes of its inputs.

    Returns:
      (the state after all steps, h_tbm after each).
    """
    return _forward(rnn, backwards, state_mg, state_bias_g, real_tb, first, z_tbg)[0]


def _forward(rnn: str, backwards: bool, *arguments: Any) -> tuple[Any, tuple]:
    state_mg, state_bias_g, real_tb, first, z_tbg = arguments

    def step(carry: Carry, here: tuple[jax.Array, jax.Array]) -> tuple[Carry, Any]:
        real_b, z_bg = here
        s_bg = einsum("bm,mg->bg", hidden(carry), state_mg).astype(z_bg.dtype) + state_bias_g[None]
        after, kept = STEPS[rnn].turn(carry, z_bg, s_bg)
        carry = _where(real_b, after, carry)
        return carry, (carry, kept)

    last, (states, kept) = jax.lax.scan(step, first, (real_tb, z_tbg), reverse=backwards)
    return (last, hidden(states)), (state_mg, real_tb, first, states, kept)


def _backward(rnn: str, backwards: bool, saved: tuple, grads: Any) -> tuple:
    state_mg, real_tb, first, states, kept = saved
    grad_last, grad_tbm = grads

    def earlier(first: jax.Array, after: jax.Array) -> jax.Array:
        parts = (after[1:], first[None]) if backwards else (first[None], after[:-1])
        return jnp.concatenate(parts)

    before = jax.tree.map(earlier, first, states)
    slopes, ratio_tbg = made(STEPS[rnn].slopes(before, states, kept))
    turned_gm = made(state_mg.T)

    def step(grad: Carry, here: tuple) -> tuple[Carry, jax.Array]:
        real_b, grad_h, slopes, ratio_bg = here
        grad = _add_to_hidden(grad, grad_h)
        grad_z_bg, direct = STEPS[rnn].pull(grad, slopes)
        grad_z_bg = jnp.where(real_b[:, None], grad_z_bg, 0)
        grad_s_bg = grad_z_bg if ratio_bg is None else grad_z_bg * ratio_bg
        through_s = einsum("bg,gm->bm", grad_s_bg, turned_gm).astype(grad_h.dtype)
        return _add_to_hidden(_where(real_b, direct, grad), through_s), grad_z_bg

    grad_first, grad_z_tbg = jax.lax.scan(
        step, grad_last, (real_tb, grad_tbm, slopes, ratio_tbg), reverse=not backwards
    )
    grad_s_tbg = grad_z_tbg if ratio_tbg is None else grad_z_tbg * ratio_tbg
    turned_mi = made(jnp.swapaxes(hidden(before).reshape(-1, state_mg.shape[0]), 0, 1))
    grad_mg = einsum("mi,ig->mg", turned_mi, grad_s_tbg.reshape(-1, state_mg.shape[1]))
    grad_bias_g = jnp.sum(grad_s_tbg, (0, 1), dtype=jnp.float32)
    dtype = state_mg.dtype
    return grad_mg.astype(dtype), grad_bias_g.astype(dtype), None, grad_first, grad_z_tbg


over_time.defvjp(_forward, _backward)
