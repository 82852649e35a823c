"""How much memory a cell's lanes need, as estimated and as XLA accounts for it, and the groups that follow."""

import types

import jax
import numpy as np
import pytest
from conftest import ROOT

from model import SCORES, additive, family
from train.allocator import LARGEST_KEPT
from train.cells import make_run, make_runs, make_tasks
from train.errors import UserError
from train.lanes import Lanes
from train.layout import Layout, choose_layout
from train.memory import (
    GB,
    SHARE,
    Need,
    attentions,
    available,
    even_sizes,
    hidden_layers,
    least_block,
    make_split,
    need,
    room,
)
from train.plan import make_plan
from train.tasks import Batch


def made(*overrides: str, score: str = "dot"):
    plan = make_plan(ROOT / "configs" / "smoke.py", overrides, [f"model.score={score}"])
    tasks = make_tasks(plan, None)
    return plan, make_runs(plan, tasks), tasks


def layout(lanes: int) -> Layout:
    return choose_layout(lanes, 8, 2, "cpu")


@pytest.mark.parametrize(
    ("lanes", "groups", "shards", "sizes"),
    [
        (9, 1, 2, [9]),
        (9, 2, 2, [5, 4]),
        (8, 2, 4, [4, 4]),
        (12, 2, 4, [8, 4]),
        (12, 3, 4, [4, 4, 4]),
        (25, 4, 2, [7, 6, 6, 6]),
        (5, 4, 2, [2, 1, 1, 1]),
        (3, 3, 8, [1, 1, 1]),
    ],
)
def test_groups_are_even_and_fill_the_shards_where_they_can(lanes, groups, shards, sizes):
    assert even_sizes(lanes, groups, shards) == sizes


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 8])
def test_groups_take_every_lane_once(shards):
    for lanes in range(1, 27):
        for groups in range(1, lanes + 1):
            sizes = even_sizes(lanes, groups, shards)
            assert (len(sizes), sum(sizes)) == (groups, lanes)
            assert min(sizes) >= 1


def test_cores_hold_two_states_a_lane_and_work_on_one_accelerators_on_all():
    one = Need(state=1000, temporary=100, batches=1)
    assert one.total(8, Layout("cpu", 2, 1, "map")) == 2 * (2 * 4 * 1000 + 100 + 8)
    assert one.total(8, Layout("gpu", 2, 1, "vmap")) == 2 * (4 * 1000 + 4 * 100 + 8)
    assert one.total(3, Layout("gpu", 2, 2, "vmap")) == 4 * (2 * 1000 + 2 * 100 + 3)


CELLS = [
    ("model.d_k=64", "task.max_length=23", "run.batch_size=64"),
    ("model.d_ff=301", "model.num_heads=3", "model.dropout=0.1", "task.symbols=499", "run.batch_size=4"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "overrides"),
    [(score, CELLS[0]) for score in sorted({family(score) for score in SCORES})]
    + [(score, CELLS[1]) for score in ("additive", "general", "scaled_dot_log_n")],
)
def test_the_estimate_is_not_below_what_the_programs_need(score, overrides):
    plan, runs, tasks = made("lanes.seed=0,1,2", *overrides, score=score)
    (cell,) = plan.cells
    task = tasks[cell.name]
    lanes = Lanes(runs[cell.name], plan.lanes, jax.devices())
    rows = (3, 10, cell.run.batch_size)
    batches = Batch(*(jax.numpy.zeros((*rows, width), int) for width in task.shape(0)))
    estimated = need(cell, runs[cell.name], task, lanes.layout).total(3, lanes.layout)
    assert 1000 < lanes.memory(lanes.program(batches)) <= estimated
    evaluated = lanes._programs.evaluate(task.evaluation("valid").batches[0])
    assert lanes.memory(evaluated) <= estimated


