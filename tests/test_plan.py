"""Config files and overrides from the command line, and what is refused of them."""

import ast
import dataclasses
import json
from typing import Any

import pytest
from conftest import ROOT

from configs import base
from tests.plans import BASE, refused
from train.plan import Lane, make_plan
from train.schema import KNOBS, SECTIONS
from train.values import is_tuple, show

TEXT = ["task.name=parallel_text"]
CONFIGS = sorted(file for file in (ROOT / "configs").rglob("*.py") if file.name != "__init__.py")

# A second value for each knob that is a name or a flag; numbers and paths have theirs made.
OTHER_NAMES = {
    "task.name": "reverse",
    "task.tokenizer": "char",
    "task.bleu_tokenize": "13a",
    "model.name": "recurrent",
    "model.score": "dot",
    "model.position": "sinusoidal",
    "model.norm": "post",
    "model.dtype": "bfloat16",
    "optim.name": "sgd",
    "optim.schedule": "inverse_sqrt",
    "run.select": "token_accuracy",
    "model.rnn": "gru",
    "model.decoder": "none_input",
    "model.bridge": "zero",
    "model.initial": "uniform",
}


def other_value(path: str) -> Any:
    """A value that is allowed and, where there is a choice, not the default."""
    section, _, key = path.partition(".")
    default, kind = base.get_config()[section][key], KNOBS[path].kind
    if path in OTHER_NAMES:
        return OTHER_NAMES[path]
    if kind is bool:
        return not default
    if kind is int:
        return 2 * default or 3
    if kind is float:
        return default / 2 or 0.25
    return {"lanes.lr": (0.5, 0.25), "lanes.seed": (7, 3)}.get(path, ("a b.tsv", "c,d.tsv"))


def fits(path: str) -> list[str]:
    """What else has to be said for the other value of a knob to be allowed."""
    return {
        "task.min_length": ["task.max_length=97"],
        "optim.weight_decay": ["optim.name=adamw"],
        "optim.temperature_after": ["optim.temperature_step=7"],
    }.get(path, [])


# Config files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_config_expands(file):
    plan = make_plan(file)
    grid = [options for section in plan.config["cells"].values() for options in section.values()]
    count = 1
    for options in grid:
        count *= len(options)
    assert len({cell.name for cell in plan.cells}) == len(plan.cells) == count
    assert len(plan.lanes) == len(plan.config["lanes"]["lr"]) * len(plan.config["lanes"]["seed"])
    assert json.loads(json.dumps(plan.config, allow_nan=False)) == plan.config


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_every_config_says_what_to_type_and_what_to_expect(file):
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    assert f"python -m train --config={file.relative_to(ROOT).as_posix()} --workdir=" in docstring
    assert file.stem == "base" or "Expect" in docstring


def test_the_studies_have_the_size_they_announce():
    quick, study = make_plan(ROOT / "configs/dk_quick.py"), make_plan(ROOT / "configs/dk_study.py")
    assert (len(quick.cells), len(quick.lanes)) == (12, 9)
    assert (len(study.cells), len(study.lanes)) == (66, 25)
    assert quick.cells[0].name == "score=additive,d_k=4"
    assert study.cells[-1].name == "task=toy_translation,score=scaled_dot,d_k=1024"


def test_a_single_run_is_one_cell_and_one_lane():
    plan = make_plan(BASE)
    assert [cell.name for cell in plan.cells] == ["task=copy"]
    assert plan.cells[0].axes == {}
    assert plan.lanes == (Lane(0, 3e-3, 0),)


def test_the_resolved_config_is_in_the_order_of_base():
    config = make_plan(BASE).config
    assert list(config) == [*SECTIONS, "cells"]
    assert [f"{section}.{key}" for section in SECTIONS for key in config[section]] == list(KNOBS)


