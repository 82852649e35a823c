"""Layers of an encoder are those of PyTorch: outputs, last states and gradients, with weights carried over."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.cells import CELLS, Layer, make_cell

torch = pytest.importorskip("torch", reason="PyTorch is in the environment of `make bench-setup` only")

INPUTS, WIDTH = 5, 7
LENGTHS = np.array([11, 3, 1, 7])  # not sorted
GATES = {"tanh": [("i", "h")], "gru": [("ir", "hr"), ("iz", "hz"), ("in", "hn")]}
GATES["lstm"] = [(f"i{gate}", f"h{gate}") for gate in "ifgo"]
THEIRS = {"tanh": "RNN", "gru": "GRU", "lstm": "LSTM"}


def as_theirs(cell, params):
    """The arrays of a cell in the order and shape of PyTorch's, which has two biases where a cell of ours has one."""
    sides = {"ih": [params[x] for x, _ in GATES[cell]], "hh": [params[h] for _, h in GATES[cell]]}
    arrays = {}
    for side, gates in sides.items():
        arrays[f"weight_{side}"] = np.concatenate([gate["kernel"] for gate in gates], 1).T
        arrays[f"bias_{side}"] = np.concatenate([gate.get("bias", np.zeros(WIDTH)) for gate in gates])
    return arrays


def held(cell, params):
    """1 where a cell of ours has the number at all, in the arrangement of `as_theirs`."""
    return as_theirs(cell, jax.tree.map(np.ones_like, params))


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_a_layer_equals_that_of_pytorch(cell, directions, record_property):
    rng = np.random.default_rng(0)

    def normals(*shape):
        return rng.normal(size=shape).astype(np.float32)

    state_bsi = normals(len(LENGTHS), LENGTHS.max(), INPUTS)
    layer = Layer(cell, tuple(make_cell(cell, WIDTH, "scaled", "float32") for _ in range(directions)))
    real_bs = np.arange(LENGTHS.max()) < LENGTHS[:, None]
    state_sbi = jnp.swapaxes(state_bsi, 0, 1)
    params = layer.init(jax.random.key(0), state_sbi, real_bs.T)["params"]
    params = jax.tree.map(lambda x: np.asarray(x) + 0.1 * normals(*x.shape), params)
    share_bsw = normals(len(LENGTHS), LENGTHS.max(), directions * WIDTH) * real_bs[..., None]
    parts = 2 if cell == "lstm" else 1
    share_pdbm = normals(parts, directions, len(LENGTHS), WIDTH)

    def ours(params):
        out_sbw, last = layer.apply({"params": params}, state_sbi, real_bs.T)
        out_bsw = jnp.swapaxes(out_sbw, 0, 1)
        last = [carry if cell == "lstm" else (carry,) for carry in last]
        last_pdbm = jnp.stack([jnp.stack(part) for part in zip(*last, strict=True)])
        return jnp.sum(out_bsw * share_bsw) + jnp.sum(last_pdbm * share_pdbm), (out_bsw * real_bs[..., None], last_pdbm)

    (_, (out_bsw, last_pdbm)), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(params)

    their_layer = getattr(torch.nn, THEIRS[cell])(INPUTS, WIDTH, batch_first=True, bidirectional=directions == 2)
    ends = ["_l0", "_l0_reverse"][:directions]
    for place, end in enumerate(ends):
        for name, array in as_theirs(cell, params[f"cells_{place}"]).items():
            getattr(their_layer, name + end).data = torch.tensor(array, dtype=torch.float32)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        torch.tensor(state_bsi), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
    )
    their_out, their_last = their_layer(packed)
    their_out, _ = torch.nn.utils.rnn.pad_packed_sequence(their_out, batch_first=True)
    their_last = torch.stack(their_last[::-1] if cell == "lstm" else [their_last])  # ours: c, then h
    loss = (their_out * torch.tensor(share_bsw)).sum() + (their_last * torch.tensor(share_pdbm)).sum()
    loss.backward()

    worst = {"outputs": [(out_bsw, their_out.detach())], "last states": [(last_pdbm, their_last.detach())]}
    worst["gradients"] = []
    for place, end in enumerate(ends):
        mask = held(cell, params[f"cells_{place}"])
        for name, array in as_theirs(cell, gradient[f"cells_{place}"]).items():
            worst["gradients"].append((array, getattr(their_layer, name + end).grad.numpy() * mask[name]))
    for what, pairs in worst.items():
        for one, other in pairs:
            np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5, err_msg=what)
        record_property(what, max(float(np.abs(np.asarray(one) - np.asarray(other)).max()) for one, other in pairs))
