"""Recurrent cells, and a layer of them over a sequence, in one direction or both."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.recurrence import Carry, Rows, over_time, projected, weights_of

FORGET_BIAS = 1.0
UNIFORM = 0.04  # largest initial value of embeddings and cells in Britz et al. 2017, section 3.1


def _remembering(variables: dict[str, Any]) -> dict[str, Any]:
    """The initial parameters of an LSTM cell with FORGET_BIAS for the bias of the forget gate.

    Flax does this to what it makes, more than once, and not to what it is given.
    """
    if "params" not in variables or "hf" not in variables["params"]:  # nothing is initialised yet
        return variables
    params = variables["params"]
    forget = {**params["hf"], "bias": jnp.full_like(params["hf"]["bias"], FORGET_BIAS)}
    return {**variables, "params": {**params, "hf": forget}}


# Flax's cell has one initialiser for the biases of all gates.
RememberingLSTMCell = nn.map_variables(
    nn.OptimizedLSTMCell, "params", trans_in_fn=lambda variables: variables, trans_out_fn=_remembering, init=True
)

# tanh: Elman 1990. gru: Cho et al. 2014, but with the reset after the product with the state, as cuDNN and PyTorch have
# it. lstm: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000, whose bias starts at 1 (Jozefowicz
# et al. 2015).
CELLS: dict[str, Callable[..., nn.RNNCellBase]] = {
    "gru": nn.GRUCell,
    "lstm": RememberingLSTMCell,
    "tanh": nn.SimpleCell,
}


def _uniform(key_init: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32, **_: Any) -> jax.Array:
    return jax.random.uniform(key_init, shape, dtype, -UNIFORM, UNIFORM)


# Of the matrices of a cell: by name, those for its input and for its state; biases start at 0.
INITIALS: dict[str, dict[str, Callable[..., jax.Array]]] = {
    "scaled": {
        "kernel_init": nn.initializers.lecun_normal(),
        "recurrent_kernel_init": nn.initializers.orthogonal(),
    },
    "uniform": {"kernel_init": _uniform, "recurrent_kernel_init": _uniform},
}


def make_cell(cell: str, width: int, initial: str, dtype: str) -> nn.RNNCellBase:
    """An entry of CELLS, of a width, with initial values of INITIALS; its states are of the type `dtype` from 0 on."""
    return CELLS[cell](
        features=width, dtype=dtype, carry_init=lambda _, shape, __: jnp.zeros(shape, dtype), **INITIALS[initial]
    )


def run_cell(
    rnn: str,
    cell: nn.RNNCellBase,
    input_tbi: jax.Array | Rows,
    real_tb: jax.Array,
    first: Carry,
    fixed_bi: jax.Array | None = None,
    *,
    backwards: bool = False,
) -> tuple[Carry, jax.Array]:
    """What Flax's cell, an entry of CELLS, does over time -> (the state after all steps, h_tbm after each).

    Args:
      rnn: name of the entry.
      cell: bound to its parameters.
      input_tbi, real_tb, first, backwards: see `over_time`.
      fixed_bi: stands after the input of every step.
    """
    if cell.is_initializing():
        one_bi = jnp.zeros((real_tb.shape[1], input_tbi.shape[-1]), input_tbi.dtype)
        cell(first, one_bi if fixed_bi is None else jnp.concatenate([one_bi, fixed_bi], axis=-1))
    weights = weights_of(rnn, cell.variables["params"], input_tbi.dtype)
    kernel_ig, fixed_kernel_ig = jnp.split(weights.input_ig, [input_tbi.shape[-1]])
    z_tbg = projected(input_tbi, kernel_ig, weights.input_bias_g)
    if fixed_bi is not None:
        z_tbg = z_tbg + projected(fixed_bi[None], fixed_kernel_ig, jnp.zeros_like(weights.input_bias_g))
    return over_time(rnn, backwards, weights.state_mg, weights.state_bias_g, real_tb, first, z_tbg)


class Layer(nn.Module):
    """A layer of an encoder. `cells`: one forwards, or one forwards and one backwards (Schuster & Paliwal 1997)."""

    rnn: str
    cells: tuple[nn.RNNCellBase, ...]

    @nn.compact
    def __call__(self, input_sbi: jax.Array | Rows, real_sb: jax.Array) -> tuple[jax.Array, tuple[Carry, ...]]:
        """-> states of the directions side by side, [s, b, w], and of each the last: after the last real token, or the
        first.

        The direction backwards begins at the last real token, so that nothing depends on padding. Of a sentence without
        real tokens the last state is the one that it starts from, zeros.
        """
        states_sbm, last = [], []
        for cell, backwards in zip(self.cells, (False, True), strict=False):
            first = cell.initialize_carry(jax.random.key(0), (real_sb.shape[1], 1))
            carry, state_sbm = run_cell(self.rnn, cell, input_sbi, real_sb, first, backwards=backwards)
            states_sbm.append(state_sbm)
            last.append(carry)
        return jnp.concatenate(states_sbm, axis=-1), tuple(last)
