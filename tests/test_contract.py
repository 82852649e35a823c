"""What holds for every architecture: padding, causality, cached decoding, dropout, types, pairs of seeds, lanes."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import model
from model.attention import ATTENTIONS
from model.scores import SCORES
from tests.architectures import (
    EACH,
    EACH_OF_FEW,
    EACH_WITH_SCORES,
    FEW_WITH_SCORES,
    INPUT,
    RECURRENT,
    SOURCE,
    build,
    initial,
    make,
    moved,
    run,
    start,
    step,
)

EACH_KIND = pytest.mark.parametrize("variant", ["transformer_pre", "gru_luong"])


def total(variables, module, source, tokens):
    return jnp.sum(run(module, variables, source, tokens) ** 2)


gradient_of_total = jax.jit(jax.grad(total), static_argnames="module")


@EACH_KIND
def test_refusals_name_the_field(variant):
    with pytest.raises(ValueError, match="source_vocab 17 and target_vocab 19"):
        build(variant, tie_embeddings=True, target_vocab=19)
    for field in ("num_heads", "d_k", "d_v", "d_model", "num_layers", "source_vocab", "target_vocab"):
        with pytest.raises(ValueError, match=f"{field} must be at least 1, not 0"):
            build(variant, **{field: 0})
    for field, names in (("score", ", ".join(sorted(SCORES))), ("dtype", "bfloat16, float16, float32")):
        with pytest.raises(ValueError, match=f"{field} must be one of {names}, not 'nonsense'"):
            build(variant, **{field: "nonsense"})
    with pytest.raises(ValueError, match=r"dropout must be at least 0 and below 1, not 1\.0"):
        build(variant, dropout=1.0)


def test_an_unknown_architecture_is_refused_with_those_there_are():
    for known in (model.build, model.fields_of):
        with pytest.raises(ValueError, match="unknown architecture 'lstn'; choose from recurrent, transformer"):
            known("lstn")


@FEW_WITH_SCORES
def test_no_logit_depends_on_a_later_token(variant, score):
    module, variables = make(variant, score=score)
    encoded = module.apply(variables, jnp.asarray(SOURCE[:1]), deterministic=True, method="encode")
    table = variables["params"]["target_embedding_nm"]

    def logits(rows_tm):
        # Token t of the input is row t of the table, so that a gradient by the rows is one by the tokens.
        params = {**variables["params"], "target_embedding_nm": table.at[4:9].set(rows_tm)}
        tokens = jnp.arange(4, 9)[None]
        return module.apply({"params": params}, encoded, tokens, deterministic=True, method="decode")[0]

    jacobian = np.abs(np.asarray(jax.jit(jax.jacrev(logits))(table[4:9]))).sum((1, 3))
    np.testing.assert_array_equal(jacobian * (1 - np.tril(np.ones((5, 5)))), 0.0)
    assert (np.diag(jacobian) > 0).all()
    assert (jacobian[-1] > 0).all()


@pytest.mark.slow
@EACH_WITH_SCORES
def test_padding_of_either_side_changes_nothing(variant, score):
    module, variables = make(variant, score=score)
    row, tokens = SOURCE[:1, :4], INPUT[:1]
    alone = run(module, variables, row, tokens)
    # Every width is compiled anew, and recurrent variants are many: they have the loud padding and the next test.
    for extra in (1, 2) if "transformer" in variant else ():
        wider, longer = (np.pad(side, ((0, 0), (0, extra))) for side in (row, tokens))
        np.testing.assert_allclose(run(module, variables, wider, longer)[:, :5], alone, atol=1e-5)
    params = dict(variables["params"])
    for table in ("source_embedding_nm", "target_embedding_nm"):
        params[table] = params[table].at[0].set(1e3)
    loud = run(module, {"params": params}, np.pad(row, ((0, 0), (0, 8))), np.pad(tokens, ((0, 0), (0, 3))))
    np.testing.assert_allclose(loud[:, :5], alone, atol=1e-5)
    gradient = gradient_of_total(variables, module, SOURCE, INPUT[:, :4])["params"]
    np.testing.assert_array_equal(gradient["source_embedding_nm"][0], 0.0)
    np.testing.assert_array_equal(gradient["target_embedding_nm"][0], 0.0)
    assert np.abs(gradient["source_embedding_nm"][2]).min() > 0


@EACH
def test_a_sentence_alone_gives_what_it_gives_in_a_batch(variant):
    module, variables = make(variant)
    together = run(module, variables)
    for row in (0, 2):  # of different lengths, on both sides
        source, tokens = (side[row][side[row] != 0][None] for side in (SOURCE, INPUT))
        alone = run(module, variables, source, tokens)[0]
        np.testing.assert_allclose(together[row, : len(alone)], alone, atol=1e-5)


@EACH
def test_attention_to_padding_is_exactly_zero(variant):
    module, variables = make(variant)
    _, state = run(module, variables, mutable=("attention",))
    padding = {"source": SOURCE == 0, "target": np.zeros_like(INPUT, bool)}
    assert len(jax.tree.leaves(state)) == 7 * len(module.places)
    for place in module.places:
        (seen,) = functools.reduce(operator.getitem, place.path, state["attention"])["seen"]
        queries, keys = ATTENTIONS[place.attention]
        assert seen.weight_bhqk.shape == (3, 2, padding[queries].shape[1], padding[keys].shape[1])
        np.testing.assert_array_equal(np.where(padding[keys][:, None, None], seen.weight_bhqk, 0.0), 0.0)
        np.testing.assert_allclose(seen.weight_bhqk.sum(-1), 1.0, atol=1e-6)


@pytest.mark.slow
@FEW_WITH_SCORES
def test_an_empty_source_leaves_the_gradient_of_the_rest_alone(variant, score):
    module, variables = make(variant, score=score)
    source = np.array([[5, 6, 7, 2], [0, 0, 0, 0]], np.int32)

    def loss(params, source, tokens, share):
        logits = run(module, {"params": params}, source, tokens)
        return jnp.sum(jnp.mean(jax.nn.log_softmax(logits)[..., 5], -1) * share)

    gradient = jax.jit(jax.grad(loss))
    both = gradient(variables["params"], source, INPUT[:2], jnp.array([1.0, 0.0]))
    alone = gradient(variables["params"], source[:1], INPUT[:1], jnp.array([1.0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5), both, alone)
    full = gradient(variables["params"], source, INPUT[:2], jnp.array([1.0, 1.0]))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(full))
    np.testing.assert_array_equal(full["source_embedding_nm"][0], 0.0)


@EACH
def test_an_empty_source_is_the_same_however_wide_it_is(variant):
    module, variables = make(variant)
    narrow, wide = (run(module, variables, np.zeros((1, width), np.int32), INPUT[:1]) for width in (1, 6))
    assert np.isfinite(narrow).all()
    np.testing.assert_allclose(narrow, wide, atol=1e-5)


@pytest.mark.parametrize(
    ("variant", "score", "max_length"),
    [(f"transformer_{norm}", score, 64 if norm == "pre" else 5) for norm in ("pre", "post") for score in sorted(SCORES)]
    + [(name, None, 64) for name in RECURRENT],
)
def test_cached_steps_equal_the_full_pass(variant, score, max_length):
    module, variables = make(variant, score=score, num_layers=2 if "transformer" in variant else None)
    variables = moved(variables)
    for source, tokens in ((SOURCE, INPUT), (SOURCE[::-1], INPUT[::-1])):
        full = run(module, variables, source, tokens)
        cache = start(module, variables, source, max_length)
        for t in range(tokens.shape[1]):
            logits, cache = step(module, variables, cache, tokens[:, t])
            np.testing.assert_allclose(logits, full[:, t], atol=1e-5)
        again, _ = step(module, variables, start(module, variables, source, max_length), tokens[:, 1])
        assert np.abs(again - full[:, 1]).max() > 1e-3


@EACH
def test_ids_outside_the_vocabulary_are_not_silent(variant):
    module, variables = make(variant)
    for bad in (17, 99, -1, -18):
        for side in (0, 1):
            pair = [SOURCE.copy(), INPUT.copy()]
            pair[side][1, 2] = bad
            logits = run(module, variables, *pair)
            assert np.isnan(logits[1]).all()
            assert np.isfinite(logits[::2]).all()


@EACH
def test_an_id_outside_the_vocabulary_spoils_no_other_sentence_of_a_step(variant):
    module, variables = make(variant)
    logits, _ = step(module, variables, start(module, variables, SOURCE), np.array([1, 17, 4], np.int32))
    assert np.isnan(logits[1]).all()
    assert np.isfinite(logits[::2]).all()


@EACH_OF_FEW
def test_dropout(variant):
    module, variables = make(variant, dropout=0.5)
    plain, _ = make(variant, dropout=0.0)
    np.testing.assert_array_equal(run(module, variables), run(plain, variables))

    def noisy(step):
        return run(module, variables, deterministic=False, rngs={"dropout": jax.random.key(step)})

    np.testing.assert_array_equal(noisy(1), noisy(1))
    assert np.abs(noisy(1) - noisy(2)).max() > 1e-2
    # Rate 0 asks for no key, even where dropout is on.
    np.testing.assert_array_equal(run(plain, variables, deterministic=False), run(plain, variables))


@pytest.mark.slow
@FEW_WITH_SCORES
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sixteen_bit(variant, score, dtype):
    wide, variables = make(variant, score=score, d_model=32, d_k=16)
    narrow, same = make(variant, score=score, d_model=32, d_k=16, dtype=dtype)
    jax.tree.map(np.testing.assert_array_equal, variables, same)

    def loss(variables, module):
        logits = run(module, variables)
        assert logits.dtype == jnp.float32
        return -jnp.mean(jax.nn.log_softmax(logits)[..., 5])

    expected = float(loss(variables, wide))
    result, gradient = jax.jit(jax.value_and_grad(lambda variables: loss(variables, narrow)))(variables)
    assert float(result) != expected
    assert float(result) == pytest.approx(expected, rel=0.02)
    assert all(leaf.dtype == jnp.float32 and np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("variant", ["transformer_pre", "tanh_bahdanau"])
def test_seeds_are_paired_across_scores(variant):
    trees = [
        initial(build(variant, score=name, bidirectional=False))["params"] for name in ("additive", "dot", "scaled_dot")
    ]
    jax.tree.map(np.testing.assert_array_equal, trees[1], trees[2])
    flat = [dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in trees]
    for path, leaf in flat[1].items():
        np.testing.assert_array_equal(flat[0][path], leaf)
    extra = {jax.tree_util.keystr(path).split("'")[-4] for path in set(flat[0]) - set(flat[1])}
    assert extra == {"score_function"}


@EACH_KIND
def test_tied_embeddings_are_one_matrix_in_three_places(variant):
    tied, variables = make(variant, tie_embeddings=True)
    params = dict(variables["params"])
    matrix = params.pop("embedding_nm")
    assert [leaf.shape for leaf in jax.tree.leaves(variables["params"]) if 17 in leaf.shape] == [(17, 7)]
    apart = params | {"source_embedding_nm": matrix, "target_embedding_nm": matrix, "output_mn": matrix.T}
    untied, _ = make(variant)
    np.testing.assert_allclose(run(tied, variables), run(untied, {"params": apart}), atol=1e-6)


@pytest.mark.slow
@FEW_WITH_SCORES
def test_lanes_by_vmap_and_by_map_equal_the_run_alone(variant, score):
    module, _ = make(variant, score=score)
    lanes = [make(variant, seed=seed, score=score)[1] for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lanes)

    def loss(variables):
        return jnp.mean(run(module, variables) ** 2)

    value_and_grad = jax.value_and_grad(loss)
    together = jax.jit(jax.vmap(value_and_grad))(stacked)
    one_by_one = jax.jit(lambda stacked: jax.lax.map(value_and_grad, stacked))(stacked)
    single = jax.jit(value_and_grad)
    for lane, variables in enumerate(lanes):
        alone = single(variables)
        for many in (together, one_by_one):
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a[lane], b, rtol=1e-4, atol=1e-5), many, alone)  # noqa: B023