def test_an_additive_scores_hidden_layer_counts_whole_or_as_a_tile():
    def temporary(width: int, platform: str) -> int:
        plan, runs, tasks = made(f"model.d_k={width}", "run.batch_size=64", score="additive")
        (cell,) = plan.cells
        return need(cell, runs[cell.name], tasks[cell.name], Layout(platform, 1, 1, "map")).temporary

    # An accelerator keeps the hidden layers of the three attentions, and has four arrays of one at work; a core has
    # four of a tile.
    hidden, tile = 64 * 6 * 6 * 512, 7 * 6 * 6 * 512
    assert tile < additive.CPU.tile < additive.CPU.whole < hidden <= additive.ACCELERATOR.whole
    assert temporary(512, "gpu") - temporary(512, "cpu") == 4 * (7 * hidden - 4 * tile)
    assert temporary(256, "gpu") == temporary(256, "cpu")


def of_shapes(*shapes: tuple[int, int], evaluated: tuple[int, int, int], max_target: int, overrides: tuple[str, ...]):
    """Plan, cell, task and run of a study with one lane: updates of these widths, and one batch that is evaluated."""
    plan = make_plan(ROOT / "configs" / "smoke.py", ["lanes.seed=0", *overrides], ["model.score=additive"])
    (cell,) = plan.cells
    rows, *widths = evaluated
    batch = Batch(*(np.zeros((rows, width), np.int32) for width in widths))
    task = types.SimpleNamespace(
        shape=lambda step: shapes[step % len(shapes)],
        source_vocab=13,
        target_vocab=17,
        max_target=max_target,
        lengths=lambda: np.array([5]),
        evaluation=lambda split: types.SimpleNamespace(batches=(batch,)),
    )
    return plan, cell, task, make_run(cell, task)


def whole(model, rows: int, source: int, target: int) -> list[bool]:
    return [one.whole for one in hidden_layers(model, rows, attentions(source, target), "cpu")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target", "d_k", "expected"),
    [
        (32, 48, 113, [True, True, True]),
        (32, 48, 114, [True, False, True]),
        (32, 48, 170, [True, False, True]),
        (32, 48, 171, [True, False, False]),
        (32, 48, 256, [True, False, False]),
        (48, 32, 256, [False, True, False]),
        (32, 48, 257, [False, False, False]),
    ],
)
def test_an_update_needs_no_more_than_is_estimated_whichever_hidden_layers_are_whole(source, target, d_k, expected):
    plan, cell, task, run = of_shapes(
        (source, target),
        evaluated=(1, 2, 3),
        max_target=target,
        overrides=(f"model.d_k={d_k}", "run.batch_size=4"),
    )
    assert whole(cell.model, 4, source, target) == expected
    lanes = Lanes(run, plan.lanes, jax.devices()[:1])
    needed = lanes.memory(lanes.program(Batch(*(np.zeros((1, 10, 4, width), np.int32) for width in (source, target)))))
    assert needed <= need(cell, run, task, lanes.layout).total(1, lanes.layout) <= 4 * needed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "source", "target", "max_target", "d_k", "expected"),
    [
        (4, 32, 48, 48, 170, [True, False, True]),
        (4, 32, 48, 48, 256, [True, False, False]),
        (4, 48, 32, 48, 256, [False, True, False]),
        (4, 32, 48, 48, 257, [False, False, False]),
        # The decoder's whole as given, though not at the limit of decoding; only what a step of decoding makes.
        (14, 36, 34, 35, 64, [False, True, False]),
        (900, 13, 17, 17, 64, [False, False, False]),
    ],
)
def test_an_evaluation_needs_no_more_than_is_estimated_whichever_hidden_layers_are_whole(
    rows, source, target, max_target, d_k, expected
):
    plan, cell, task, run = of_shapes(
        (2, 3), evaluated=(rows, source, target), max_target=max_target, overrides=(f"model.d_k={d_k}",)
    )
    assert whole(cell.model, rows, source, target) == expected
    lanes = Lanes(run, plan.lanes, jax.devices()[:1])
    needed = lanes.memory(lanes._programs.evaluate(task.evaluation("valid").batches[0]))
    assert needed <= need(cell, run, task, lanes.layout).total(1, lanes.layout) <= 5 * needed


