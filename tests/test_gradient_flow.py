"""Gradients through time: products of Jacobians, their bound, the direct path of an LSTM."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.cells import CELLS, make_cell
from model.gradient_flow import flow, gate_inputs, rescaled, sigma_max, spectral_norm, start, step, step_jacobian

EACH_CELL = pytest.mark.parametrize("cell", sorted(CELLS))
WIDTH, INPUTS, LENGTH, SENTENCES = 5, 7, 11, 3


@pytest.fixture(autouse=True)
def float64():
    """All in float64."""
    with jax.enable_x64(True):
        yield


def normals(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def drawn(cell, width=WIDTH, inputs=INPUTS, scale=0.7):
    """Parameters of a cell, every entry drawn, biases too."""
    module = make_cell(cell, width, "scaled", "float32")
    carry = module.initialize_carry(jax.random.key(0), (width,))
    params = module.init(jax.random.key(0), carry, jnp.zeros(inputs, jnp.float32))["params"]
    leaves, shape = jax.tree.flatten(params)
    return jax.tree.unflatten(shape, [scale * normals(*leaf.shape, seed=i) for i, leaf in enumerate(leaves)])


def with_biases(params, **biases):
    """Parameters of which nothing but some biases is left: gates that no input or state moves."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {**zeros, **{name: {**zeros[name], "bias": zeros[name]["bias"] + bias} for name, bias in biases.items()}}


def unrolled(cell, params, input_sm, added_si=None):
    """The state at the end, where `added_si` is added to the state before each step."""

    def forwards(state_i, here):
        input_m, added_i = here
        return step(cell, params, state_i + added_i, input_m), None

    first_i = start(cell, params)
    added_si = jnp.zeros((len(input_sm), len(first_i))) if added_si is None else added_si
    return jax.lax.scan(forwards, first_i, (input_sm, added_si))[0]


def norms(cell, params, input_bsm, length_b=None):
    lengths = jnp.full(len(input_bsm), input_bsm.shape[1]) if length_b is None else jnp.asarray(length_b)
    return np.exp(np.asarray(flow(cell, params, input_bsm, lengths).log_norm_bd))


@EACH_CELL
def test_the_norm_at_each_distance_is_that_of_the_whole_unrolled_sequence(cell):
    params, input_bsm = drawn(cell), normals(SENTENCES, LENGTH, INPUTS)
    length_b = [LENGTH, 7, 1]
    found_bd = norms(cell, params, input_bsm, length_b)
    for found_d, input_sm, length in zip(found_bd, input_bsm, length_b, strict=True):
        added_si = jnp.zeros((length, len(start(cell, params))))
        whole_isj = jax.jacobian(unrolled, argnums=3)(cell, params, input_sm[:length], added_si)
        for distance in range(1, length + 1):
            expected = np.linalg.norm(whole_isj[:, length - distance], 2)
            assert found_d[distance - 1] == pytest.approx(expected, rel=1e-6)
        assert np.isnan(found_d[length:]).all()


