import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.objective import Sums, cross_entropy

LOGITS = jnp.array([[[0.0, 0.0, 0.0, 0.0, jnp.log(4.0)]]])


def test_known_value_without_smoothing():
    objective, sums = cross_entropy(LOGITS, jnp.array([[4]]), pad=0, label_smoothing=0.0)
    assert float(objective) == pytest.approx(0.693147, abs=1e-6)
    assert float(sums.loss) == pytest.approx(0.693147, abs=1e-6)
    assert float(jnp.exp(sums.loss / sums.tokens)) == pytest.approx(2.0, abs=1e-5)


def test_smoothing_spreads_over_all_classes_and_leaves_the_reported_loss_alone():
    objective, sums = cross_entropy(LOGITS, jnp.array([[4]]), pad=0, label_smoothing=0.1)
    assert float(objective) == pytest.approx(0.804051, abs=1e-6)
    assert float(sums.loss) == pytest.approx(0.693147, abs=1e-6)


def test_smoothed_objective_has_its_known_minimum():
    target = jnp.array([[4]])
    best = jnp.log(jnp.array([[[0.02, 0.02, 0.02, 0.02, 0.92]]]))
    objective, gradient = jax.value_and_grad(
        lambda logits: cross_entropy(logits, target, pad=0, label_smoothing=0.1)[0]
    )(best)
    assert float(objective) == pytest.approx(0.389673, abs=1e-6)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_counts_nowhere_whatever_stands_there(smoothing):
    padded = jnp.concatenate([LOGITS, jnp.full((1, 1, 5), 1e30)], axis=1)
    alone = cross_entropy(LOGITS, jnp.array([[4]]), pad=0, label_smoothing=smoothing)
    both = cross_entropy(padded, jnp.array([[4, 0]]), pad=0, label_smoothing=smoothing)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(both), strict=True):
        assert float(one) == float(other)
    gradient = jax.grad(lambda x: cross_entropy(x, jnp.array([[4, 0]]), pad=0, label_smoothing=smoothing)[0])(padded)
    assert not np.any(gradient[0, 1])


def test_nothing_but_padding_is_zero_with_a_finite_gradient():
    target = jnp.zeros((3, 2), int)
    logits = jax.random.normal(jax.random.key(0), (3, 2, 7))
    objective, sums = cross_entropy(logits, target, pad=0, label_smoothing=0.1)
    assert (float(objective), float(sums.loss), int(sums.tokens), int(sums.correct)) == (0.0, 0.0, 0, 0)
    gradient = jax.grad(lambda x: cross_entropy(x, target, pad=0, label_smoothing=0.1)[0])(logits)
    assert not np.any(gradient)


def test_sums_equal_a_slow_loop():
    rng = np.random.default_rng(0)
    logits_btn, target_bt = rng.normal(size=(3, 5, 7)).astype(np.float32), rng.integers(0, 7, (3, 5))
    _, sums = cross_entropy(jnp.array(logits_btn), jnp.array(target_bt), pad=0, label_smoothing=0.3)
    loss = correct = tokens = 0
    for b in range(3):
        for t in range(5):
            if target_bt[b, t]:
                probabilities = np.exp(logits_btn[b, t]) / np.exp(logits_btn[b, t]).sum()
                loss -= np.log(probabilities[target_bt[b, t]])
                correct += probabilities.argmax() == target_bt[b, t]
                tokens += 1
    assert float(sums.loss) == pytest.approx(loss, rel=1e-5)
    assert (int(sums.correct), int(sums.tokens)) == (correct, tokens)


def test_sums_add_up():
    one = Sums(jnp.float32(1.5), jnp.int32(2), jnp.int32(3))
    assert [float(x) for x in one + one + Sums.zero()] == [3.0, 4.0, 6.0]


@pytest.mark.parametrize("other", [1.0, jnp.nan])
def test_a_class_that_is_not_above_all_others_is_no_right_answer(other):
    logits = jnp.array([[[0.0, other, 1.0], [0.0, 0.5, 1.0]]])
    _, sums = cross_entropy(logits, jnp.array([[2, 2]]), pad=0, label_smoothing=0.0)
    assert int(sums.correct) == 1
