import jax
import pytest
from conftest import ROOT

from train.cells import make_runs, make_tasks
from train.estimate import Rates, estimate
from train.layout import Layout, choose_layout
from train.plan import make_plan

RATES = Rates(flops=1e11, transcendentals=1e9)


def of(*sweeps: str, lanes: int = 2):
    plan = make_plan(ROOT / "configs" / "smoke.py", sweeps=sweeps)
    tasks = make_tasks(plan, None)
    runs = make_runs(plan, tasks)
    return [
        estimate(cell, runs[cell.name], tasks[cell.name], [lanes], choose_layout(lanes, 7, 2, "cpu"), RATES)
        for cell in plan.cells
    ]


def test_parameters_are_those_of_the_model():
    plan = make_plan(ROOT / "configs" / "smoke.py", overrides=["run.steps=10"])
    tasks = make_tasks(plan, None)
    run = make_runs(plan, tasks)[plan.cells[0].name]
    one = estimate(plan.cells[0], run, tasks[plan.cells[0].name], [2], choose_layout(2, 7, 2, "cpu"), RATES)
    params = run.module.init(jax.random.key(0), *[jax.numpy.ones((1, 2), int)] * 2, deterministic=True)["params"]
    assert one.parameters == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_accelerators_hold_all_their_lanes_at_once_and_share_the_time():
    plan = make_plan(ROOT / "configs" / "smoke.py")
    tasks = make_tasks(plan, None)
    cell = plan.cells[0]
    run = make_runs(plan, tasks)[cell.name]
    one, two, core = (
        estimate(cell, run, tasks[cell.name], [8], layout, RATES)
        for layout in (Layout("gpu", 1, 1, "vmap"), Layout("gpu", 2, 1, "vmap"), Layout("cpu", 1, 1, "map"))
    )
    assert one.memory > core.memory
    assert one.memory < two.memory < 1.01 * one.memory  # each device has the batches
    assert one.seconds == pytest.approx(2 * two.seconds)
    assert one.seconds == core.seconds


def test_more_lanes_cost_more_memory_disk_and_time():
    two, four = of("model.score=dot", lanes=2)[0], of("model.score=dot", lanes=4)[0]
    assert four.disk == pytest.approx(2 * two.disk)
    assert four.memory > two.memory
    assert four.seconds > two.seconds


def test_wider_heads_cost_more_and_the_additive_score_most():
    narrow, wide = of("model.score=dot", "model.d_k=8,512")
    assert wide.parameters > narrow.parameters
    assert wide.seconds > narrow.seconds
    plan_scores = of("model.score=additive,dot")
    assert plan_scores[0].seconds > plan_scores[1].seconds


def test_a_program_is_compiled_once_for_every_cell_group_size_and_shape_that_calls_it():
    dot, scaled, additive = of("model.score=dot,scaled_dot,additive")
    assert dot.programs == scaled.programs != additive.programs
    assert len(dot.programs) == 1
    assert not dot.programs & of("model.score=dot", lanes=4)[0].programs


def test_the_hidden_layer_of_a_score_counts_whole_not_a_tile_of_it():
    base, twice, four = (one.seconds for one in of("model.score=additive", "model.d_k=8192,16384,32768"))
    # The widths of the projections double too; what is left beside both is small.
    assert four - twice == pytest.approx(2 * (twice - base), rel=0.02)
    products = of("model.score=dot", "model.d_k=8192,16384")
    assert twice - base > 2 * (products[1].seconds - products[0].seconds)