@EACH_CELL
def test_a_step_is_that_of_the_cell_and_padding_counts_nowhere(cell):
    params, input_bsm = drawn(cell), normals(SENTENCES, LENGTH, INPUTS)
    module = CELLS[cell](features=WIDTH)
    carry = module.initialize_carry(jax.random.key(0), (WIDTH,))
    for input_m in input_bsm[0]:
        carry, _ = module.apply({"params": params}, carry, input_m)
    state_i = unrolled(cell, params, input_bsm[0])
    np.testing.assert_allclose(state_i, jnp.concatenate(jax.tree.leaves(carry)), rtol=1e-12)
    length_b = jnp.asarray([LENGTH - 2, 3, 1])
    other_bsm = jnp.where((np.arange(LENGTH)[None] < np.asarray(length_b)[:, None])[..., None], input_bsm, 1e3)
    for one, other in zip(
        *(jax.tree.leaves(flow(cell, params, x, length_b)) for x in (input_bsm, other_bsm)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_tanh_cell_has_the_jacobian_of_the_papers():
    params, input_sm = drawn("tanh"), normals(LENGTH, INPUTS)
    matrix_ij = params["h"]["kernel"].T
    state_i, product_ij = start("tanh", params), np.eye(WIDTH)
    for input_m in input_sm:
        jacobian_ij = step_jacobian("tanh", params, state_i, input_m)
        state_i = step("tanh", params, state_i, input_m)
        np.testing.assert_allclose(jacobian_ij, jnp.diag(1 - state_i**2) @ matrix_ij, rtol=1e-12, atol=1e-15)
        product_ij = np.asarray(jacobian_ij) @ product_ij
    found = norms("tanh", params, input_sm[None])[0, -1]
    assert found == pytest.approx(np.linalg.norm(product_ij, 2), rel=1e-6)


@pytest.mark.parametrize("sigma", [0.5, 0.9, 1.0, 1.1, 1.5])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_no_norm_of_a_tanh_cell_is_above_its_bound(sigma, size):
    params = rescaled(drawn("tanh"), sigma)
    assert float(sigma_max(params)) == pytest.approx(sigma, rel=1e-6)
    assert np.linalg.norm(params["h"]["kernel"], 2) == pytest.approx(sigma, rel=1e-6)
    bound_d = sigma ** (1.0 + np.arange(LENGTH))
    assert (norms("tanh", params, size * normals(SENTENCES, LENGTH, INPUTS)) <= bound_d * (1 + 1e-5)).all()


def orthogonal(sigma, width=13):
    params = jax.tree.map(jnp.asarray, drawn("tanh", width))
    matrix, _ = np.linalg.qr(normals(width, width, seed=17))
    return {
        "h": {"kernel": sigma * jnp.asarray(matrix)},
        "i": jax.tree.map(jnp.zeros_like, params["i"]) | {"kernel": params["i"]["kernel"]},
    }


def test_an_orthogonal_matrix_above_1_with_tiny_inputs_grows_and_below_1_vanishes():
    tiny_bsm = 1e-6 * normals(SENTENCES, LENGTH, INPUTS)
    distance_d = 1.0 + np.arange(LENGTH)
    for sigma in (0.5, 1.0, 1.5):
        np.testing.assert_allclose(
            norms("tanh", orthogonal(sigma), tiny_bsm), np.tile(sigma**distance_d, (SENTENCES, 1)), rtol=1e-4
        )
    # Inputs that are not tiny: tanh' takes away more than sigma_max gives.
    large_bd = norms("tanh", orthogonal(1.5), 3.0 * normals(SENTENCES, LENGTH, INPUTS))
    assert (large_bd[:, -1] < 0.1 * 1.5**LENGTH).all()


@pytest.mark.parametrize(("shut", "kept"), [(1e3, 1.0), (2.0, 1 / (1 + np.exp(-2.0)))])
def test_the_cell_path_of_an_lstm_keeps_what_its_forget_gates_say(shut, kept):
    """Forget gates of bias `shut`, input and output gates shut."""
    params = with_biases(drawn("lstm"), hf=shut, hi=-1e3, ho=-1e3)
    found = flow("lstm", params, normals(SENTENCES, LENGTH, INPUTS), jnp.full(SENTENCES, LENGTH))
    expected_d = kept ** (1.0 + np.arange(LENGTH))
    np.testing.assert_allclose(np.exp(found.log_norm_bd), np.tile(expected_d, (SENTENCES, 1)), rtol=1e-9)
    assert found.log_forget_bdm is not None
    forget_bdm = np.exp(found.log_forget_bdm)
    np.testing.assert_allclose(forget_bdm, np.broadcast_to(expected_d[:, None], forget_bdm.shape), rtol=1e-9)
    if kept == 1.0:
        np.testing.assert_array_equal(forget_bdm, 1.0)
    np.testing.assert_allclose(found.gates["f"], np.full((SENTENCES, LENGTH, WIDTH), kept), rtol=1e-9)
    np.testing.assert_array_equal(found.gates["i"], 0.0)


def test_a_gru_that_updates_nothing_is_the_identity():
    params = with_biases(drawn("gru"), iz=1e3)
    state_i, input_m = normals(WIDTH, seed=2), normals(INPUTS, seed=3)
    np.testing.assert_array_equal(step("gru", params, state_i, input_m), state_i)
    np.testing.assert_array_equal(step_jacobian("gru", params, state_i, input_m), np.eye(WIDTH))
    found_bd = norms("gru", params, normals(SENTENCES, LENGTH, INPUTS))
    np.testing.assert_allclose(found_bd, np.ones_like(found_bd), rtol=1e-12)


def test_the_direct_path_is_the_derivative_of_c_by_c_with_h_held():
    params, input_bsm = drawn("lstm"), normals(1, LENGTH, INPUTS)
    found = flow("lstm", params, input_bsm, jnp.asarray([LENGTH]))
    assert found.log_forget_bdm is not None
    state_i, path_sm = start("lstm", params), []
    for input_m in input_bsm[0]:
        c_by_c = step_jacobian("lstm", params, state_i, input_m)[:WIDTH, :WIDTH]
        np.testing.assert_array_equal(c_by_c, jnp.diag(jnp.diag(c_by_c)))  # a Hadamard product: no matrix
        path_sm.append(np.diag(c_by_c))
        state_i = step("lstm", params, state_i, input_m)
    np.testing.assert_allclose(found.gates["f"][0], np.stack(path_sm), rtol=1e-12)
    products_dm = np.cumprod(np.stack(path_sm[::-1]), axis=0)
    np.testing.assert_allclose(np.exp(found.log_forget_bdm[0]), products_dm, rtol=1e-9)


def test_gates_make_the_state_that_the_cell_makes():
    state_i, input_m = normals(2 * WIDTH, seed=2), normals(INPUTS, seed=3)
    params = drawn("lstm")
    c_m, h_m = state_i[:WIDTH], state_i[WIDTH:]
    gate = {name: jax.nn.sigmoid(at_m) for name, at_m in gate_inputs("lstm", params, state_i, input_m).items()}
    new_m = jnp.tanh(input_m @ params["ig"]["kernel"] + h_m @ params["hg"]["kernel"] + params["hg"]["bias"])
    next_m = gate["f"] * c_m + gate["i"] * new_m
    expected_i = jnp.concatenate([next_m, gate["o"] * jnp.tanh(next_m)])
    np.testing.assert_allclose(step("lstm", params, state_i, input_m), expected_i, rtol=1e-12)
    params = drawn("gru")
    gate = {name: jax.nn.sigmoid(at_m) for name, at_m in gate_inputs("gru", params, h_m, input_m).items()}
    from_h_m = h_m @ params["hn"]["kernel"] + params["hn"]["bias"]
    new_m = jnp.tanh(input_m @ params["in"]["kernel"] + params["in"]["bias"] + gate["r"] * from_h_m)
    expected_m = (1 - gate["z"]) * new_m + gate["z"] * h_m
    np.testing.assert_allclose(step("gru", params, h_m, input_m), expected_m, rtol=1e-12)


def test_a_spectral_norm_is_the_largest_singular_value():
    decaying_ij = normals(13, 13) * jnp.exp(-3.0 * jnp.arange(13.0))[None]
    close_ij = jnp.diag(1 - 1e-4 * jnp.arange(13.0))
    for matrix_ij in (normals(13, 13), decaying_ij, close_ij, jnp.eye(13), 1e-9 * normals(13, 13)):
        assert float(spectral_norm(matrix_ij)) == pytest.approx(np.linalg.norm(matrix_ij, 2), rel=1e-6)
    assert float(spectral_norm(jnp.zeros((13, 13)))) == 0.0


def test_a_product_may_be_smaller_than_any_float32():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rescaled(drawn("tanh"), 0.01))
    found_bd = flow("tanh", params, jnp.zeros((1, 53, INPUTS), jnp.float32), jnp.asarray([53])).log_norm_bd
    assert found_bd.dtype == jnp.float32
    assert -np.inf < float(found_bd[0, -1]) < 53 * np.log(0.0101)