def test_plans_are_frozen():
    plan = make_plan(BASE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.cells[0].model.d_k = 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("config.optim.warmup_stepz = 3", "config.optim.warmup_stepz is no knob; did you mean optim.warmup_steps?"),
        ("config.model.steps = 3", "config.model.steps is no knob; did you mean run.steps?"),
        ("config.run.flux_capacitor = 3", "config.run.flux_capacitor is no knob; all knobs are in configs/base.py"),
        ("config.learning_ratee = 1e-2", "config.learning_ratee is no section"),
        ("config.modell = 3", "config.modell is no section; did you mean model?"),
        ("del config.model.d_k", "config.model.d_k is missing; begin with base.get_config()"),
        ("del config.optim", "the section config.optim is missing; begin with base.get_config()"),
        ("del config.cells", "the section config.cells is missing; begin with base.get_config()"),
        ("config.model.dropout = None", "config.model.dropout = None has the wrong type: must be a number"),
        ("config.run.steps = True", "config.run.steps = true has the wrong type: must be a whole number"),
        ("config.lanes.lr = ('fast',)", "config.lanes.lr = 'fast' has the wrong type: must be a number"),
        ("config.cells.model.d_k = 4", "config.cells.model.d_k = 4 must be a tuple of values"),
        ("config.cells.model.score = 'dot'", "config.cells.model.score = 'dot' must be a tuple of values"),
        ("config.cells.model.d_k = (4, 8.0)", "config.cells.model.d_k = 8.0 has the wrong type"),
        ("config.cells.model.dk = (4, 8)", "config.cells.model.dk is no knob; did you mean model.d_k?"),
        ("config.cells = {'model': (4, 8)}", "config.cells.model must be a section"),
        ("config.cells.lanes = {'lr': (1., 2.)}", "config.cells.lanes.lr is no axis of the grid: lanes are listed in"),
        ("config.cells.run.chunk_steps = (4, 8)", "config.cells.run.chunk_steps is no axis of the grid"),
        ("config.cells.run.devices = (1, 2)", "config.cells.run.devices is no axis of the grid"),
    ],
)
def test_mistakes_in_a_file_are_named_with_the_file(config_file, line, message):
    file = config_file(line)
    assert refused(file).startswith(f"{file}: {message}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("config.model.d_k = 'wide'", "line 6: TypeError: Could not override field"),
        ("config.model.d_k = 1 // 0", "line 6: ZeroDivisionError: "),
        ("raise SystemExit(3)", "line 6: SystemExit: 3"),
        ("config.model.d_k = = 3", "line 6: SyntaxError: invalid syntax"),
        ("raise ValueError('first\\nsecond')", "line 6: ValueError: first second"),
        ("import no_such_module", "line 6: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_an_exception_in_a_file_is_one_line_with_its_place(config_file, line, message):
    file = config_file(line)
    assert refused(file).startswith(f"{file}, {message}")


def test_files_that_give_no_config(tmp_path, config_file):
    what = "; give a Python file with get_config(); --help lists the configs"
    assert refused(tmp_path / "absent.py") == f"--config={tmp_path}/absent.py: No such file or directory{what}"
    for folder in (tmp_path, ".", ROOT / "configs"):
        assert refused(folder) == f"--config={folder}: Is a directory{what}"
    assert refused(config_file(begin="config = 3")).endswith("get_config() must return a ConfigDict, not int")
    file = tmp_path / "no_config"
    for content in (b"", b"x = 1", b'{"config": null}', b"plain text", bytes(range(256)), "x = 1".encode("utf-16")):
        file.write_bytes(content)
        assert refused(file).startswith(str(file))
        assert refused(file).endswith(what)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (ROOT / "configs" / "dk_quik.py", ROOT / "configs" / "dk_quick.py"),
        ("smoke", "configs/smoke.py"),
        ("smok.py", "configs/smoke.py"),
        ("elsewhere/dk_study.py", "configs/dk_study.py"),
    ],
)
def test_a_config_of_nearly_that_name_is_suggested(monkeypatch, given, meant):
    monkeypatch.chdir(ROOT)
    assert refused(given) == f"--config={given}: No such file or directory; did you mean {meant}?"


def test_a_file_edited_twice_in_a_moment_is_read_anew(config_file):
    assert make_plan(config_file("config.model.d_k = 3")).cells[0].model.d_k == 3
    assert make_plan(config_file("config.model.d_k = 5")).cells[0].model.d_k == 5


def test_a_config_may_refer_to_its_own_values(config_file):
    assert make_plan(config_file("config.model.d_v = config.model.get_ref('d_k') * 2")).cells[0].model.d_v == 128


# Overrides ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", KNOBS)
def test_every_knob_can_be_overridden(path):
    value = other_value(path)
    text = show(value) if is_tuple(KNOBS[path].kind) or isinstance(value, bool) else str(value)
    plan = make_plan(BASE, overrides=[f"{path}={text}", *fits(path)])
    section, _, key = path.partition(".")
    assert plan.config[section][key] == (list(value) if isinstance(value, tuple) else value)
    if section == "lanes":
        assert tuple(dict.fromkeys(getattr(lane, key) for lane in plan.lanes)) == value
    else:
        resolved = getattr(getattr(plan.cells[0], section), key)
        assert resolved == value
        assert type(resolved) is type(value)


