"""Cells over whole sequences are Flax's cells step by step: states, and the gradient of all that goes in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from model.cells import CELLS, Layer, make_cell
from model.recurrence import STEPS, Rows, hidden, over_time

INPUTS, WIDTH, VOCABULARY = 5, 7, 9
LENGTHS = np.array([6, 3, 1, 0])
REAL_TB = np.arange(6)[:, None] < LENGTHS
TOKEN_TB = np.random.default_rng(1).integers(0, VOCABULARY, REAL_TB.shape)


def normals(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def stepped(cell, params, input_tbi, backwards):
    """The cell as Flax has it, called for one step after another; what is not real leaves the state as it is."""
    carry = cell.initialize_carry(jax.random.key(0), (len(LENGTHS), 1))
    state_tbm = [None] * len(input_tbi)
    for t in reversed(range(len(input_tbi))) if backwards else range(len(input_tbi)):
        after, _ = cell.apply({"params": params}, carry, input_tbi[t])
        carry = jax.tree.map(lambda new, old: jnp.where(REAL_TB[t][:, None], new, old), after, carry)  # noqa: B023
        state_tbm[t] = hidden(carry)
    return jnp.stack(state_tbm), carry


@pytest.mark.parametrize("looked_up", [False, True])
@pytest.mark.parametrize("rnn", sorted(CELLS))
def test_values_and_gradients_are_those_of_flax_step_by_step(rnn, looked_up):
    cells = tuple(make_cell(rnn, WIDTH, "scaled", "float32") for _ in range(2))
    layer = Layer(rnn, cells)
    table_ni = normals(VOCABULARY, INPUTS)
    shapes = jax.eval_shape(layer.init, jax.random.key(0), normals(*REAL_TB.shape, INPUTS), REAL_TB)["params"]
    leaves, tree = jax.tree.flatten(shapes)
    params = jax.tree.unflatten(tree, [0.5 * normals(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)])
    share_tbw = normals(*REAL_TB.shape, 2 * WIDTH, seed=2)
    share_bm = normals(len(LENGTHS), WIDTH, seed=3)

    def total(states_tbw, last):
        return jnp.sum(states_tbw * share_tbw) + sum(jnp.sum(part * share_bm) for part in jax.tree.leaves(last))

    def ours(params, table_ni):
        rows = Rows(table_ni, TOKEN_TB)
        return total(*layer.apply({"params": params}, rows if looked_up else rows.rows, REAL_TB))

    def theirs(params, table_ni):
        input_tbi = table_ni[TOKEN_TB]
        ways = [stepped(cells[way], params[f"cells_{way}"], input_tbi, bool(way)) for way in (0, 1)]
        states, last = zip(*ways, strict=True)
        return total(jnp.concatenate(states, axis=-1), last)

    found, expected = (jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(params, table_ni) for f in (ours, theirs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(found[1]))


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("rnn", sorted(CELLS))
def test_gradients_are_finite_differences_by_the_first_state_too(rnn, backwards):
    gates = len(STEPS[rnn].gates)
    matrix, bias = 0.3 * normals(WIDTH, gates * WIDTH), normals(gates * WIDTH, seed=1)
    z_tbg = normals(*REAL_TB.shape, gates * WIDTH, seed=2)
    h_bm, c_bm = (normals(len(LENGTHS), WIDTH, seed=seed) for seed in (3, 4))
    first = (c_bm, h_bm) if rnn == "lstm" else h_bm

    def function(state_mg, state_bias_g, first, z_tbg):
        return over_time(rnn, backwards, state_mg, state_bias_g, REAL_TB, first, z_tbg)

    check_grads(function, (matrix, bias, first, z_tbg), order=1, modes=["rev"], atol=0.01, rtol=0.01, eps=1e-2)


def test_a_row_of_minus_one_is_nan_and_no_other():
    rows = Rows(normals(3, 2), jnp.array([[0, -1]])).rows
    assert np.isnan(rows[0, 1]).all()
    assert not np.isnan(rows[0, 0]).any()
