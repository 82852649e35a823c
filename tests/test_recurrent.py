"""What only the recurrent model has: its slow reference, feeding, directions, bridges, initial values, what is seen."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from small_run import batch, make_run

from model.cells import UNIFORM, make_cell
from tests.architectures import INPUT, RECURRENT, SOURCE, build, drawn, initial, make, of, run, start, step
from tests.reference_recurrent import recurrent
from train.diagnose import diagnose, diagnosis_rows

ATTENDING = [name for name in RECURRENT if "none" not in name]
BLIND = [name for name in RECURRENT if "none" in name]
FEEDING = [name for name in RECURRENT if "feeding" in name]
SCANNED = [name for name in ATTENDING if "luong" not in name]


def encoded(module, variables, source):
    return module.apply(variables, jnp.asarray(source), deterministic=True, method="encode")


def with_rows(variables, table, first, rows_tm):
    """Variables with rows of an embedding replaced, so that a gradient by the rows is one by the tokens."""
    matrix = variables["params"][table].at[first : first + len(rows_tm)].set(rows_tm)
    return {"params": {**variables["params"], table: matrix}}


# Each variant, and a few with a field changed.
CHANGES = [{"initial": "uniform"}, {"tie_embeddings": True}, {"rnn": "tanh"}, {"attention_bias": True}]
CHANGED = [(variant, change) for change in CHANGES for variant in ("gru_luong", "tanh_bahdanau", "gru_none_state")]


@pytest.mark.parametrize(("variant", "change"), [*((variant, {}) for variant in RECURRENT), *CHANGED])
def test_equals_the_reference(variant, change):
    fields = of(variant) | change
    module, variables = make(variant, **change)
    logits = run(module, variables)
    assert logits.shape == (3, 5, 17)
    for row in range(3):
        expected = recurrent(fields, variables["params"], SOURCE[row], INPUT[row])
        np.testing.assert_allclose(logits[row], expected, atol=1e-5)


@pytest.mark.parametrize("variant", [*FEEDING, "lstm_luong", "gru_bahdanau", "gru_none_state", "tanh_none_input"])
def test_the_projected_state_enters_the_next_step_where_it_is_fed_and_only_there(variant):
    module, variables = make(variant)
    cache = start(module, variables, SOURCE)

    def second(combine):
        # The matrix that makes h~, in the first step alone.
        changed = {"params": {**variables["params"], "combine": {"kernel": combine}}}
        _, after = step(module, changed, cache, INPUT[:, 0])
        return jnp.sum(step(module, variables, after, INPUT[:, 1])[0] ** 2)

    gradient = np.asarray(jax.jit(jax.grad(second))(variables["params"]["combine"]["kernel"]))
    assert gradient.any() == (variant in FEEDING)
    assert (cache.fed_bm is not None) == (variant in FEEDING)
    if variant in FEEDING:

        def third(fed_bm):
            return step(module, variables, cache._replace(fed_bm=fed_bm), INPUT[:, 1])[0]

        assert not np.asarray(cache.fed_bm).any()
        jacobian = np.abs(np.asarray(jax.jit(jax.jacrev(third))(cache.fed_bm))).sum((1, 3))
        np.testing.assert_array_equal(jacobian * (1 - np.eye(3)), 0.0)
        assert (np.diag(jacobian) > 0).all()


@pytest.mark.parametrize("cell", ["tanh", "gru", "lstm"])
def test_a_direction_knows_nothing_of_the_tokens_that_it_has_not_met(cell):
    module, variables = make("gru_none_state", rnn=cell)
    rows_sm = variables["params"]["source_embedding_nm"][4:8]
    source = np.array([[4, 5, 6, 7, 0, 0]], np.int32)

    def states(rows_sm):
        return encoded(module, with_rows(variables, "source_embedding_nm", 4, rows_sm), source).state_bsw[0, :4]

    jacobian = np.abs(np.asarray(jax.jit(jax.jacrev(states))(rows_sm))).sum(-1)  # [s, w, s]
    for half, met in ((jacobian[:, :7], np.tril(np.ones((4, 4)))), (jacobian[:, 7:], np.triu(np.ones((4, 4))))):
        np.testing.assert_array_equal((half.sum(1) > 0) * 1.0, met)


def test_a_source_turned_round_swaps_the_directions():
    module, variables = make("lstm_luong")
    layer = variables["params"]["encoder_0"]
    variables = {"params": {**variables["params"], "encoder_0": {**layer, "cells_1": layer["cells_0"]}}}
    straight = encoded(module, variables, [[5, 6, 7, 2, 0, 0], [4, 9, 11, 12, 13, 2]])
    turned = encoded(module, variables, [[2, 7, 6, 5, 0, 0], [2, 13, 12, 11, 9, 4]])
    for row, length in ((0, 4), (1, 6)):
        expected = np.roll(turned.state_bsw[row, :length][::-1], 7, axis=-1)
        np.testing.assert_allclose(straight.state_bsw[row, :length], expected, atol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), straight.last, tuple(x[::-1] for x in turned.last)
    )


@pytest.mark.parametrize("variant", ["lstm_luong", "gru_luong"])
def test_last_states_do_not_depend_on_padding(variant):
    module, variables = make(variant)
    loud = with_rows(variables, "source_embedding_nm", 0, jnp.full((1, 7), 1e3))
    together = encoded(module, loud, SOURCE).last
    for row, length in enumerate((4, 6, 2)):
        alone = encoded(module, variables, SOURCE[row : row + 1, :length]).last
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[row], b[0], atol=1e-6), together, alone)  # noqa: B023


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("bridge", ["zero", "last", "learned"])
def test_the_decoder_starts_from_the_encoder_as_its_bridge_says(cell, bridge):
    module, variables = make("gru_luong", rnn=cell, bridge=bridge, bidirectional=True)
    seen = encoded(module, variables, SOURCE)

    def first(last):
        cache = module.apply(variables, seen._replace(last=last), 1, method="start")
        return jnp.sum(step(module, variables, cache, INPUT[:, 0])[0] ** 2)

    for forwards, backwards in jax.jit(jax.grad(first))(seen.last):  # of each layer
        assert all(np.asarray(leaf).any() == (bridge != "zero") for leaf in jax.tree.leaves(forwards))
        assert all(np.asarray(leaf).any() == (bridge == "learned") for leaf in jax.tree.leaves(backwards))
    cache = module.apply(variables, seen, 1, method="start")
    if bridge == "last":
        jax.tree.map(np.testing.assert_array_equal, cache.carries, tuple(forwards for forwards, _ in seen.last))
    if bridge == "zero":
        assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(cache.carries))
    assert any("bridge" in name for name in variables["params"]) == (bridge == "learned")


@pytest.mark.parametrize("variant", RECURRENT)
def test_decoders_without_attention_have_none_of_its_parameters(variant):
    module, variables = make(variant)
    assert ("attention" in variables["params"]) == (variant in ATTENDING) == bool(module.places)
    combine = variables["params"]["combine"]["kernel"]
    assert combine.shape == (7 * (1 + (variant in ATTENDING)), 7)
    cache = start(module, variables, SOURCE)
    assert (cache.source is None) == (variant in BLIND)
    assert (cache.fixed_bw is None) == ("none_input" not in variant)
    if variant in ATTENDING:
        assert [(place.attention, place.layer) for place in module.places] == [("cross", of(variant)["num_layers"] - 1)]


def test_an_lstm_remembers_at_the_start():
    cell = make_cell("lstm", 7, "scaled", "float32")
    carry, inputs = (jnp.full((1, 7), 3.0), jnp.zeros((1, 7))), jnp.zeros((1, 5))
    variables = cell.init(jax.random.key(0), carry, inputs)
    biases = {gate: np.unique(variables["params"][f"h{gate}"]["bias"]).tolist() for gate in "ifgo"}
    assert biases == {"i": [0.0], "f": [1.0], "g": [0.0], "o": [0.0]}
    (c, _), _ = cell.apply(variables, carry, inputs)
    np.testing.assert_allclose(c, 3.0 / (1.0 + math.exp(-1.0)), rtol=1e-6)


def test_an_lstm_is_that_of_flax_whatever_its_parameters():
    cell, theirs = make_cell("lstm", 7, "scaled", "float32"), nn.OptimizedLSTMCell(7)
    carry, inputs = (jnp.ones((1, 7)), jnp.full((1, 7), 0.5)), jnp.ones((1, 5))
    variables = jax.tree.map(lambda x: x + 0.3, cell.init(jax.random.key(0), carry, inputs))

    def total(variables, module):
        (c, _), h = module.apply(variables, carry, inputs)
        return jnp.sum(c**2 + h)

    jax.tree.map(
        np.testing.assert_array_equal,
        jax.value_and_grad(total)(variables, cell),
        jax.value_and_grad(total)(variables, theirs),
    )


def test_uniform_values_are_within_their_bound_and_embeddings_are_used_as_they_are():
    fields = {"rnn": "gru", "d_model": 13, "source_vocab": 101, "target_vocab": 103, "bidirectional": False}
    params = initial(build("lstm_luong", initial="uniform", **fields))["params"]
    for name in ("source_embedding_nm", "target_embedding_nm"):
        assert 0.95 * UNIFORM < np.abs(params[name]).max() <= UNIFORM == 0.04
    for layer in (params["encoder_0"]["cells_0"], params["decoder_cells_0"]):
        for gate in layer.values():
            assert 0.8 * UNIFORM < np.abs(gate["kernel"]).max() <= UNIFORM
            assert abs(float(gate["kernel"].mean())) < 0.01
            assert not np.asarray(gate.get("bias", 0.0)).any()


def test_scaled_values_are_orthogonal_for_the_state_and_embeddings_are_multiplied_on_use():
    fields = {"rnn": "gru", "d_model": 13, "source_vocab": 101, "target_vocab": 103, "bidirectional": False}
    scaled = build("lstm_luong", **fields)
    variables = initial(scaled)
    params = variables["params"]
    for name in ("source_embedding_nm", "target_embedding_nm", "output_mn"):
        assert float(params[name].var()) * 13 == pytest.approx(1.0, rel=0.12)
    for layer in (params["encoder_0"]["cells_0"], params["decoder_cells_0"]):
        for gate in ("hr", "hz", "hn"):
            kernel = np.asarray(layer[gate]["kernel"])
            np.testing.assert_allclose(kernel @ kernel.T, np.eye(13), atol=1e-5)
            assert float(layer[gate.replace("h", "i")]["kernel"].var()) * 13 == pytest.approx(1.0, rel=0.25)
    larger = {name: params[name] * math.sqrt(13) for name in ("source_embedding_nm", "target_embedding_nm")}
    as_they_are = build("lstm_luong", initial="uniform", **fields)
    logits = run(as_they_are, {"params": {**params, **larger}})
    np.testing.assert_allclose(run(scaled, variables), logits, atol=1e-5)


def test_initial_values_of_lanes_by_map_equal_those_alone():
    module = build("gru_bahdanau", bidirectional=False)
    seeds = jnp.arange(2)
    together = jax.jit(lambda seeds: jax.lax.map(lambda seed: initial(module, seed), seeds))(seeds)
    alone = jax.jit(lambda seed: initial(module, seed))
    for lane in range(2):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[lane], b), together, alone(lane))  # noqa: B023


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rnn": "rnns"}, "rnn must be one of gru, lstm, tanh, not 'rnns'"),
        ({"decoder": "none"}, "decoder must be one of bahdanau, luong, none_input, none_state, not 'none'"),
        ({"bridge": "first"}, "bridge must be one of last, learned, zero, not 'first'"),
        ({"initial": "normal"}, "initial must be one of scaled, uniform, not 'normal'"),
        ({"decoder": "bahdanau", "input_feeding": True}, "input_feeding needs the decoder luong, not bahdanau"),
        ({"decoder": "none_input", "input_feeding": True}, "input_feeding needs the decoder luong, not none_input"),
        (
            {"decoder": "none_state", "bridge": "zero"},
            "bridge zero tells the decoder none_state nothing of the source: choose last or learned",
        ),
    ],
)
def test_refusals_say_what_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        build("lstm_luong", **fields)


@pytest.mark.parametrize("variant", ["lstm_luong", "tanh_feeding", "gru_none_state"])
def test_a_cache_lasts_for_any_number_of_steps(variant):
    module, variables = make(variant)
    tokens = np.random.default_rng(0).integers(3, 17, (3, 23)).astype(np.int32)
    full = run(module, variables, SOURCE, tokens)
    cache = start(module, variables, SOURCE, 1)
    for t in range(23):
        logits, cache = step(module, variables, cache, tokens[:, t])
        np.testing.assert_allclose(logits, full[:, t], atol=1e-5)


@pytest.mark.parametrize("variant", ["lstm_luong", *SCANNED])
def test_weights_that_are_seen_are_those_that_were_used(variant):
    module, variables = make(variant)
    logits, state = run(module, variables, mutable=("attention",))
    np.testing.assert_array_equal(logits, run(module, variables))
    (seen,) = state["attention"]["attention"]["seen"]
    assert seen.weight_bhqk.shape == (3, 2, 5, 6)
    assert np.ptp(seen.weight_bhqk[1], axis=-1).min() > 1e-4  # of even weights no mistake would show
    for row in range(3):
        weight_hts = seen.weight_bhqk[row]
        expected = recurrent(of(variant), variables["params"], SOURCE[row], INPUT[row], weight_hts)
        np.testing.assert_allclose(logits[row], expected, atol=1e-5)
        other = recurrent(of(variant), variables["params"], SOURCE[row], INPUT[row], weight_hts[:, ::-1])
        # Weights of additive_linear are the same at every step.
        assert (np.abs(other - logits[row]).max() > 1e-4) == (of(variant)["score"] != "additive_linear")


def test_masks_of_dropout_differ_between_steps():
    module = build("tanh_bahdanau", dropout=0.5, d_model=31)
    params = drawn(module)["params"]
    # Without what one step tells the next, equal tokens give equal logits but for the masks.
    still = {"decoder_cells_0": {**params["decoder_cells_0"], "h": {"kernel": jnp.zeros((31, 31))}}}
    still["attention"] = jax.tree.map(jnp.zeros_like, params["attention"])
    tokens = np.full((1, 5), 4, np.int32)
    for deterministic in (True, False):
        logits = run(
            module,
            {"params": {**params, **still}},
            SOURCE[:1],
            tokens,
            deterministic=deterministic,
            rngs={"dropout": jax.random.key(0)},
        )[0]
        assert all(np.allclose(logits[t], logits[0], atol=1e-6) == deterministic for t in range(1, 5))


def test_dropout_is_not_on_what_a_state_hands_to_the_next():
    module = build("gru_luong", dropout=0.5, residual=False, num_layers=1)
    params = drawn(module)["params"]
    cell = {name: {**gate} for name, gate in params["encoder_0"]["cells_0"].items()}
    for gate in ("ir", "iz", "in"):
        cell[gate]["kernel"] = jnp.zeros((7, 7))
    variables = {"params": {**params, "encoder_0": {"cells_0": cell}}}
    quiet = encoded(module, variables, SOURCE)
    noisy = module.apply(variables, SOURCE, deterministic=False, method="encode", rngs={"dropout": jax.random.key(0)})
    np.testing.assert_allclose(quiet.state_bsw, noisy.state_bsw, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", ["bahdanau", "none_input"])
def test_a_diagnosis_tells_of_what_there_is(decoder):
    run = make_run(name="recurrent", decoder=decoder, num_heads=2, num_layers=2)
    knobs = run.knobs(1e-3, 0)
    found = jax.jit(lambda batch: diagnose(run, run.init(knobs), batch, knobs))(batch(1, 0))
    found = jax.tree.map(lambda x: np.asarray(x)[None], found)
    assert set(found.attentions) == ({"cross"} if decoder == "bahdanau" else set())
    assert any(name.startswith("attention/") for name in found.groups) == (decoder == "bahdanau")
    assert all(np.isfinite(value).all() for group in found.groups.values() for value in group.values())
    rows = diagnosis_rows(found, 0)
    heads = [(row["attention"], row["head"]) for row in rows if row["group"] is None]
    assert heads == ([("cross", 0), ("cross", 1)] if decoder == "bahdanau" else [])
    assert all(np.isfinite(row["entropy"]) for row in rows if row["group"] is None)
    assert len(rows) == len(heads) + len(found.groups)
