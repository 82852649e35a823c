"""Grids: axes, cells and their names, lanes, and the part of them that `--only` takes."""

import pytest

import model
from tests.plans import BASE, refused
from train.plan import Lane, make_plan, short_names
from train.schema import FREE, KNOBS
from train.tasks import TASKS

TEXT = ["task.name=parallel_text"]


def test_axes_are_in_their_order_and_the_last_runs_fastest(config_file):
    file = config_file("config.cells.model.score = ('dot', 'additive')", "config.cells.model.d_k = (3, 2)")
    plan = make_plan(file)
    assert [cell.name for cell in plan.cells] == [
        "score=dot,d_k=3",
        "score=dot,d_k=2",
        "score=additive,d_k=3",
        "score=additive,d_k=2",
    ]
    assert plan.cells[1].axes == {"score": "dot", "d_k": 2}
    assert (plan.cells[1].model.score, plan.cells[1].model.d_k) == ("dot", 2)
    assert plan.config["cells"] == {"model": {"score": ["dot", "additive"], "d_k": [3, 2]}}


def test_lanes_are_every_rate_with_every_seed():
    plan = make_plan(BASE, ["lanes.lr=1e-2,1e-3", "lanes.seed=5,2"])
    assert plan.lanes == (Lane(0, 1e-2, 5), Lane(1, 1e-2, 2), Lane(2, 1e-3, 5), Lane(3, 1e-3, 2))


def test_a_sweep_sets_an_axis_adds_one_and_sets_lanes(config_file):
    file = config_file("config.cells.model.score = ('dot', 'additive')", "config.cells.model.d_k = (4,)")
    plan = make_plan(file, sweeps=["model.score=dot", "model.d_v=(2, 3)", "lanes.seed=1,2", "optim.name='adam'"])
    assert [cell.name for cell in plan.cells] == [
        "score=dot,d_k=4,d_v=2,optim=adam",
        "score=dot,d_k=4,d_v=3,optim=adam",
    ]
    assert [lane.seed for lane in plan.lanes] == [1, 2]
    assert make_plan(file, ["cells.model.d_k=5"]).cells == make_plan(file, sweeps=["model.d_k=5"]).cells


@pytest.mark.parametrize(
    ("task", "sweep"),
    [
        ("copy", "task.tokenizer=word,char"),
        ("sort", "task.train=(a,b),(c,)"),
        ("toy_translation", "task.symbols=5,7"),
        ("parallel_text", "task.valid_size=5,7"),
    ],
)
def test_an_axis_that_the_task_does_not_read_would_make_equal_cells(task, sweep):
    line = refused(BASE, [f"task.name={task}"], sweeps=[sweep])
    assert line.endswith(f"{sweep.partition('=')[0]} is no axis of the grid: task.name={task} does not use it")


@pytest.mark.parametrize(
    ("architecture", "sweep"),
    [
        ("recurrent", "model.d_ff=11,13"),
        ("recurrent", "model.norm=pre,post"),
        ("recurrent", "model.position=none,sinusoidal"),
        ("transformer", "model.rnn=gru,lstm"),
        ("transformer", "model.bridge=last,learned"),
    ],
)
def test_an_axis_that_the_architecture_does_not_have_would_make_equal_cells(architecture, sweep):
    line = refused(BASE, [f"model.name={architecture}"], [sweep])
    path = sweep.partition("=")[0]
    assert line.endswith(f"{path} is no axis of the grid: model.name={architecture} does not use it")


def test_an_axis_that_one_architecture_of_several_does_not_have_is_refused_too():
    line = refused(BASE, sweeps=["model.name=transformer,recurrent", "model.d_ff=11,13"])
    assert line.startswith("cell model=recurrent,d_ff=11: model.d_ff is no axis of the grid: model.name=recurrent ")


@pytest.mark.parametrize("decoder", ["none_state", "none_input"])
@pytest.mark.parametrize(
    "sweep", ["score=dot,additive", "d_k=3,5", "d_v=3,5", "num_heads=1,2", "attention_bias=true,false"]
)
def test_axes_of_attention_need_a_decoder_that_attends(decoder, sweep):
    named = ["model.name=recurrent"]
    path = f"model.{sweep.partition('=')[0]}"
    line = refused(BASE, [*named, f"model.decoder={decoder}"], [f"model.{sweep}"])
    assert line.endswith(f"{path} is no axis of the grid: without attention (model.decoder) it is not used")
    assert len(make_plan(BASE, [*named, "model.decoder=bahdanau"], [f"model.{sweep}"]).cells) == 2


