"""What becomes of a gradient on its way back through a recurrent cell: products of exact Jacobians of its state.

From the state s_0 = 0 a cell makes s_t of s_(t-1) and the input x_t; the state of an LSTM is (c, h), side by side. With
J_t = d s_t / d s_(t-1), by automatic differentiation, a sentence of T tokens has at distance d

    d s_T / d s_(T-d) = J_T J_(T-1) ... J_(T-d+1).

Its spectral norm is the most that any gradient at the end can grow on its way back over d steps. Of a tanh cell
J_t = diag(1 - h_t^2) W, so the norm is at most (gamma sigma_max(W))^d, gamma = max tanh' = 1 (Pascanu et al. 2013):
sigma_max(W) < 1 is enough to make gradients vanish, and tanh' <= 1 alone is not. Of an LSTM, d c_t / d c_(t-1) with h
held is diag(f_t), f the forget gate (Gers et al. 2000): along this direct path the factor is the product of the f_t.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from model.cells import CELLS
from model.recurrence import hidden

SQUARINGS = 24
GATES = {"gru": ("r", "z"), "lstm": ("i", "f", "o"), "tanh": ()}
RECURRENT = ("h", "kernel")  # where the parameters of a tanh cell have W, transposed

Params = Any  # of one cell


class Flow(NamedTuple):
    """Of some sentences, each seen from its own last token. Index d of an axis d is distance d + 1.

    log_norm_bd: log of the spectral norm of d s_T / d s_(T-distance); -inf for a norm of 0.
    log_forget_bdm: log of the product of the last `distance` forget gates of each unit; None for a cell without.
    gates: by name, [b, s, m], each after the logistic function.
    NaN where a sentence has no such token.
    """

    log_norm_bd: jax.Array
    log_forget_bdm: jax.Array | None
    gates: dict[str, jax.Array]


def _width(params: Params) -> int:
    """Of the state h: all arrays of a cell end with it."""
    return jax.tree.leaves(params)[0].shape[-1]


def _carry(state_i: jax.Array, width: int) -> Any:
    """A flat state as the cell has it: h, or (c, h)."""
    parts = jnp.split(state_i, len(state_i) // width)
    return tuple(parts) if len(parts) > 1 else parts[0]


def start(cell: str, params: Params) -> jax.Array:
    """The flat state s_0 = 0 of an entry of CELLS."""
    width = _width(params)
    carry = CELLS[cell](features=width).initialize_carry(jax.random.key(0), (width,))
    return jnp.zeros(sum(part.size for part in jax.tree.leaves(carry)), jax.tree.leaves(params)[0].dtype)


def step(cell: str, params: Params, state_i: jax.Array, input_m: jax.Array) -> jax.Array:
    """The flat state after one more token."""
    width = _width(params)
    carry, _ = CELLS[cell](features=width).apply({"params": params}, _carry(state_i, width), input_m)
    return jnp.concatenate(jax.tree.leaves(carry))


def step_jacobian(cell: str, params: Params, state_i: jax.Array, input_m: jax.Array) -> jax.Array:
    """J_ij: d (entry i of the state after one more token) / d (entry j of the state before)."""
    return jax.jacfwd(step, argnums=2)(cell, params, state_i, input_m)


def gate_inputs(cell: str, params: Params, state_i: jax.Array, input_m: jax.Array) -> dict[str, jax.Array]:
    """What each gate of a cell applies the logistic function to, [m] by the name of the gate."""
    hidden_m = hidden(_carry(state_i, _width(params)))
    found = {}
    for gate in GATES[cell]:
        from_input, from_state = params[f"i{gate}"], params[f"h{gate}"]
        bias_m = sum(part["bias"] for part in (from_input, from_state) if "bias" in part)
        found[gate] = input_m @ from_input["kernel"] + hidden_m @ from_state["kernel"] + bias_m
    return found


def spectral_norm(matrix_ij: jax.Array) -> jax.Array:
    """The largest singular value, by products of matrices alone; never above it but by rounding.

    Of G = M^T M, with weights that are its eigenvalues to the power 2^SQUARINGS, the mean eigenvalue: below the largest
    by less than log(j) / 2^SQUARINGS of it. LAPACK's decompositions of many small matrices take a hundred times as long
    where its threads do not have the cores to themselves.
    """

    def square(_: int, power_ij: jax.Array) -> jax.Array:
        power_ij = power_ij @ power_ij
        return power_ij / jnp.trace(power_ij)

    gram_ij = matrix_ij.T @ matrix_ij
    total = jnp.trace(gram_ij)
    power_ij = jax.lax.fori_loop(0, SQUARINGS, square, gram_ij / jnp.where(total > 0, total, 1.0))
    return jnp.where(total > 0, jnp.sqrt(jnp.sum(gram_ij * power_ij)), 0.0)


def sigma_max(params: Params) -> jax.Array:
    """The largest singular value of the recurrent matrix of a tanh cell."""
    module, name = RECURRENT
    return spectral_norm(params[module][name])


def rescaled(params: Params, sigma: float) -> Params:
    """The parameters of a tanh cell with the recurrent matrix multiplied so that `sigma_max` is sigma."""
    module, name = RECURRENT
    matrix = params[module][name] * (sigma / sigma_max(params))
    return {**params, module: {**params[module], name: matrix}}


def _by_distance(value_s: jax.Array, length: jax.Array) -> jax.Array:
    """Values of positions in the order of their distance from the last of `length` tokens; NaN before the first."""
    place_d = length - 1 - jnp.arange(len(value_s))
    real = jnp.expand_dims(place_d >= 0, range(1, value_s.ndim))
    return jnp.where(real, value_s[jnp.maximum(place_d, 0)], jnp.nan)


def _of_sentence(cell: str, params: Params, input_sm: jax.Array, length: jax.Array) -> Flow:
    """`flow` of one sentence, without the axis b."""

    def forwards(state_i: jax.Array, input_m: jax.Array) -> tuple[jax.Array, jax.Array]:
        return step(cell, params, state_i, input_m), state_i

    def backwards(after: tuple[jax.Array, jax.Array], here: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        """The product so far is `scaled_ij`, of Frobenius norm 1, times exp(log_scale): it can neither end in 0 nor
        in infinity.
        """
        (scaled_ij, log_scale), (before_i, input_m, real) = after, here
        product_ij = scaled_ij @ step_jacobian(cell, params, before_i, input_m)
        size = jnp.linalg.norm(product_ij)
        product_ij = product_ij / jnp.where(size > 0, size, 1.0)
        log_size = log_scale + jnp.log(size)
        log_norm = log_size + jnp.log(spectral_norm(product_ij))
        return (jnp.where(real, product_ij, scaled_ij), jnp.where(real, log_size, log_scale)), log_norm

    first_i, real_s = start(cell, params), jnp.arange(len(input_sm)) < length
    _, before_si = jax.lax.scan(forwards, first_i, input_sm)
    nothing = jnp.eye(len(first_i), dtype=first_i.dtype), jnp.zeros((), first_i.dtype)
    _, log_norm_s = jax.lax.scan(backwards, nothing, (before_si, input_sm, real_s), reverse=True)
    inside = jax.vmap(partial(gate_inputs, cell, params))(before_si, input_sm)
    log_forget_dm = None
    if "f" in inside:
        log_sm = jnp.where(real_s[:, None], jax.nn.log_sigmoid(inside["f"]), 0.0)
        log_forget_dm = _by_distance(jnp.cumsum(log_sm[::-1], axis=0)[::-1], length)
    gates = {gate: jnp.where(real_s[:, None], jax.nn.sigmoid(at_sm), jnp.nan) for gate, at_sm in inside.items()}
    return Flow(_by_distance(log_norm_s, length), log_forget_dm, gates)


@partial(jax.jit, static_argnums=0)
def flow(cell: str, params: Params, input_bsm: jax.Array, length_b: jax.Array) -> Flow:
    """What becomes of gradients in an entry of CELLS on the way back through some sentences.

    Args:
      cell: name of the entry.
      params: of one cell, in whose type all is computed.
      input_bsm: what the cell is given; what stands after `length_b` tokens is not looked at.
      length_b: tokens of each sentence.
    """
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(lambda each: _of_sentence(cell, params, *each), (input_bsm, length_b))
