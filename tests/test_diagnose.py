"""The diagnosis of a run: of which batch, at which parameters and temperature, and as which rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from small_run import batch, batches, lanes, make_run

from model.attention import ATTENTIONS
from model.diagnostics import of_attention
from train.diagnose import diagnose, diagnosis_rows, fixed_batch
from train.lanes import Lanes
from train.step import shift_right
from train.tasks import PAD, Batch, EvaluationSet


@functools.cache
def compiled(run, what):
    return jax.jit(functools.partial(diagnose, run) if what == "diagnose" else getattr(run, what))


def diagnosed(run, state, sentences, knobs):
    return compiled(run, "diagnose")(state, sentences, knobs)


def test_the_batch_is_the_first_sentences_in_the_sets_own_order():
    source = np.arange(1, 13, dtype=np.int32).reshape(6, 2)
    sorted_by_length = (Batch(source[:3], source[:3, :1]), Batch(np.pad(source[3:], ((0, 0), (0, 1))), source[3:]))
    fixed = EvaluationSet(sorted_by_length, np.array([4, 0, -1, 2, 1, 3]))
    found = fixed_batch(fixed, 4)
    assert found.source_bs.tolist() == [[3, 4, 0], [9, 10, 0], [7, 8, 0], [11, 12, 0]]
    assert found.target_bt.tolist() == [[3, 0], [9, 10], [7, 8], [11, 12]]
    more = fixed_batch(fixed, 7)
    assert more.source_bs.tolist() == [*found.source_bs.tolist(), [1, 2, 0], [PAD] * 3, [PAD] * 3]


def test_gradients_and_updates_are_those_that_training_would_make():
    run = make_run(optim={"warmup_steps": 0})
    knobs = run.knobs(3e-3, 0)
    state = run.init(knobs)
    sentences = batch(1, 0)
    found = diagnosed(run, state, sentences, knobs)
    after = compiled(run, "update")(state, sentences, knobs)
    moved = jax.tree.map(lambda old, new: old - new, state.params, after.params)
    total = sum(float(group["update_norm"]) ** 2 for group in found.groups.values()) ** 0.5
    assert total == pytest.approx(float(optax.tree.norm(moved)), rel=1e-4)
    query = moved["encoder_0"]["attention"]["query"]
    assert float(found.groups["encoder_0/attention/query"]["update_norm"]) == pytest.approx(
        float(optax.tree.norm(query)), rel=1e-4
    )
    grads, _, _ = run.gradient(state.params, sentences, run.module, jax.random.key(0))
    gradient = sum(float(group["gradient_norm"]) ** 2 for group in found.groups.values()) ** 0.5
    assert gradient == pytest.approx(float(optax.tree.norm(grads)), rel=1e-4)


def test_no_program_decomposes_matrices():
    """LAPACK waits in XLA's own threads for these very threads: two devices at once can wait for ever (jax 0.9.2)."""
    programs = Lanes(make_run(), lanes((1e-3, 0), (1e-3, 1)), jax.devices())._programs
    sentences = batch(1, 0)
    made = [programs.diagnose(sentences), programs.evaluate(sentences), programs.update(batches((0, 1), 0, 1))]
    for program in made:
        assert "lapack" not in program.as_text()


def test_rows_of_padding_and_padding_of_rows_do_not_count():
    run = make_run()
    state, knobs = run.init(run.knobs(0.0, 0)), run.knobs(0.0, 0)
    sentences = batch(1, 0)
    wide = Batch(*(np.pad(side, ((0, 3), (0, 2)), constant_values=PAD) for side in sentences))
    narrow, padded = (diagnosed(run, state, each, knobs).attentions for each in (sentences, wide))
    assert narrow.keys() == ATTENTIONS.keys()
    for kind, numbers in narrow.items():
        for name, value in numbers.items():
            np.testing.assert_allclose(padded[kind][name], value, rtol=1e-4, atol=1e-6, err_msg=f"{kind} {name}")


