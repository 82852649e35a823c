from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from small_run import RUN, batch, batches, lanes, make_run

import train.lanes as engine
from train.errors import UserError
from train.lanes import Lanes, Programs
from train.layout import HANGING_JAX, Layout, choose_layout, start_backend
from train.step import NEVER


def train(group: Lanes, steps: int, chunk: int = RUN.chunk_steps):
    """So many updates in chunks of at most `chunk`."""
    state = group.init()
    step = 0
    while step < steps:
        count = min(chunk, steps - step)
        state = group.update(state, batches(group.seeds, step, count), count)
        step += count
    return group.to_host(state)


def lane_of(state, lane: int):
    return jax.tree.map(lambda x: x[lane], state)


def equal(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def close(one, other, tolerance: float) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.allclose(a, b, rtol=0, atol=tolerance) for a, b in pairs)


@pytest.fixture(scope="module")
def run():
    return make_run(dropout=0.1)


@pytest.fixture(scope="module")
def devices():
    return jax.devices()


THREE = lanes((1e-3, 0), (3e-3, 1), (1e-2, 0))


@pytest.fixture(scope="module")
def three(run, devices):
    return train(Lanes(run, THREE, devices), 20)


@pytest.mark.parametrize("alone", [0, 1, 2])
def test_a_lane_of_many_equals_the_run_alone(run, devices, three, alone):
    lane = THREE[alone]
    single = train(Lanes(run, [lane], devices), 20)
    assert close(lane_of(single, 0).params, lane_of(three, alone).params, 1e-5)
    assert int(single.train.tokens[0]) == int(three.train.tokens[alone])


def test_a_batch_split_over_devices_gives_the_same(run, devices, three, monkeypatch):
    monkeypatch.setattr("train.lanes.programs", Programs)
    monkeypatch.setattr("train.lanes.choose_layout", lambda *args: Layout("cpu", 1, 2, "vmap"))
    split = train(Lanes(run, THREE, devices), 20)
    assert close(split.params, three.params, 1e-5)
    assert not equal(split.params, three.params)  # sums in another order: the batch was split


