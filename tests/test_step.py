import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_run import WIDTH, batch, make_run

from model import SCORES
from train.objective import cross_entropy
from train.step import NEVER, Knobs, Run, State, shift_right
from train.tasks import BOS, EOS, PAD, Batch


def knobs(learning_rate: float = 3e-3, seed: int = 0) -> Knobs:
    return make_run().knobs(learning_rate, seed)


@functools.lru_cache
def compiled(run: Run, function: str):
    return jax.jit(getattr(run, function))


def init(run: Run, knob: Knobs) -> State:
    return compiled(run, "init")(knob)


def update(run: Run, state: State, sentences: Batch, knob: Knobs) -> State:
    return compiled(run, "update")(state, sentences, knob)


def evaluate(run: Run, params, sentences: Batch):
    return compiled(run, "evaluate")(params, jnp.int32(0), sentences, run.knobs(0.0, 0))


def trained(run: Run, steps: int, knob: Knobs) -> State:
    state = init(run, knob)
    for step in range(steps):
        state = update(run, state, batch(int(knob.seed), step), knob)
    return state


def distance(one, other) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max((float(np.abs(a - b).max()) for a, b in pairs), default=0.0)


def test_shift_right_starts_with_bos_and_drops_the_last():
    assert shift_right(jnp.array([[7, 8, EOS], [9, EOS, PAD]])).tolist() == [[BOS, 7, 8], [BOS, 9, EOS]]


def test_same_seed_same_values_another_seed_another():
    run = make_run()
    first, again, other = (init(run, knobs(seed=seed)).params for seed in (0, 0, 1))
    assert distance(first, again) == 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(first):
        if np.std(leaf) > 0:  # norms and biases start alike
            mine = jax.tree_util.tree_leaves_with_path(other)
            assert np.any(leaf != dict(mine)[path])


def test_scores_of_a_seed_start_from_the_same_values_where_shapes_agree():
    start = {score: init(make_run(score=score), knobs()).params for score in ("dot", "scaled_dot", "additive")}
    assert distance(start["dot"], start["scaled_dot"]) == 0
    additive = dict(jax.tree_util.tree_leaves_with_path(start["additive"]))
    for path, leaf in jax.tree_util.tree_leaves_with_path(start["dot"]):
        assert np.array_equal(additive[path], leaf), path


def test_with_d_k_1_dot_and_scaled_dot_are_the_same_run():
    ends = [trained(make_run(score=score, d_k=1), 7, knobs()) for score in ("dot", "scaled_dot")]
    assert distance(ends[0], ends[1]) == 0


def test_training_learns():
    run = make_run()
    before, _ = evaluate(run, init(run, knobs()).params, batch(99, 0))
    after, _ = evaluate(run, trained(run, 60, knobs(1e-2)).params, batch(99, 0))
    assert after.sums.loss < 0.8 * before.sums.loss


def test_one_update_of_sgd_follows_the_mean_over_tokens_not_over_parts():
    """Parts with few tokens must not weigh more: accumulation equals the whole batch at once."""
    uneven = batch(0, 0)
    uneven.target_bt[3:, 1:] = PAD  # the second half has one token a sentence
    ends = []
    for accumulate in (1, 2, 3, 6):
        run = make_run(optim={"name": "sgd", "accumulate": accumulate, "label_smoothing": 0.1, "warmup_steps": 0})
        ends.append(update(run, init(run, knobs(0.1)), uneven, knobs(0.1)))
    for end in ends[1:]:
        assert distance(ends[0].params, end.params) < 1e-6
        assert int(end.train.tokens) == int(ends[0].train.tokens)
        assert float(end.train.loss) == pytest.approx(float(ends[0].train.loss), rel=1e-5)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_the_objective_is_one_mean_over_the_tokens_of_all_parts(accumulate):
    uneven = batch(0, 0)
    uneven.target_bt[3:, 1:] = PAD
    run = make_run(optim={"accumulate": accumulate})
    _, objective, sums = run.gradient(init(run, knobs()).params, uneven, run.module, jax.random.key(0))
    assert int(sums.tokens) == np.count_nonzero(uneven.target_bt)
    assert float(objective) == pytest.approx(float(sums.loss) / int(sums.tokens), rel=1e-6)


def test_rate_of_an_update_counts_updates_not_parts():
    moved = []
    for accumulate in (1, 3):
        run = make_run(optim={"name": "sgd", "accumulate": accumulate, "warmup_steps": 10})
        moved.append(trained(run, 4, knobs(0.1)).params)
    assert distance(*moved) < 1e-6


def test_the_warmed_up_rate_is_the_last_factor_of_the_update():
    run = make_run(optim={"name": "sgd", "warmup_steps": 4})
    start = init(run, knobs(0.1))
    small = update(run, start, batch(0, 0), knobs(0.1)).params
    large = update(run, start, batch(0, 0), knobs(0.4)).params
    step_of = lambda end: jax.tree.map(lambda new, old: new - old, end, start.params)  # noqa: E731
    for four, one in zip(jax.tree.leaves(step_of(large)), jax.tree.leaves(step_of(small)), strict=True):
        np.testing.assert_allclose(four, 4 * one, rtol=1e-3, atol=1e-6)
    assert distance(large, start.params) > 1e-3