def test_every_attention_has_its_own_numbers():
    """Those that are alike are one loop of the program."""
    run = make_run(num_layers=2)
    state, knobs = run.init(run.knobs(0.0, 0)), run.knobs(0.0, 0)
    for sentences in (batch(1, 0), Batch(batch(1, 0).source_bs, np.pad(batch(1, 0).target_bt, ((0, 0), (0, 2))))):
        found = diagnosed(run, state, sentences, knobs).attentions
        real = {"source": jnp.asarray(sentences.source_bs) != PAD, "target": jnp.asarray(sentences.target_bt) != PAD}
        _, sown = run.module.apply(
            {"params": state.params},
            sentences.source_bs,
            shift_right(jnp.asarray(sentences.target_bt)),
            deterministic=True,
            mutable=["attention"],
        )
        for module, name, kind in (
            ("encoder", "attention", "encoder_self"),
            ("decoder", "self_attention", "decoder_self"),
            ("decoder", "source_attention", "cross"),
        ):
            queries, keys = ATTENTIONS[kind]
            for layer in range(2):
                (seen,) = sown["attention"][f"{module}_{layer}"][name]["seen"]
                for quantity, value in of_attention(seen, real[queries], queries == keys).items():
                    of_place = found[kind][quantity][layer]
                    np.testing.assert_allclose(of_place, value, rtol=1e-4, atol=1e-6, err_msg=f"{kind} {quantity}")


def test_the_diagonal_is_told_apart_in_self_attention_only():
    run = make_run(num_layers=2, num_heads=3)
    found = diagnosed(run, run.init(run.knobs(0.0, 0)), batch(1, 0), run.knobs(0.0, 0)).attentions
    for kind, numbers in found.items():
        assert numbers["raw_diagonal_mean"].shape == (2, 3)
        assert np.isnan(numbers["raw_diagonal_mean"]).all() == (kind == "cross")
        assert np.isfinite(numbers["entropy"]).all()


def test_a_change_of_temperature_shows_in_the_update_after_it_and_in_what_is_evaluated_then():
    changes = {"temperature": 1.0, "temperature_after": 0.25, "temperature_step": 2}
    hot, cold, sharper = make_run(), make_run(optim=changes), make_run(optim={"temperature": 0.25})
    knobs, sentences = hot.knobs(1e-3, 0), batch(1, 0)
    state = hot.init(knobs)

    def effective(run, step):
        found = diagnosed(run, state._replace(step=jnp.int32(step)), sentences, knobs)
        return float(found.attentions["encoder_self"]["effective_variance"][0, 0])

    def loss(run, step):
        return float(compiled(run, "evaluate")(state.params, jnp.int32(step), sentences, knobs)[0].sums.loss)

    def trained_loss(run, step):
        after = compiled(run, "update")(state._replace(step=jnp.int32(step)), sentences, knobs)
        return float(after.train.loss)

    # After two updates the temperature of the second still holds; the third is the first with the other.
    for at, what in ((2, effective), (2, loss), (1, trained_loss)):
        assert what(cold, at) == what(hot, at)
    assert effective(cold, 3) == pytest.approx(16 * effective(hot, 3), rel=1e-4)
    assert loss(cold, 3) == pytest.approx(loss(sharper, 3), rel=1e-6) != loss(hot, 3)
    assert trained_loss(cold, 2) == pytest.approx(trained_loss(sharper, 2), rel=1e-6) != trained_loss(hot, 2)


def test_lanes_give_what_each_run_gives_alone_as_rows_in_six_digits():
    run = make_run(num_layers=2)
    group = Lanes(run, lanes((1e-3, 0), (1e-2, 0), (1e-3, 1)), jax.devices())
    found = group.diagnose(group.init(), batch(1, 0))
    for lane, (rate, seed) in enumerate(((1e-3, 0), (1e-2, 0), (1e-3, 1))):
        knobs = run.knobs(rate, seed)
        alone = jax.tree.map(lambda x: x[None], diagnosed(run, run.init(knobs), batch(1, 0), knobs))
        rows, expected = diagnosis_rows(found, lane), diagnosis_rows(alone, 0)
        heads = [(row["attention"], row["layer"], row["head"]) for row in rows if row["group"] is None]
        assert heads == [(kind, layer, 0) for kind in ATTENTIONS for layer in range(2)]
        for row, one in zip(rows, expected, strict=True):
            assert row.keys() == one.keys()
            for name, value in row.items():
                if isinstance(value, float):
                    assert value == pytest.approx(one[name], rel=1e-3, abs=1e-6, nan_ok=True), name
                    assert np.isnan(value) or value == float(f"{value:.6g}")
                else:
                    assert value == one[name]
    assert {row["group"] for row in rows} > {"encoder_1/attention/query", "source_embedding_nm", None}


def test_a_diagnosis_leaves_the_state_as_it_is():
    run = make_run()
    group = Lanes(run, lanes((1e-3, 0), (1e-3, 1)), jax.devices())
    state = group.init()
    before = group.to_host(state)
    group.diagnose(state, batch(1, 0))
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(group.to_host(state)), strict=True):
        np.testing.assert_array_equal(old, new)
