"""Recurrent cells, and a layer of them over a sequence, in one direction or both."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

Carry = Any  # the state of a cell: h [b, m], or (c, h) of an LSTM
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

# tanh: Elman 1990. gru: Cho et al. 2014. lstm: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000,
# whose bias starts at 1 (Jozefowicz et al. 2015).
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


def hidden(carry: Carry) -> jax.Array:
    """The part of a state that others see: h."""
    return carry[-1] if isinstance(carry, tuple) else carry


class Layer(nn.Module):
    """A layer of an encoder. `cells`: one forwards, or one forwards and one backwards (Schuster & Paliwal 1997)."""

    cells: tuple[nn.RNNCellBase, ...]

    @nn.compact
    def __call__(self, state_bsm: jax.Array, length_b: jax.Array) -> tuple[jax.Array, tuple[Carry, ...]]:
        """-> states of the directions side by side, and of each the last: after the last real token, or the first.

        The direction backwards begins at the last of the `length_b` real tokens, so that nothing depends on padding but
        the states at padding. Of a sentence without real tokens the last state is the one that it starts from, zeros.
        """
        states_bsm, last = [], []
        for cell, backwards in zip(self.cells, (False, True), strict=False):
            over_time = nn.RNN(cell, return_carry=True, reverse=backwards, keep_order=True)
            carry, out_bsm = over_time(state_bsm, seq_lengths=length_b)
            states_bsm.append(out_bsm)
            # The last state of 0 tokens would otherwise be looked up at place -1, after all of the padding.
            last.append(jax.tree.map(lambda x_bm: jnp.where(length_b[:, None] > 0, x_bm, 0.0), carry))
        return jnp.concatenate(states_bsm, axis=-1), tuple(last)