def test_of_several_shapes_the_one_that_needs_most_counts_though_another_is_wider():
    def temporary(*shapes: tuple[int, int]) -> int:
        _, cell, task, run = of_shapes(
            *shapes, evaluated=(1, 2, 3), max_target=24, overrides=("model.d_k=64", "run.batch_size=32")
        )
        return need(cell, run, task, layout(1)).temporary

    narrow, wide = (20, 22), (24, 24)
    assert temporary(wide) < temporary(narrow) == temporary(narrow, wide)


def test_a_batch_split_over_accelerators_is_whole_or_in_tiles_by_all_its_rows():
    def temporary(d_k: int) -> int:
        overrides = (f"model.d_k={d_k}", "run.batch_size=8192", "model.num_layers=4")
        _, cell, task, run = of_shapes((32, 32), evaluated=(1, 2, 3), max_target=32, overrides=overrides)
        return need(cell, run, task, Layout("gpu", 1, 2, "vmap")).temporary

    assert additive.ACCELERATOR.whole == 8192 * 32 * 32 * 16
    assert temporary(17) < temporary(16)


def test_parts_of_a_batch_need_less():
    sizes = []
    for accumulate in (1, 8):
        plan, runs, tasks = made("run.batch_size=256", f"optim.accumulate={accumulate}")
        (cell,) = plan.cells
        sizes.append(need(cell, runs[cell.name], tasks[cell.name], layout(1)).temporary)
    assert sizes[1] < sizes[0] / 4


def split_at(lanes: int, share: float = 1.0, score: str = "dot,additive"):
    """A split under a limit that so many lanes of the hungriest cell just keep."""
    plan, runs, tasks = made("model.d_k=64", score=score)
    needs = [need(cell, runs[cell.name], tasks[cell.name], layout(lanes)) for cell in plan.cells]
    limit = share * max(one.total(lanes, layout(lanes)) for one in needs)
    return make_split(plan, runs, tasks, layout, 2, limit)


def test_lanes_are_split_into_the_fewest_groups_that_fit():
    assert split_at(4)(4) == [4]
    assert split_at(4, 0.999)(4) == [2, 2]
    assert split_at(2)(6) == [2, 2, 2]
    assert split_at(2)(5) == [2, 2, 1]
    assert split_at(1)(3) == [1, 1, 1]


def test_a_lane_that_does_not_fit_is_refused_in_a_line_with_the_remedy():
    with pytest.raises(UserError) as caught:
        split_at(1, 0.999)(4)
    line = str(caught.value)
    assert line.startswith("cell score=additive needs up to 0.00")
    assert "GB of run.memory_gb (0)" in line
    for remedy in ("smaller run.batch_size", "larger optim.accumulate", "more run.memory_gb"):
        assert remedy in line
    assert "\n" not in line


def test_the_limit_is_what_was_given_or_most_of_what_is_there():
    accelerator = types.SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 7000})
    silent = types.SimpleNamespace(platform="tpu", memory_stats=lambda: None)
    assert available(1.5, [accelerator]) == 1.5 * GB
    assert available(0.0, [accelerator] * 3) == pytest.approx(SHARE * 21000)
    assert available(0.0, [silent]) == float("inf")
    assert 1e8 < available(0.0, jax.devices()) < 1e14


def test_accelerators_that_a_group_leaves_idle_lend_it_no_memory():
    assert room(8.0, Layout("gpu", 2, 1, "vmap"), 8) == 2.0
    assert room(8.0, Layout("cpu", 2, 1, "map"), 8) == 8.0


@pytest.mark.parametrize(
    ("config", "overrides", "large"),
    [
        ("dk_quick", [], False),
        ("dk_study", [], False),
        ("base", ["task.symbols=5000", "model.d_model=192", "model.d_ff=512", "model.num_layers=2"], True),
    ],
)
def test_one_arena_is_for_programs_of_which_all_are_large(config, overrides, large):
    plan = make_plan(ROOT / "configs" / f"{config}.py", [*overrides, *(["run.batch_size=64"] if large else [])], [])
    tasks = make_tasks(plan, None)
    assert (least_block(plan, make_runs(plan, tasks), tasks) > LARGEST_KEPT) is large