def test_the_command_line_wins_also_with_a_default_and_the_last_of_two_wins(config_file):
    file = config_file("config.run.batch_size = 64")
    assert base.get_config().run.batch_size == 32
    assert make_plan(file).config["run"]["batch_size"] == 64
    assert make_plan(file, ["run.batch_size=32"]).config["run"]["batch_size"] == 32
    assert make_plan(file, ["run.batch_size=7", "run.batch_size=32"]).cells[0].run.batch_size == 32


def test_a_list_can_be_emptied(config_file):
    file = config_file("config.task.train = ('a', 'b')")
    assert make_plan(file).cells[0].task.train == ("a", "b")
    assert make_plan(file, ["task.train="]).cells[0].task.train == ()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("run.stepz=3", "--config.run.stepz is no knob; did you mean run.steps?"),
        ("stepz=3", "--config.stepz is no knob; did you mean run.steps?"),
        ("run.steps", "--config.run.steps: a value is missing; write --config.run.steps=VALUE"),
        ("run.steps=0", "run.steps = 0 is not allowed: must be at least 1"),
        ("run.steps=-1", "run.steps = -1 is not allowed: must be at least 1"),
        ("run.steps=1.5", "run.steps = '1.5' has the wrong type: must be a whole number"),
        ("model.dropout=1.5", "model.dropout = 1.5 is not allowed: must be at least 0 and below 1"),
        ("model.num_heads=0", "model.num_heads = 0 is not allowed: must be at least 1"),
        ("lanes.lr=nan", "lanes.lr = (nan,) is not allowed: must be finite"),
        ("lanes.lr=1e-3,-1", "lanes.lr = (0.001, -1.0) is not allowed: must be above 0"),
        ("lanes.lr=", "lanes.lr = () is not allowed: must be above 0 (at least 1 of them)"),
        ("lanes.lr=1e-3,0.001", "lanes.lr = (0.001, 0.001) names 0.001 twice: give each value once"),
        ("lanes.seed=-1", "lanes.seed = (-1,) is not allowed: must be at least 0"),
        ("lanes.seed=0,0", "lanes.seed = (0, 0) names 0 twice: give each value once"),
        ("optim.warmup_steps=601", "optim.warmup_steps = 601 is above run.steps = 600"),
        (
            "optim.temperature_step=600",
            "optim.temperature_step = 600 leaves no update after the change: must be below run.steps = 600",
        ),
        (
            "optim.temperature_after=2",
            "optim.temperature_after = 2 would not be used: "
            "give optim.temperature_step, the last update before the change",
        ),
        ("model.tie_embeddings=no", "model.tie_embeddings = 'no' has the wrong type: must be true or false"),
        ("cells.lanes.lr=1,2", "--config.cells.lanes.lr is no axis of the grid"),
        ("model.d_k=4,64", "--config.model.d_k=4,64 must be one value; several are an axis: --sweep model.d_k=4,64"),
        ("run.patience=1,2", "run.patience = '1,2' has the wrong type: must be a number"),
        ("lanes.seed=0-4", "lanes.seed = '0-4' has the wrong type: must be a whole number; a list is written a,b"),
        ("lanes.lr=1e-3 3e-3", "lanes.lr = '1e-3 3e-3' has the wrong type: must be a number; a list is written a,b"),
        ("=3", "--config.=3: a knob is missing; write --config.SECTION.KNOB=VALUE"),
    ],
)
def test_nonsense_on_the_command_line_is_refused_by_name(override, message):
    assert refused(BASE, [override]).startswith(message)


@pytest.mark.parametrize(
    "path",
    [
        "task.name",
        "task.tokenizer",
        "task.bleu_tokenize",
        "model.name",
        "model.score",
        "model.position",
        "model.norm",
        "model.dtype",
        "optim.name",
        "optim.schedule",
        "run.select",
    ],
)
def test_unknown_names_list_the_known_ones(path):
    line = refused(BASE, [f"{path}=no_such_thing"])
    choices = line.removeprefix(f"{path} = 'no_such_thing' is unknown: choose from ").split(", ")
    assert choices == sorted(choices)
    section, _, key = path.partition(".")
    assert base.get_config()[section][key] in choices


def test_a_name_nearly_right_is_suggested():
    line = refused(BASE, ["model.score=scaled_dott"])
    assert line.endswith("; did you mean scaled_dot?")
