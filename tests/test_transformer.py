"""The Transformer: the slow reference, causality and padding by gradient, cached decoding, dropout, types, lanes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import model
from model.scores import SCORES, Lengths, family
from tests import reference

FIELDS = {
    "source_vocab": 17,
    "target_vocab": 17,
    "d_model": 7,
    "num_heads": 2,
    "d_k": 3,
    "d_v": 5,
    "d_ff": 11,
    "num_layers": 1,
    "score": "scaled_dot",
    "position": "sinusoidal",
    "norm": "pre",
    "dropout": 0.0,
    "tie_embeddings": False,
    "dtype": "float32",
    "attention_bias": False,
    "pad": 0,
    "lengths": Lengths(5.0, 7.0),
}
SOURCE = np.array([[5, 6, 7, 2, 0, 0], [4, 9, 11, 12, 13, 2], [8, 2, 0, 0, 0, 0]], np.int32)
INPUT = np.array([[1, 5, 6, 7, 2], [1, 4, 4, 15, 16], [1, 10, 3, 2, 0]], np.int32)
EACH_SCORE = pytest.mark.parametrize("name", sorted(SCORES))
EACH_NORM = pytest.mark.parametrize("norm", ["pre", "post"])


@functools.cache
def make(seed=0, **fields):
    transformer = model.build("transformer", **FIELDS | fields)
    return transformer, transformer.init(jax.random.key(seed), SOURCE[:, :2], INPUT[:, :2], deterministic=True)


def moved(variables, seed=1):
    """Variables with noise on every leaf: initial zeros and ones would hide an unused bias or scale."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + jnp.asarray(0.1 * rng.normal(size=x.shape), x.dtype), variables)


def run(transformer, variables, source=SOURCE, tokens=INPUT, **options):
    options = {"deterministic": True} | options
    return transformer.apply(variables, jnp.asarray(source), jnp.asarray(tokens), **options)


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
    with pytest.raises(ValueError, match="source_vocab 17 and target_vocab 19"):
        make(tie_embeddings=True, target_vocab=19)
    for field in ("num_heads", "d_k", "d_v", "d_model", "d_ff", "num_layers", "source_vocab", "target_vocab"):
        with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
            make(**{field: 0})
    for field, names in (
        ("score", ", ".join(sorted(SCORES))),
        ("position", "none, sinusoidal"),
        ("norm", "post, pre"),
    ):
        with pytest.raises(ValueError, match=f"{field} must be one of {names}, not 'nonsense'"):
            make(**{field: "nonsense"})
    with pytest.raises(ValueError, match=r"dropout must be at least 0 and below 1, not 1\.0"):
        make(dropout=1.0)
    with pytest.raises(ValueError, match="unknown architecture 'lstn'; choose from transformer"):
        model.build("lstn")


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


@EACH_SCORE
def test_no_logit_depends_on_a_later_token(name):
    transformer, variables = make(score=name)
    bound = transformer.bind(variables)
    encoded = bound.encode(jnp.asarray(SOURCE[:1]), deterministic=True)
    table = variables["params"]["target_embedding_nm"]

    def logits(rows_tm):
        # Token t of the input is row t of the table, so that a gradient by the rows is one by the tokens.
        params = {**variables["params"], "target_embedding_nm": table.at[4:9].set(rows_tm)}
        return transformer.apply(
            {"params": params}, encoded, jnp.arange(4, 9)[None], deterministic=True, method="decode"
        )[0]

    jacobian = np.abs(np.asarray(jax.jacrev(logits)(table[4:9]))).sum((1, 3))
    np.testing.assert_array_equal(jacobian * (1 - np.tril(np.ones((5, 5)))), 0.0)
    assert (np.diag(jacobian) > 0).all()
    assert (jacobian[-1] > 0).all()


@pytest.mark.slow
@EACH_SCORE
def test_padding_of_either_side_changes_nothing(name):
    transformer, variables = make(score=name)
    row, tokens = SOURCE[:1, :4], INPUT[:1]
    alone = run(transformer, variables, row, tokens)
    for extra in (1, 2, 8):
        wider = np.pad(row, ((0, 0), (0, extra)))
        np.testing.assert_allclose(run(transformer, variables, wider, tokens), alone, atol=1e-5)
        longer = np.pad(tokens, ((0, 0), (0, extra)))
        np.testing.assert_allclose(run(transformer, variables, row, longer)[:, :5], alone, atol=1e-5)
    params = dict(variables["params"])
    for table in ("source_embedding_nm", "target_embedding_nm"):
        params[table] = params[table].at[0].set(1e3)
    loud = run(transformer, {"params": params}, np.pad(row, ((0, 0), (0, 8))), np.pad(tokens, ((0, 0), (0, 3))))
    np.testing.assert_allclose(loud[:, :5], alone, atol=1e-5)

    def total(params):
        return jnp.sum(run(transformer, {"params": params}, SOURCE, INPUT[:, :4]) ** 2)

    gradient = jax.jit(jax.grad(total))(variables["params"])
    np.testing.assert_array_equal(gradient["source_embedding_nm"][0], 0.0)
    np.testing.assert_array_equal(gradient["target_embedding_nm"][0], 0.0)
    assert np.abs(gradient["source_embedding_nm"][2]).min() > 0


def test_attention_to_padding_is_exactly_zero():
    transformer, variables = make()
    _, state = run(transformer, variables, mutable=["attention"])
    kept = state["attention"]
    for weight in (kept["encoder_0"]["attention"], kept["decoder_0"]["source_attention"]):
        weight_bhqk = weight["seen"][0].weight_bhqk
        np.testing.assert_array_equal(np.where((SOURCE == 0)[:, None, None], weight_bhqk, 0.0), 0.0)
        np.testing.assert_allclose(weight_bhqk.sum(-1), 1.0, atol=1e-6)


