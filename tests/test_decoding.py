"""Greedy decoding: independent of the batch, one EOS at most, and what happens when it never comes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import model
from model.decoding import greedy
from tests.test_transformer import FIELDS

PAD, BOS, EOS = 0, 1, 2
VOCAB = 11


def scripted(script_bt):
    """A step whose likeliest token is scripted; PAD and BOS score higher still, and must not be chosen."""

    def step(index, token_b):
        logits_bn = jax.nn.one_hot(jnp.asarray(script_bt)[:, index], VOCAB)
        return logits_bn.at[:, jnp.array([PAD, BOS])].set(7.0), index + 1

    return step


def decode(script_bt, max_length):
    script_bt = np.asarray(script_bt)
    return greedy(
        scripted(script_bt), jnp.int32(0), batch_size=len(script_bt), bos=BOS, eos=EOS, pad=PAD, max_length=max_length
    )


def test_ends_of_sentences():
    decoded = decode([[2, 5, 2, 6], [5, 6, 7, 8], [5, 6, 7, 2], [5, 2, 2, 2]], 4)
    np.testing.assert_array_equal(decoded.tokens_bt, [[2, 0, 0, 0], [5, 6, 7, 8], [5, 6, 7, 2], [5, 2, 0, 0]])
    np.testing.assert_array_equal(decoded.finished_b, [True, False, True, True])
    assert decoded.tokens_bt.dtype == jnp.int32


def test_one_token_at_most():
    decoded = decode([[2, 2], [5, 2]], 1)
    np.testing.assert_array_equal(decoded.tokens_bt, [[2], [5]])
    np.testing.assert_array_equal(decoded.finished_b, [True, False])


def recorded(logits_of):
    """A step that keeps the tokens it is given, in order, and the list they go to. `logits_of`: index -> logits_bn."""
    given = []

    def step(index, token_b):
        jax.debug.callback(lambda token_b: given.append(token_b.tolist()), token_b)
        return logits_of(index), index + 1

    return step, given


def test_stops_when_all_have_ended():
    step, given = recorded(lambda index: jax.nn.one_hot(jnp.full(3, EOS), VOCAB))
    greedy(step, jnp.int32(0), batch_size=3, bos=BOS, eos=EOS, pad=PAD, max_length=1000)
    jax.effects_barrier()
    assert given == [[BOS] * 3]


def test_is_given_bos_then_its_own_choice():
    step, given = recorded(lambda index: jax.nn.one_hot(jnp.array([4, 5]) + index, VOCAB))
    greedy(step, jnp.int32(0), batch_size=2, bos=BOS, eos=EOS, pad=PAD, max_length=3)
    jax.effects_barrier()
    assert given == [[1, 1], [4, 5], [5, 6]]


def translator_parts():
    """A Transformer with loud weights, so that tokens vary and EOS comes at different lengths."""
    transformer = model.build("transformer", **FIELDS | {"num_layers": 2})
    tokens = jnp.ones((1, 2), jnp.int32)
    variables = transformer.init(jax.random.key(5), tokens, tokens, deterministic=True)
    return transformer, jax.tree.map(lambda x: 2.0 * x if x.ndim > 1 else x, variables)


@pytest.fixture(scope="module")
def translator():
    transformer, variables = translator_parts()

    @jax.jit
    def translate(source_bs):
        encoded = transformer.apply(variables, source_bs, deterministic=True, method="encode")
        cache = transformer.apply(variables, encoded, 13, method="start")
        return greedy(
            lambda cache, token_b: transformer.apply(variables, cache, token_b, method="step"),
            cache,
            batch_size=source_bs.shape[0],
            bos=BOS,
            eos=EOS,
            pad=PAD,
            max_length=13,
        )

    return translate


def test_output_of_a_sentence_does_not_depend_on_its_batch(translator):
    rng = np.random.default_rng(5)
    source = np.zeros((10, 11), np.int32)
    for row in range(10):
        source[row, : row + 1] = [*rng.integers(4, 17, row), EOS]
    whole = np.asarray(translator(source).tokens_bt)
    assert len(np.unique(whole, axis=0)) > 5
    alone = np.concatenate([translator(source[row : row + 1]).tokens_bt for row in range(10)])
    np.testing.assert_array_equal(alone, whole)
    threes = np.concatenate([translator(source[row : row + 3]).tokens_bt for row in (0, 3, 6)])
    np.testing.assert_array_equal(threes, whole[:9])
    order = rng.permutation(10)
    np.testing.assert_array_equal(translator(source[order]).tokens_bt, whole[order])
    np.testing.assert_array_equal(translator(np.pad(source, ((0, 0), (0, 30)))).tokens_bt, whole)


def test_equals_decoding_without_a_cache(translator):
    source = np.array([[5, 9, 13, 2], [4, 2, 0, 0], [16, 7, 2, 0]], np.int32)
    decoded = translator(source)
    transformer, variables = translator_parts()
    inputs = np.concatenate([np.full((3, 1), BOS), np.asarray(decoded.tokens_bt)[:, :-1]], axis=1).astype(np.int32)
    logits = np.array(transformer.apply(variables, source, inputs, deterministic=True))
    logits[..., [PAD, BOS]] = -np.inf
    real = np.asarray(decoded.tokens_bt) != PAD
    np.testing.assert_array_equal(logits.argmax(-1)[real], np.asarray(decoded.tokens_bt)[real])


def test_rows_end_with_padding_after_one_eos(translator):
    rng = np.random.default_rng(6)
    decoded = translator(rng.integers(4, 17, (97, 5)).astype(np.int32))
    tokens, finished = np.asarray(decoded.tokens_bt), np.asarray(decoded.finished_b)
    assert 0 < finished.sum() < 97
    np.testing.assert_array_equal((tokens == EOS).sum(1), finished)
    after = np.cumsum(tokens == EOS, axis=1) - (tokens == EOS) > 0
    np.testing.assert_array_equal(tokens == PAD, after)