def test_a_batch_of_padding_alone_changes_nothing_but_the_counter():
    run = make_run(optim={"name": "sgd"})
    start = init(run, knobs())
    empty = Batch(np.full((3, WIDTH), PAD, np.int32), np.full((3, WIDTH), PAD, np.int32))
    end = update(run, start, empty, knobs())
    assert distance(start.params, end.params) == 0
    assert (int(end.step), int(end.diverged_at)) == (1, NEVER)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_program_with_the_factor_as_a_number_is_the_module_with_its_own(name):
    run, sentences = make_run(score=name, d_k=23), batch(3, 0)
    params = init(run, knobs()).params
    # Queries large enough for a wrong factor to show.
    params["decoder_0"]["source_attention"]["query"]["kernel"] *= 30.0
    logits_btn = run.module.apply(
        {"params": params}, sentences.source_bs, shift_right(sentences.target_bt), deterministic=True
    )
    _, expected = cross_entropy(logits_btn, jnp.asarray(sentences.target_bt), pad=PAD, label_smoothing=0.0)
    evaluation, _ = compiled(run.program, "evaluate")(params, jnp.int32(0), sentences, run.knobs(0.0, 0))
    assert float(evaluation.sums.loss) == pytest.approx(float(expected.loss), rel=1e-5)
    after = compiled(run.program, "update")(init(run, knobs())._replace(params=params), sentences, run.knobs(0.0, 0))
    assert float(after.train.loss) == pytest.approx(float(expected.loss), rel=1e-5)


def test_scores_of_a_family_share_their_programs():
    runs = {name: make_run(score=name) for name in SCORES}
    assert runs["dot"].program == runs["scaled_dot"].program != runs["additive"].program
    assert runs["dot"] != runs["scaled_dot"]
    assert runs["dot"].program == runs["dot_t5_init"].program == runs["scaled_dot_mup"].program
    assert runs["additive"].program == runs["additive_unnormalised"].program
    assert len({run.program for run in runs.values()}) == len(SCORES) - 4
    factors = {name: float(run.knobs(0.0, 0).score_factor) for name, run in runs.items()}
    own = {"scaled_dot": pytest.approx(5**-0.5), "scaled_dot_mup": pytest.approx(0.2)}
    assert factors == dict.fromkeys(SCORES, 1.0) | own
    assert make_run(score="dot", d_k=7).program != runs["dot"].program


def test_an_empty_source_beside_others_leaves_finite_gradients():
    sentences = batch(0, 0)
    sentences.source_bs[2] = PAD
    for score in ("additive", "dot", "scaled_dot"):
        run = make_run(score=score)
        params = init(run, knobs()).params
        grads, objective, _ = run.gradient(params, sentences, run.module, jax.random.key(0))
        assert np.isfinite(objective)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_a_diverged_run_is_frozen_and_says_when():
    run = make_run(optim={"name": "sgd", "warmup_steps": 0})
    state = update(run, init(run, knobs(1e30)), batch(0, 0), knobs(1e30))
    while int(state.diverged_at) == NEVER:
        before = state
        state = update(run, state, batch(0, int(state.step)), knobs(1e30))
        assert int(state.step) < 10
    assert int(state.diverged_at) == int(state.step)
    later = update(run, state, batch(0, 50), knobs(1e30))
    for end in (state, later):
        assert distance(before.params, end.params) == 0
        assert distance(before.optimizer, end.optimizer) == 0
        assert int(end.train.tokens) == int(before.train.tokens)
    assert int(later.diverged_at) == int(state.diverged_at)
    assert int(later.step) == int(state.step) + 1


def test_dropout_changes_with_the_step_and_the_seed_and_is_off_in_evaluation():
    run = make_run(dropout=0.5)
    params = init(run, knobs()).params

    def loss(step: int, seed: int = 0) -> float:
        state = init(run, knobs())._replace(params=params, step=jnp.int32(step))
        return float(update(run, state, batch(0, 0), knobs(seed=seed)).train.loss)

    assert loss(1) == loss(1)
    assert len({loss(1), loss(2), loss(1, seed=1)}) == 3
    evaluations = [float(evaluate(run, params, batch(0, 0))[0].sums.loss) for _ in range(2)]
    plain = float(evaluate(make_run(dropout=0.0), params, batch(0, 0))[0].sums.loss)
    assert evaluations == [plain, plain]


def test_parts_of_a_batch_have_dropout_of_their_own():
    twice = Batch(*(np.concatenate([side[:1]] * 2) for side in batch(0, 0)))
    run = make_run(dropout=0.5, optim={"accumulate": 2})
    params, single = init(run, knobs()).params, Batch(*(side[:1] for side in twice))
    one = make_run(dropout=0.5).gradient(params, single, make_run(dropout=0.5).module, jax.random.key(0))
    both = run.gradient(params, twice, run.module, jax.random.key(0))
    assert float(both[2].loss) != pytest.approx(2 * float(one[2].loss), rel=1e-6)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
