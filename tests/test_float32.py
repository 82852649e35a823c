"""Values that Python tells apart or holds, and float32, in which training runs, does not."""

from pathlib import Path

import jax
import numpy as np
import pytest

from configs import base
from tests.plans import BASE, refused
from train.cells import make_tasks
from train.config import NOT_AXES
from train.errors import UserError
from train.plan import make_plan
from train.schema import KNOBS, check
from train.values import element_of, is_tuple, show, single
from train.workdir import open_workdir

FLOATS = [path for path, knob in KNOBS.items() if element_of(knob.kind) is float]
AXES = [path for path in FLOATS if path not in NOT_AXES]
FRACTIONS = [path for path in FLOATS if "below 1" in KNOBS[path].bound.text]


@pytest.mark.parametrize(
    "value", [0.0, 1e-60, 1e-40, 1.1754942e-38, 1.1754944e-38, 1e-3, 0.99999999999, 3.4e38, -1e-40]
)
def test_single_is_what_a_compiled_program_computes_with(value):
    doubled = jax.jit(lambda x: x * np.float32(2))(np.float32(value))
    with np.errstate(over="ignore"):
        assert np.float32(2) * np.float32(single(value)) == doubled


@pytest.mark.parametrize("path", FLOATS)
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1e-60", "0"),
        ("1e-400", "0"),
        ("1e-40", "0"),
        ("-1_0.00E-61", "0"),
        (f"0.{'0' * 400}1", "0"),
        ("1e39", "infinite"),
        ("1e300", "infinite"),
        ("1E+400", "infinite"),
        ("-1e400", "infinite"),
    ],
)
def test_numbers_that_float32_does_not_hold_are_refused_as_they_were_written(path, text, what):
    section, _, key = path.partition(".")
    said = f"{path} = {text} is {what} in float32, in which training runs; give at "
    assert refused(BASE, [f"{path}={text}"]).startswith(said)
    if path in AXES:
        default = show(base.get_config()[section][key]).strip("(,)")
        assert refused(BASE, sweeps=[f"{path}={default},{text}"]).startswith(said)


@pytest.mark.parametrize("path", FLOATS)
@pytest.mark.parametrize(("value", "what"), [("1e-60", "0"), ("1e+300", "infinite")])
def test_values_of_a_file_are_held_against_float32_too(tmp_path: Path, path, value, what):
    file = tmp_path / "mine.py"
    written = f"({value},)" if is_tuple(KNOBS[path].kind) else value
    lines = ["config = base.get_config()", f"config.{path} = {written}", "return config"]
    file.write_text("from configs import base\ndef get_config():\n" + "".join(f"    {line}\n" for line in lines))
    assert refused(file).startswith(f"{file}: config.{path} = {value} is {what} in float32")


@pytest.mark.parametrize("path", FRACTIONS)
@pytest.mark.parametrize("value", [0.99999999, 1 - 1e-12])
def test_bounds_hold_for_what_float32_makes_of_a_value(path, value):
    check(KNOBS[path], 0.9999999)
    line = f"{path} = {value} is not allowed: must be at least 0 and below 1, and is 1.0 in float32"
    assert refused(BASE, [f"{path}={value}"]).startswith(line)


@pytest.mark.parametrize("path", AXES)
@pytest.mark.parametrize(("one", "other"), [("0.001", "0.001000000001"), ("0.1", "0.10000000149011612")])
def test_values_that_are_one_in_float32_are_refused_by_name(path, one, other):
    line = refused(BASE, sweeps=[f"{path}={one},0.5,{other}"])
    assert line == f"{path}: {one} and {other} are the same in float32, in which training runs; give one of them"
    assert make_plan(BASE, ["optim.name=adamw", "optim.temperature_step=1"], [f"{path}=0.001,0.0010000002"])


@pytest.mark.parametrize(("path", "there", "here"), [("lanes.lr", "0.003", "0.001"), ("optim.eps", "1e-6", "1e-8")])
def test_values_of_two_launches_are_held_against_each_other(tmp_path: Path, path, there, here):
    def launch(values: str) -> None:
        plan = make_plan(BASE, sweeps=[f"{path}={values}"])
        tasks = make_tasks(plan, None)
        with open_workdir(tmp_path / "study", plan, tasks, lambda lanes: {"lane_shards": lanes}):
            pass

    launch(f"{there},{here}")
    launch(here)
    before = (tmp_path / "study" / "config.json").read_bytes()
    twin = repr(float(here) * (1 + 1e-10))
    with pytest.raises(UserError) as caught:
        launch(twin)
    same = f"{float(here)!r} and {twin} are the same in float32, in which training runs; give one of them"
    assert str(caught.value) == f"{tmp_path / 'study'} with what this command adds: {path}: {same}"
    assert (tmp_path / "study" / "config.json").read_bytes() == before
