import jax
import pytest
from conftest import ROOT

from model.additive import CPU
from train.cells import make_runs, make_tasks
from train.estimate import EVALUATION_SHARE, TILED_TANHS, WHOLE_TANHS, Rates, estimate, repeated
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


def test_a_hidden_layer_in_tiles_counts_all_of_it_not_a_tile():
    base, twice, four = (one.seconds for one in of("model.score=additive", "model.d_k=8192,16384,32768"))
    # The widths of the projections double too; what is left beside both is small.
    assert four - twice == pytest.approx(2 * (twice - base), rel=0.02)
    products = of("model.score=dot", "model.d_k=8192,16384")
    assert twice - base > 2 * (products[1].seconds - products[0].seconds)


def seconds(rates: Rates, *overrides: str, score: str = "additive") -> float:
    """To train the lanes of one cell."""
    plan = make_plan(ROOT / "configs" / "smoke.py", overrides, [f"model.score={score}"])
    tasks = make_tasks(plan, None)
    (cell,) = plan.cells
    layout = Layout("cpu", 1, 1, "map")
    return estimate(cell, make_runs(plan, tasks)[cell.name], tasks[cell.name], [2], layout, rates).seconds


TOY = ("task.name=toy_translation", "task.max_length=20", "run.batch_size=32")
ENCODER, DECODER, CROSS = 21 * 21, 25 * 25, 25 * 21  # queries x keys


@pytest.mark.parametrize(
    ("d_k", "in_tiles"),
    [
        (52, 0),
        (53, DECODER),
        (62, DECODER),
        (63, DECODER + CROSS),
        (74, DECODER + CROSS),
        (75, DECODER + CROSS + ENCODER),
    ],
)
def test_a_whole_hidden_layer_takes_three_tanhs_a_number_and_one_in_tiles_four(d_k, in_tiles):
    found = seconds(RATES._replace(flops=float("inf")), *TOY, "model.num_layers=2", f"model.d_k={d_k}")
    tanhs = 2 * 32 * d_k * (3 * (DECODER + CROSS + ENCODER) + in_tiles)
    assert found == pytest.approx(2 * 20 * tanhs * (1 + EVALUATION_SHARE) / RATES.transcendentals)


@pytest.mark.parametrize("most", [52, 62, 74])
def test_the_operations_beside_the_hidden_layers_do_not_jump_where_these_are_no_longer_whole(most):
    rates = RATES._replace(transcendentals=float("inf"))
    last, first = (seconds(rates, *TOY, f"model.d_k={d_k}") for d_k in (most, most + 1))
    assert last < first < 1.02 * last
    # Of a product the score's own operations are among them.
    assert 0.7 < last / seconds(rates, *TOY, f"model.d_k={most}", score="dot") < 1


def test_parts_of_a_batch_take_as_long_and_are_whole_or_in_tiles_by_themselves():
    settings = ("run.batch_size=64", "model.d_k=456")
    assert CPU.whole < 64 * 6 * 6 * 456
    products = [seconds(RATES, *settings, f"optim.accumulate={parts}", score="dot") for parts in (1, 4)]
    assert products[1] == pytest.approx(products[0], rel=0.1)
    rates = RATES._replace(flops=float("inf"))
    tiles, whole = (seconds(rates, *settings, f"optim.accumulate={parts}") for parts in (1, 4))
    assert whole == pytest.approx(tiles * WHOLE_TANHS / TILED_TANHS)


def test_products_of_a_loop_count_in_every_round():
    def program(state_bm, kernel_mm, input_tbm):
        def step(carry, x_bm):
            def inner(carry, _):
                return carry @ kernel_mm, None

            return jax.lax.scan(inner, carry + x_bm, None, length=3)[0], None

        return jax.lax.scan(step, state_bm @ kernel_mm, input_tbm)[0]

    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((4, 8), (8, 8), (5, 4, 8))]
    one = 2 * 4 * 8 * 8
    assert repeated(jax.jit(program).trace(*shapes).jaxpr.jaxpr) == (5 * 3 - 1) * one  # the product outside counts once


@pytest.mark.parametrize("feeding", [False, True])
def test_a_recurrent_model_takes_longer_with_longer_sentences(feeding):
    knobs = ("model.name=recurrent", f"model.input_feeding={feeding}", "model.d_model=64")
    short, long = (of(*knobs, f"task.min_length={n}", f"task.max_length={n}")[0] for n in (19, 79))
    assert 3.5 < long.seconds / short.seconds < 8  # 4 for products with the state, 16 for those of attention