def test_evaluation_does_not_depend_on_its_batch_size(rows):
    run = make_run()
    params = trained(run, 30, knobs(1e-2)).params
    sentences = batch(5, 0, rows=5)
    parts = []
    for start in range(0, 5, rows):
        part = Batch(*(side[start : start + rows] for side in sentences))
        missing = rows - part.source_bs.shape[0]
        parts.append(Batch(*(np.pad(side, ((0, missing), (0, 0))) for side in part)))
    whole, tokens = evaluate(run, params, sentences)
    sums = [evaluate(run, params, part) for part in parts]
    total = sums[0][0]
    for evaluation, _ in sums[1:]:
        total = total + evaluation
    assert float(total.sums.loss) == pytest.approx(float(whole.sums.loss), rel=1e-6)
    for mine, theirs in zip(jax.tree.leaves(total)[1:], jax.tree.leaves(whole)[1:], strict=True):
        assert int(mine) == int(theirs)
    assert int(total.sequences) == 5
    assert int(total.sums.tokens) == int((sentences.target_bt != PAD).sum())
    np.testing.assert_array_equal(np.concatenate([token_bt for _, token_bt in sums])[:5], tokens)


def test_sequence_accuracy_wants_the_whole_output_and_its_end():
    run = make_run()
    params = trained(run, 30, knobs(1e-2)).params
    sentences = batch(5, 0, rows=3)
    _, token_bt = evaluate(run, params, sentences)
    token_bt = np.array(token_bt)
    ended = (token_bt == EOS).any(axis=1)
    evaluation, _ = evaluate(run, params, Batch(sentences.source_bs, token_bt.astype(np.int32)))
    assert int(evaluation.sequences_correct) == 3
    assert int(evaluation.unfinished) == int((~ended).sum())
    wrong = token_bt.copy()
    wrong[0, 0] = 4 + (wrong[0, 0] == 4)
    evaluation, _ = evaluate(run, params, Batch(sentences.source_bs, wrong.astype(np.int32)))
    assert int(evaluation.sequences_correct) == 2


def test_the_best_parameters_are_kept_and_training_sums_start_anew():
    run = make_run()
    state = trained(run, 3, knobs())
    evaluation, _ = evaluate(run, state.params, batch(9, 0))
    first = compiled(run, "after_evaluation")(state, evaluation)
    assert int(first.best_step) == 3
    assert distance(first.best_params, state.params) == 0
    assert int(first.train.tokens) == 0

    moved = first._replace(params=jax.tree.map(lambda x: x + 1, first.params), step=jnp.int32(4))
    worse = evaluation._replace(sums=evaluation.sums._replace(loss=evaluation.sums.loss + 1))
    for bad in (worse, evaluation, evaluation._replace(sums=evaluation.sums._replace(loss=jnp.float32(jnp.nan)))):
        kept = compiled(run, "after_evaluation")(moved, bad)
        assert int(kept.best_step) == 3
        assert distance(kept.best_params, first.best_params) == 0
    better = evaluation._replace(sums=evaluation.sums._replace(loss=evaluation.sums.loss - 1))
    assert int(compiled(run, "after_evaluation")(moved, better).best_step) == 4


@pytest.mark.parametrize("select", ["loss", "token_accuracy"])
def test_what_a_diverged_run_has_is_never_the_best(select):
    """Neither parameters it froze at, which are finite, nor NaN ones, whose most probable class is the first."""
    run = make_run(run={"select": select})
    start = init(run, knobs())
    frozen = start._replace(step=jnp.int32(7), diverged_at=jnp.int32(5))
    after = run.after_evaluation(frozen, run.evaluate(start.params, start.step, batch(1, 0), knobs())[0])
    assert (int(after.best_step), int(after.diverged_at)) == (0, 5)
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, start.params)
    state = start._replace(params=broken, step=jnp.int32(7))
    after = run.after_evaluation(state, run.evaluate(broken, state.step, batch(1, 0), knobs())[0])
    assert (int(after.best_step), int(after.diverged_at)) == (0, 7)
    assert distance(after.best_params, start.params) == 0


def test_select_names_the_metric_that_is_best():
    run = make_run(run={"select": "sequence_accuracy"})
    state = trained(run, 2, knobs())
    evaluation, _ = evaluate(run, state.params, batch(9, 0))
    some = evaluation._replace(sequences_correct=jnp.int32(1))
    more = evaluation._replace(sequences_correct=jnp.int32(2))
    state = compiled(run, "after_evaluation")(state, some)._replace(step=jnp.int32(5))
    assert int(compiled(run, "after_evaluation")(state, some).best_step) == 2
    assert int(compiled(run, "after_evaluation")(state, more).best_step) == 5