def test_a_recurrent_model_that_cannot_be_is_refused_in_one_line():
    named = ["model.name=recurrent"]
    line = refused(BASE, [*named, "model.decoder=none_state", "model.bridge=zero"])
    assert line.startswith("model.bridge zero tells the decoder none_state nothing of the source: choose ")
    line = refused(BASE, named, ["model.decoder=luong,none_state", "model.bridge=zero"])
    assert line.startswith("cell decoder=none_state,bridge=zero: model.bridge zero tells the decoder none_state ")
    line = refused(BASE, [*named, "model.input_feeding=true"], ["model.decoder=luong,bahdanau"])
    assert line == "cell decoder=bahdanau: model.input_feeding needs the decoder luong, not bahdanau"
    line = refused(BASE, [*named, "model.rnn=gruu"])
    assert line == "model.rnn = 'gruu' is unknown: choose from gru, lstm, tanh; did you mean gru?"


@pytest.mark.parametrize("task", TASKS)
def test_what_a_task_reads_are_knobs(task):
    assert {f"task.{knob}" for knob in TASKS[task].knobs} <= set(KNOBS)


def test_a_knob_that_is_a_tuple_is_swept_over_tuples(config_file):
    expected = [("a", "b"), ("c",)]
    listed = make_plan(config_file("config.cells.task.train = (('a', 'b'), ('c',))"), TEXT)
    for plan in (
        listed,
        make_plan(BASE, TEXT, sweeps=["task.train=(a,b),(c,)"]),
        make_plan(BASE, TEXT, sweeps=["task.train=((a,b),(c,))"]),
    ):
        assert [cell.task.train for cell in plan.cells] == expected
        assert [cell.axes for cell in plan.cells] == [{"train": "a,b"}, {"train": "c"}]
        assert [cell.name for cell in plan.cells] == ["train=a+b", "train=c"]
    assert make_plan(BASE, TEXT, sweeps=["task.train=(a,b)"]).cells[0].task.train == ("a", "b")
    assert "in brackets: (a,) instead of a" in refused(BASE, sweeps=["task.train=a,b"])


def test_axes_of_several_sections_name_cells_alike_however_they_are_mixed():
    one, other = (
        make_plan(BASE, sweeps=[*sweeps])
        for sweeps in (
            ("model.score=dot,scaled_dot", "optim.clip=0,1", "model.d_k=4,64"),
            ("optim.clip=0,1", "model.score=dot,scaled_dot", "model.d_k=4,64"),
        )
    )
    assert [cell.name for cell in one.cells] == [cell.name for cell in other.cells]
    assert one.cells[0].name == "score=dot,d_k=4,clip=0.0"
    assert one.config == other.config


def test_numbers_close_together_have_names_apart():
    plan = make_plan(BASE, sweeps=["optim.eps=1e-5,2e-5,0.1", "model.tie_embeddings=true,false"])
    names = [cell.name for cell in plan.cells]
    assert names[0] == "tie_embeddings=true,eps=1e-05"
    assert len(set(names)) == 6


def test_a_cell_is_a_folder_and_no_path(tmp_path):
    sweep = "task.train=(../x/y.en,z=1.fr),('..',),('日 本',),('a,b',),(a,b),('a+b',)"
    names = [cell.name for cell in make_plan(BASE, TEXT, sweeps=[sweep]).cells]
    assert len(set(names)) == len(names)
    assert names[0] == "train=..%2Fx%2Fy.en+z%3D1.fr"
    for name in names:
        assert name.isascii()
        assert not set(name) & set(" /\\:*?\"<>|'")
        (tmp_path / name).mkdir()
    line = refused(BASE, TEXT, sweeps=[f"task.train=({'x' * 97},{'y' * 101})"])
    assert line.endswith("205 bytes are too long for the name of a folder")


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("model.d_k=", "model.d_k has an empty list of values: give at least one"),
        ("model.d_k=()", "model.d_k has an empty list of values: give at least one"),
        ("optim.eps=1e-3,0.001,1e-4", "optim.eps = (0.001, 0.001, 0.0001) names 0.001 twice"),
        ("model.d_k=4,0,8", "cell d_k=0: model.d_k = 0 is not allowed: must be at least 1"),
        ("model.score=dot,dott", "cell score=dott: model.score = 'dott' is unknown: choose from "),
        ("optim.warmup_steps=10,601", "cell warmup_steps=601: optim.warmup_steps = 601 is above run.steps = 600"),
        ("model.dropout=0,nan", "cell dropout=nan: model.dropout = nan is not allowed: must be finite"),
        ("model.dk=1,2", "--sweep model.dk is no knob; did you mean model.d_k?"),
        ("model.d_k", "--sweep model.d_k: a value is missing; write --sweep model.d_k=VALUE"),
        ("lanes.lr=1,1.0", "lanes.lr = (1.0, 1.0) names 1.0 twice"),
        ("optim.eps=1e-8,1e-60", "optim.eps = 1e-60 is 0 in float32"),
        ("", "--sweep : a knob is missing; write --sweep SECTION.KNOB=VALUE"),
        ("lanes.momentum=1", "--sweep lanes.momentum is no knob"),
        ("run.checkpoint_every=1,2", "--sweep run.checkpoint_every is no axis of the grid: it tells no cells apart"),
    ],
)
def test_a_grid_that_cannot_be_run_is_refused_whole(sweep, message):
    assert refused(BASE, sweeps=[sweep]).startswith(message)