@pytest.mark.parametrize("order", ["map", "vmap"])
def test_the_plain_loop_over_updates_gives_the_same(run, devices, three, order, monkeypatch):
    monkeypatch.setattr("train.lanes.programs", Programs)
    monkeypatch.setattr("train.lanes.choose_layout", lambda *args: choose_layout(*args)._replace(order=order))
    group = Lanes(run, THREE, devices)
    assert close(train(group, 20).params, three.params, 1e-5)
    update = jax.jit(run.update)
    for index, lane in enumerate(THREE):
        knobs = jax.tree.map(lambda x, index=index: x[index], group._knobs_r)
        state = jax.jit(run.init)(knobs)
        for step in range(20):
            state = update(state, batch(lane.seed, step), knobs)
        assert close(state.params, lane_of(three, index).params, 1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_chunks_of_any_length_give_the_same_bits(run, devices, three, chunk):
    assert equal(train(Lanes(run, THREE, devices), 20, chunk), three)


def test_the_same_again_gives_the_same_bits(run, devices, three):
    assert equal(train(Lanes(run, THREE, devices), 20), three)


def test_leaving_to_the_host_and_coming_back_changes_nothing(run, devices, three):
    group = Lanes(run, THREE, devices)
    state = group.init()
    for step in range(0, 20, 5):
        state = group.from_host(group.to_host(group.update(state, batches(group.seeds, step, 5), 5)))
    assert equal(group.to_host(state), three)


def test_an_exploding_lane_leaves_the_others_bit_identical(run, devices, three):
    others = train(Lanes(run, [*THREE, *lanes((1e9, 0))], devices), 20)
    assert int(others.diverged_at[3]) != NEVER
    for index in range(3):
        assert equal(lane_of(others, index), lane_of(three, index))
    assert (three.diverged_at == NEVER).all()


def test_lanes_of_one_seed_start_alike_and_see_the_same_batches_others_do_not(run, devices):
    group = Lanes(run, lanes((1e-3, 5), (1e-2, 5), (1e-3, 7)), devices)
    start = group.to_host(group.init()).params
    assert equal(jax.tree.map(lambda x: x[0], start), jax.tree.map(lambda x: x[1], start))
    assert not equal(jax.tree.map(lambda x: x[0], start), jax.tree.map(lambda x: x[2], start))
    assert group.seeds == (5, 7)
    twins = train(Lanes(run, lanes((1e-3, 5), (1e-3, 5)), devices), 6)
    assert equal(lane_of(twins, 0), lane_of(twins, 1))


def test_more_seeds_do_not_change_a_lane(run, devices):
    two = train(Lanes(run, lanes((3e-3, 0), (3e-3, 1)), devices), 6)
    four = train(Lanes(run, lanes((3e-3, 0), (3e-3, 1), (3e-3, 2), (3e-3, 3)), devices), 6)
    for index in range(2):
        assert close(lane_of(two, index).params, lane_of(four, index).params, 1e-6)


def test_evaluation_gives_each_real_lane_its_counts_and_tokens(run, devices):
    group = Lanes(run, THREE, devices)
    state = group.init()
    evaluation, token_rbt = group.evaluate(state.params, state.step, batch(7, 0))
    assert token_rbt.shape == (3, 6, 7)
    params = group.to_host(state.params)
    evaluate = jax.jit(run.evaluate)
    for index in range(3):
        counts, token_bt = evaluate(lane_of(params, index), 0, batch(7, 0), run.knobs(1e-3, 0))
        mine = lane_of(group.to_host(evaluation), index)
        assert close(mine.sums.loss, counts.sums.loss, 1e-3)
        assert int(mine.sequences) == 6
        np.testing.assert_array_equal(token_rbt[index], token_bt)


def test_evaluation_gives_the_same_on_one_device_as_on_two(run, devices):
    counts = []
    for count in (1, 2):
        group = Lanes(run, THREE, devices[:count])
        evaluation, token_rbt = group.evaluate(group.init().params, group.init().step, batch(7, 0))
        counts.append((group.to_host(evaluation.counts()), token_rbt))
    (one, tokens), (two, other) = counts
    np.testing.assert_array_equal(tokens, other)
    for name in one:
        np.testing.assert_allclose(one[name], two[name], rtol=1e-6)


@pytest.fixture
def compiled(monkeypatch):
    """How many functions a group has compiled that shares no programs with other groups."""
    monkeypatch.setattr("train.lanes.programs", Programs)
    return lambda group: len(group._programs._compiled)


def test_one_program_serves_every_count_of_updates(run, devices, compiled):
    group = Lanes(run, THREE, devices)
    state = group.init()
    for count in (1, 2, 8, 5):
        state = group.update(state, batches(group.seeds, 0, count), count)
    assert compiled(group) == 1


def test_every_shape_of_a_batch_is_compiled_once(run, devices, compiled):
    group = Lanes(run, THREE, devices)
    state = group.init()
    for _ in range(3):
        for width in (7, 5, 6):
            cut = jax.tree.map(lambda x, width=width: x[..., :width], batches(group.seeds, 0, 2))
            state = group.update(state, cut, 2)
            state = group.after_evaluation(state, group.evaluate(state.params, state.step, batch(7, 0))[0])
    state = group.update(group.from_host(group.to_host(state)), batches(group.seeds, 0, 2), 2)
    assert compiled(group) == 3 + 1 + 1


def test_cells_that_differ_in_a_number_and_groups_of_a_cell_share_their_programs(devices):
    dot, scaled, additive = (make_run(score=score) for score in ("dot", "scaled_dot", "additive"))
    of = lambda run, *some: Lanes(run, lanes(*some), devices)._programs  # noqa: E731
    assert of(dot, (1e-3, 0), (1e-3, 1)) is of(scaled, (1e-3, 0), (1e-3, 1)) is of(scaled, (3e-3, 2), (1e-3, 7))
    assert of(dot, (1e-3, 0), (1e-3, 1)) is not of(additive, (1e-3, 0), (1e-3, 1))
    assert of(dot, (1e-3, 0), (1e-3, 1)) is not of(dot, (1e-3, 0))


def test_who_asks_second_waits_for_who_asked_first(run, devices, monkeypatch):
    made = Programs(run, 3, tuple(devices))
    with ThreadPoolExecutor(4) as pool:
        programs = list(pool.map(lambda _: made.evaluate(batch(7, 0)), range(4)))
    assert len({id(program) for program in programs}) == 1
    monkeypatch.setattr(made, "_update", None)  # cannot be lowered: all who wait are told
    for _ in range(2):
        with pytest.raises(AttributeError):
            made.update(batches((0,), 0, 1))


def test_like_has_the_shapes_of_the_state(run, devices):
    group = Lanes(run, THREE, devices)
    real, like = group.to_host(group.init()), group.like()
    assert jax.tree.structure(real) == jax.tree.structure(like)
    for one, other in zip(jax.tree.leaves(real), jax.tree.leaves(like), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize(
    ("lane_count", "batch_size", "device_count", "shards"),
    [
        (9, 32, 2, (2, 1)),
        (3, 32, 2, (2, 1)),
        (1, 32, 2, (1, 2)),
        (1, 7, 2, (1, 1)),
        (3, 32, 8, (2, 4)),
        (8, 6, 8, (8, 1)),
        (1, 6, 8, (1, 6)),
        (5, 32, 1, (1, 1)),
    ],
)
def test_layout_of_accelerators(lane_count, batch_size, device_count, shards):
    assert choose_layout(lane_count, batch_size, device_count, "gpu") == ("gpu", *shards, "vmap")


@pytest.mark.parametrize(
    ("lane_count", "cores", "shards"),
    [(9, 2, 2), (3, 2, 2), (1, 2, 1), (3, 8, 3), (9, 8, 5), (8, 8, 8), (17, 8, 6), (5, 1, 1)],
)
def test_layout_of_cores_needs_no_more_turns_than_all_cores_and_splits_no_batch(lane_count, cores, shards):
    assert choose_layout(lane_count, 32, cores, "cpu") == ("cpu", shards, 1, "map")
    assert -(-lane_count // shards) == -(-lane_count // min(cores, lane_count))


def test_a_jax_that_hangs_is_refused_with_the_remedy(monkeypatch):
    for version in HANGING_JAX:
        monkeypatch.setattr(jax, "__version__", version)
        with pytest.raises(UserError, match=r"can hang on a CPU; install another: pip install"):
            start_backend(0)


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(UserError, match=r"run.devices=1000, but there are 2"):
        start_backend(1000)


def test_the_allocator_is_set_up_before_the_backend_is_asked_for_devices(monkeypatch):
    asked = []
    monkeypatch.setattr("train.layout.keep_memory", lambda block, cores: asked.append(block))
    monkeypatch.setattr(jax, "devices", lambda: (asked.append("devices"), [None])[1])
    start_backend(0, block=7.0)
    assert asked == [7.0, "devices"]


def test_programs_are_kept_for_cells_alike_but_not_without_bound(monkeypatch):
    monkeypatch.setattr(engine, "KEPT", 2)
    engine.kept.clear()
    devices = tuple(jax.devices())
    runs = [make_run(d_k=d_k).program for d_k in (5, 7, 11, 13)]
    first, second = (engine.programs(run, 2, devices) for run in runs[:2])
    first.after_evaluation()
    second.after_evaluation()
    assert engine.programs(runs[0], 2, devices) is first
    engine.programs(runs[2], 2, devices).after_evaluation()
    assert [key[0] for key in engine.kept] == [runs[1], runs[0], runs[2]]
    engine.programs(runs[3], 2, devices)  # three are compiled: the one that was longest not asked for goes
    assert [key[0] for key in engine.kept] == [runs[0], runs[2], runs[3]]
    assert engine.programs(runs[1], 2, devices) is not second