@pytest.mark.slow
@EACH_SCORE
def test_an_empty_source_leaves_the_gradient_of_the_rest_alone(name):
    transformer, variables = make(score=name)
    source = np.array([[5, 6, 7, 2], [0, 0, 0, 0]], np.int32)

    def loss(params, source, tokens, share):
        logits = run(transformer, {"params": params}, source, tokens)
        return jnp.sum(jnp.mean(jax.nn.log_softmax(logits)[..., 5], -1) * share)

    gradient = jax.jit(jax.grad(loss))
    both = gradient(variables["params"], source, INPUT[:2], jnp.array([1.0, 0.0]))
    alone = gradient(variables["params"], source[:1], INPUT[:1], jnp.array([1.0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5), both, alone)
    full = gradient(variables["params"], source, INPUT[:2], jnp.array([1.0, 1.0]))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(full))


@pytest.mark.parametrize(("norm", "max_length"), [("pre", 64), ("post", 5)])
@EACH_SCORE
def test_cached_steps_equal_the_full_pass(name, norm, max_length):
    transformer, variables = make(score=name, norm=norm, num_layers=2)
    variables = moved(variables)

    @jax.jit
    def start(source):
        encoded = transformer.apply(variables, source, deterministic=True, method="encode")
        return transformer.apply(variables, encoded, max_length, method="start")

    step = jax.jit(lambda cache, token_b: transformer.apply(variables, cache, token_b, method="step"))
    for source, tokens in ((SOURCE, INPUT), (SOURCE[::-1], INPUT[::-1])):
        full = run(transformer, variables, source, tokens)
        cache = start(source)
        for t in range(tokens.shape[1]):
            logits, cache = step(cache, tokens[:, t])
            np.testing.assert_allclose(logits, full[:, t], atol=1e-5)
        again, _ = step(start(source), tokens[:, 1])
        assert np.abs(again - full[:, 1]).max() > 1e-3


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


def test_ids_outside_the_vocabulary_are_not_silent():
    transformer, variables = make()
    for bad in (17, 99, -1, -18):
        tokens = INPUT.copy()
        tokens[1, 2] = bad
        logits = run(transformer, variables, SOURCE, tokens)
        assert np.isnan(logits[1]).all()
        assert np.isfinite(logits[::2]).all()


def test_dropout():
    transformer, variables = make(dropout=0.5)
    plain, _ = make(dropout=0.0)
    np.testing.assert_array_equal(run(transformer, variables), run(plain, variables))

    def noisy(step):
        return run(transformer, variables, deterministic=False, rngs={"dropout": jax.random.key(step)})

    np.testing.assert_array_equal(noisy(1), noisy(1))
    assert np.abs(noisy(1) - noisy(2)).max() > 1e-2
    # Rate 0 asks for no key, even where dropout is on.
    np.testing.assert_array_equal(run(plain, variables, deterministic=False), run(plain, variables))


def test_two_layers_do_not_share_a_dropout_mask():
    transformer, variables = make(dropout=0.5, d_model=101, num_layers=2)
    bound = transformer.bind(variables, rngs={"dropout": jax.random.key(0)})
    ones = jnp.ones((1, 1, 101))
    masks = [layer.around_attention.drop(ones, deterministic=False) for layer in bound.encoder]
    assert np.any(masks[0] != masks[1])


@pytest.mark.slow
@EACH_SCORE
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit(name, dtype):
    wide, variables = make(score=name, d_model=32, d_k=16)
    narrow, same = make(score=name, d_model=32, d_k=16, dtype=dtype)
    jax.tree.map(np.testing.assert_array_equal, variables, same)

    def loss(variables, transformer):
        logits = run(transformer, variables)
        assert logits.dtype == jnp.float32
        return -jnp.mean(jax.nn.log_softmax(logits)[..., 5])

    expected = float(loss(variables, wide))
    result, gradient = jax.jit(jax.value_and_grad(lambda variables: loss(variables, narrow)))(variables)
    assert float(result) != expected
    assert float(result) == pytest.approx(expected, rel=0.02)
    assert all(leaf.dtype == jnp.float32 and np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


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


def test_seeds_are_paired_across_scores():
    trees = [make(score=name)[1]["params"] for name in ("additive", "dot", "scaled_dot")]
    jax.tree.map(np.testing.assert_array_equal, trees[1], trees[2])
    flat = [dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in trees]
    for path, leaf in flat[1].items():
        np.testing.assert_array_equal(flat[0][path], leaf)
    extra = {jax.tree_util.keystr(path).split("'")[-4] for path in set(flat[0]) - set(flat[1])}
    assert extra == {"score_function"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({family(name) for name in SCORES}))
def test_lanes_by_vmap_and_by_map_equal_the_run_alone(name):
    transformer, _ = make(score=name)
    lanes = [make(seed=seed, score=name)[1] for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)

    def loss(variables):
        return jnp.mean(run(transformer, variables) ** 2)

    value_and_grad = jax.value_and_grad(loss)
    together = jax.jit(jax.vmap(value_and_grad))(stacked)
    one_by_one = jax.jit(lambda stacked: jax.lax.map(value_and_grad, stacked))(stacked)
    single = jax.jit(value_and_grad)
    for lane, variables in enumerate(lanes):
        alone = single(variables)
        for many in (together, one_by_one):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a[lane], b, rtol=1e-4, atol=1e-5), many, alone)  # noqa: B023