def test_an_override_of_an_axis_is_not_lost_in_silence():
    line = refused(BASE, ["model.d_k=8"], ["model.d_k=4,64"])
    assert line == "--config.model.d_k would change nothing: it is an axis of the grid; use --sweep model.d_k=..."


@pytest.mark.parametrize("override", ["lanes.lr=1e-3", "cells.model.d_k=4"])
def test_an_override_and_a_sweep_of_one_thing_are_refused(override):
    path = override.removeprefix("cells.").partition("=")[0]
    line = refused(BASE, [override], ["lanes.lr=1e-2", "model.d_k=64"])
    assert line == f"{path} is given by --sweep and by --config too: give it once"


def test_an_architecture_may_refuse_its_widths(monkeypatch):
    class EvenOnly(model.Transformer):
        def __post_init__(self):
            if self.d_k % 2:
                raise ValueError("d_k must be even")
            super().__post_init__()

    monkeypatch.setitem(model.ARCHITECTURES, "even_only", EvenOnly)
    assert len(make_plan(BASE, ["model.name=even_only"], ["model.d_k=2,4"]).cells) == 2
    line = refused(BASE, ["model.name=even_only"], ["model.d_k=2,3"])
    assert line == "cell d_k=3: model.d_k must be even"


def test_free_knobs_are_in_the_config_all_the_same():
    assert {"run.chunk_steps", "run.checkpoint_every"} <= FREE
    assert make_plan(BASE, ["run.chunk_steps=3"]).config["run"]["chunk_steps"] == 3


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["score=dot"], ["score=dot,d_k=4", "score=dot,d_k=64"]),
        (["d_k = 4.0"], ["score=dot,d_k=4", "score=additive,d_k=4"]),
        (["score=dot,d_k=64"], ["score=dot,d_k=64"]),
        (["d_k=64", "score=dot"], ["score=dot,d_k=4", "score=dot,d_k=64", "score=additive,d_k=64"]),
        ([], ["score=dot,d_k=4", "score=dot,d_k=64", "score=additive,d_k=4", "score=additive,d_k=64"]),
    ],
)
def test_only_keeps_the_cells_that_match_one_of_them(only, names):
    sweeps = ["model.score=dot,additive", "model.d_k=4,64"]
    plan = make_plan(BASE, sweeps=sweeps, only=only)
    assert [cell.name for cell in plan.cells] == names
    assert plan.config == make_plan(BASE, sweeps=sweeps).config


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (
            "score=scaled_dot",
            "--only score=scaled_dot: no cell has score=scaled_dot; values of score are dot, additive; "
            "add others, those that the workdir has too, by --sweep model.score=...",
        ),
        (
            "d_v=4",
            "--only d_v=4: d_v is no axis (axes: score, d_k); write --only AXIS=VALUE,AXIS=VALUE, "
            "for alternatives repeat --only; d_v is set by --sweep model.d_v=...",
        ),
        (
            "lr=0.1",
            "--only lr=0.1: lr is no axis (axes: score, d_k); write --only AXIS=VALUE,AXIS=VALUE, "
            "for alternatives repeat --only; lr is set by --sweep lanes.lr=...",
        ),
        ("d_k=4,64", "--only d_k=4,64: 64 is no axis (axes: score, d_k)"),
        ("d_k", "--only d_k: a value is missing; write --only AXIS=VALUE"),
        ("", "--only : nothing is no axis"),
        ("d_k=4,d_k=64", "--only d_k=4,d_k=64: d_k is given twice; for alternatives repeat --only"),
        ("d_k=x", "model.d_k = 'x' has the wrong type: must be a whole number"),
    ],
)
def test_only_that_matches_nothing_says_what_there_is(only, message):
    assert refused(BASE, sweeps=["model.score=dot,additive", "model.d_k=4,64"], only=[only]).startswith(message)


def test_short_names_of_axes():
    assert short_names(["task.name", "model.name", "model.d_k"]) == {
        "task.name": "task",
        "model.name": "model",
        "model.d_k": "d_k",
    }
    assert short_names(["a.width", "b.width", "c.d"]) == {"a.width": "a.width", "b.width": "b.width", "c.d": "d"}


def test_no_axis_has_the_name_of_another_field_of_a_row():
    lane = Lane(0, 1e-3, 0)
    fields = {"step", "split", "attention", "layer", "head", "group", *vars(lane), "cell"}
    names = {path: short_names([path])[path] for path in KNOBS if not path.startswith("lanes.")}
    assert not {path for path, name in names.items() if name in fields}
