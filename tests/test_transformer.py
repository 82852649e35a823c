"""What only the Transformer has: its slow reference, normalisation, positions, the end of its cache. Else see
test_contract.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from model.scores import SCORES
from tests import architectures, reference
from tests.architectures import FIELDS, INPUT, SOURCE, moved, run

EACH_SCORE = pytest.mark.parametrize("name", sorted(SCORES))
EACH_NORM = pytest.mark.parametrize("norm", ["pre", "post"])


def make(**fields):
    return architectures.make("transformer_pre", **fields)


@pytest.mark.slow
@EACH_NORM
@EACH_SCORE
def test_equals_the_reference(name, norm):
    fields = FIELDS | {"score": name, "norm": norm, "target_vocab": 19, "num_layers": 2}
    transformer, variables = make(**fields)
    variables = moved(variables)
    logits = run(transformer, variables)
    assert logits.shape == (3, 5, 19)
    for row in range(3):
        expected = reference.transformer(fields, variables["params"], SOURCE[row], INPUT[row])
        np.testing.assert_allclose(logits[row], expected, atol=2e-5)


def test_tied_embeddings_equal_the_reference_and_are_one_matrix():
    fields = FIELDS | {"tie_embeddings": True, "position": "none"}
    transformer, variables = make(**fields)
    variables = moved(variables)
    logits = run(transformer, variables)
    expected = reference.transformer(fields, variables["params"], SOURCE[1], INPUT[1])
    np.testing.assert_allclose(logits[1], expected, atol=2e-5)
    matrices = [leaf.shape for leaf in jax.tree.leaves(variables["params"]) if 17 in leaf.shape]
    assert matrices == [(17, 7)]


def test_refusals_name_the_field():
    with pytest.raises(ValueError, match="d_ff must be at least 1, not 0"):
        make(d_ff=0)
    for field, names in (("position", "none, sinusoidal"), ("norm", "post, pre")):
        with pytest.raises(ValueError, match=f"{field} must be one of {names}, not 'nonsense'"):
            make(**{field: "nonsense"})


def test_initial_values():
    _, variables = make(d_model=64, source_vocab=101, target_vocab=103)
    params = variables["params"]
    assert float(params["source_embedding_nm"].var()) * 64 == pytest.approx(1.0, rel=0.06)
    assert float(params["target_embedding_nm"].var()) * 64 == pytest.approx(1.0, rel=0.06)
    assert float(params["output_mn"].var()) * 64 == pytest.approx(1.0, rel=0.06)


def test_layer_norm_is_the_population_variance_in_two_passes():
    norm = nn.LayerNorm(use_fast_variance=False, use_bias=False, use_scale=False)
    expected = [1.73205, -0.57735, -0.57735, -0.57735]
    unit = jnp.array([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(norm.apply({}, unit), expected, atol=1e-4)
    transformer, variables = make(d_model=4, norm="post")
    residual = transformer.bind(variables).encoder[0].around_attention
    for shift in (0.0, 1e4):
        state = (unit + shift)[None, None]
        result = residual.leave(state, jnp.zeros_like(state), deterministic=True)
        np.testing.assert_allclose(result[0, 0], expected, atol=1e-4)
    zeros = jnp.zeros((1, 1, 4), jnp.float16)
    assert not np.asarray(residual.leave(zeros, zeros, deterministic=True)).any()


def test_a_step_past_the_end_of_the_cache_is_not_silent():
    transformer, variables = make()
    bound = transformer.bind(variables)
    cache = bound.start(bound.encode(jnp.asarray(SOURCE), deterministic=True), 2)
    finite = []
    for t in range(3):
        logits, cache = bound.step(cache, jnp.asarray(INPUT[:, t]))
        finite.append(bool(np.isfinite(logits).all()))
    assert finite == [True, True, False]
    assert np.isnan(logits).all()


def test_two_layers_do_not_share_a_dropout_mask():
    transformer, variables = make(dropout=0.5, d_model=101, num_layers=2)
    bound = transformer.bind(variables, rngs={"dropout": jax.random.key(0)})
    ones = jnp.ones((1, 1, 101))
    masks = [layer.around_attention.drop(ones, deterministic=False) for layer in bound.encoder]
    assert np.any(masks[0] != masks[1])


def test_dot_and_scaled_dot_of_width_one_are_bit_identical():
    logits = []
    for name in ("dot", "scaled_dot"):
        transformer, variables = make(score=name, d_k=1, num_heads=4)
        logits.append(jax.jit(lambda v, transformer=transformer: run(transformer, v))(variables))
    np.testing.assert_array_equal(*logits)


def test_without_positions_the_encoder_sees_a_set():
    order = np.array([3, 0, 2, 1])
    source = np.array([[5, 6, 7, 8]], np.int32)
    for position, same in (("none", True), ("sinusoidal", False)):
        transformer, variables = make(position=position)
        bound = transformer.bind(variables)
        straight = bound.encode(source, deterministic=True).state_bsm
        shuffled = bound.encode(source[:, order], deterministic=True).state_bsm
        assert np.allclose(straight[:, order], shuffled, atol=1e-5) == same
