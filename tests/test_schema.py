"""Bounds and types of knobs, and how values are read from text."""

import dataclasses
import math
from typing import Any

import pytest

from configs import base
from train.errors import UserError
from train.schema import FREE, KNOBS, LARGEST_INT, SECTIONS, check, check_together
from train.values import element_of, is_tuple, parsed, show, split, typed

KINDS = (int, float, bool, str)
NUMERIC = [path for path, knob in KNOBS.items() if element_of(knob.kind) in (int, float)]


def wrapped(path: str, value: Any) -> Any:
    return (value,) if is_tuple(KNOBS[path].kind) else value


def defaults() -> dict[str, Any]:
    config = base.get_config()
    return {f"{section}.{key}": value for section in SECTIONS for key, value in config[section].items()}


def test_base_holds_every_knob_and_no_other():
    config = base.get_config()
    assert set(config.keys()) == {*SECTIONS, "cells"}
    assert set(defaults()) == set(KNOBS)
    assert all(len(section) == 0 for section in config.cells.values())


@pytest.mark.parametrize("path", KNOBS)
def test_defaults_have_their_type_and_keep_their_bound(path):
    knob, value = KNOBS[path], defaults()[path]
    assert element_of(knob.kind) in KINDS
    assert typed(path, knob.kind, value) == value
    # A default that merely converts (0 for a float) would make ConfigDict refuse 0.5 in a config file.
    assert type(value) is (tuple if is_tuple(knob.kind) else knob.kind)
    check(knob, value)


def test_defaults_fit_together():
    check_together(defaults())


def test_settings_are_frozen():
    settings = SECTIONS["lanes"](lr=(1.0,), seed=(0,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.lr = ()


def test_free_knobs_exist():
    assert set(KNOBS) > FREE


@pytest.mark.parametrize("path", [path for path in NUMERIC if element_of(KNOBS[path].kind) is float])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_floats_are_finite(path, value):
    with pytest.raises(UserError, match=f"^{path} = .* is not allowed: must be finite$"):
        check(KNOBS[path], wrapped(path, value))


@pytest.mark.parametrize("path", NUMERIC)
def test_no_number_is_far_below_zero(path):
    with pytest.raises(UserError, match=rf"^{path} = .*-5.* is not allowed: must be (at least|above) "):
        check(KNOBS[path], wrapped(path, typed(path, element_of(KNOBS[path].kind), -5)))


@pytest.mark.parametrize("path", [path for path in NUMERIC if element_of(KNOBS[path].kind) is int])
def test_whole_numbers_fit_the_device(path):
    check(KNOBS[path], wrapped(path, LARGEST_INT))
    with pytest.raises(UserError, match=f"^{path} = .* must be at most {LARGEST_INT}$"):
        check(KNOBS[path], wrapped(path, LARGEST_INT + 1))


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("run.steps", 0, "at least 1"),
        ("model.d_k", 0, "at least 1"),
        ("model.num_heads", 0, "at least 1"),
        ("optim.accumulate", 0, "at least 1"),
        ("model.dropout", 1.0, "at least 0 and below 1"),
        ("model.dropout", 1.5, "at least 0 and below 1"),
        ("optim.label_smoothing", 1.0, "at least 0 and below 1"),
        ("optim.b2", 1.0, "at least 0 and below 1"),
        ("optim.eps", 0.0, "above 0"),
        ("lanes.lr", (1e-3, 0.0), "above 0"),
        ("lanes.lr", (), "above 0 (at least 1 of them)"),
        ("lanes.seed", (), "at least 0 (at least 1 of them)"),
        ("task.bleu_tokenize", "", "a name"),
        ("task.train", ("a", "b", "c"), "paths (at most 2 of them)"),
        ("task.train", ("",), "paths (at most 2 of them)"),
        ("model.score", "", "a name"),
    ],
)
def test_nonsense_is_refused_by_name_and_value_and_bound(path, value, allowed):
    with pytest.raises(UserError) as caught:
        check(KNOBS[path], value)
    assert str(caught.value).startswith(f"{path} = {show(value)} is not allowed: must be {allowed}")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optim.warmup_steps", 0),
        ("model.dropout", 0.0),
        ("optim.clip", 0.0),
        ("run.devices", 0),
        ("task.max_vocab", 0),
        ("task.train", ()),
        ("lanes.seed", (0,)),
    ],
)
def test_edges_that_are_allowed(path, value):
    check(KNOBS[path], value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task.min_length": 23}, "task.min_length = 23 is above task.max_length = 20"),
        ({"optim.accumulate": 5}, "optim.accumulate = 5 does not divide run.batch_size = 32"),
        ({"optim.warmup_steps": 601}, "optim.warmup_steps = 601 is above run.steps = 600"),
        ({"optim.warmup_steps": 600, "optim.schedule": "cosine"}, "optim.warmup_steps = 600 leaves the cosine nothing"),
        ({"optim.weight_decay": 0.1}, "optim.weight_decay = 0.1 would not be used"),
    ],
)
def test_knobs_that_do_not_fit_each_other(changes, message):
    with pytest.raises(UserError) as caught:
        check_together({**defaults(), **changes})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "changes",
    [
        {"optim.warmup_steps": 0},
        {"optim.warmup_steps": 1},
        {"optim.warmup_steps": 600},
        {"optim.warmup_steps": 600, "optim.schedule": "inverse_sqrt"},
        {"optim.warmup_steps": 599, "optim.schedule": "cosine"},
        {"optim.weight_decay": 0.1, "optim.name": "adamw"},
        {"optim.accumulate": 32},
    ],
)
def test_knobs_that_fit_each_other(changes):
    check_together({**defaults(), **changes})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "200", 200),
        (int, "1e3", 1000),
        (int, "10.0", 10),
        (int, "1_000", 1000),
        (int, " -5 ", -5),
        (float, "1", 1.0),
        (float, "3e-4", 3e-4),
        (float, "-inf", -math.inf),
        (bool, "true", True),
        (bool, "False", False),
        (str, "copy", "copy"),
        (str, "'copy'", "copy"),
        (str, '"two words"', "two words"),
        (str, "1e-3", "1e-3"),
        (str, "it's", "it's"),
        (str, "", ""),
        (tuple[str, ...], "dot,additive", ("dot", "additive")),
        (tuple[str, ...], "(dot, additive)", ("dot", "additive")),
        (tuple[str, ...], "['dot','additive']", ("dot", "additive")),
        (tuple[str, ...], "a", ("a",)),
        (tuple[str, ...], "(a,)", ("a",)),
        (tuple[str, ...], "'a,b', c", ("a,b", "c")),
        (tuple[str, ...], "data (old)/a.en, b", ("data (old)/a.en", "b")),
        (tuple[str, ...], "(1)/a,b (2)", ("(1)/a", "b (2)")),
        (tuple[str, ...], "", ()),
        (tuple[str, ...], "()", ()),
        (tuple[str, ...], "[]", ()),
        (tuple[float, ...], "1e-3,3e-3", (1e-3, 3e-3)),
        (tuple[int, ...], "(0, 1e2,)", (0, 100)),
    ],
)
def test_text_is_read_by_the_type_of_the_knob(kind, text, value):
    result = parsed("a.b", kind, text)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "1.5"),
        (int, "ten"),
        (int, ""),
        (int, "nan"),
        (int, "inf"),
        (int, "true"),
        (int, "1e999999999"),
        (int, "1e-999999999"),
        (float, "fast"),
        (float, ""),
        (float, "1,5"),
        (bool, "no"),
        (bool, "2"),
        (bool, "1"),
        (tuple[int, ...], "1,x"),
        (tuple[str, ...], "a,,b"),
        (tuple[int, ...], ",1"),
        (tuple[int, ...], "(1,2"),
        (tuple[str, ...], "'a,b"),
    ],
)
def test_text_of_another_type_is_refused_in_one_line(kind, text):
    with pytest.raises(UserError, match=r"^a\.b.*") as caught:
        parsed("a.b", kind, text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [3, 0.1, 1e-5, True, "two words", (), ("a",), ("a,b", "c"), (1, 2)])
def test_what_is_shown_reads_back(value):
    element = type(value[0]) if isinstance(value, tuple) and value else str
    kind = tuple[element, ...] if isinstance(value, tuple) else type(value)
    assert parsed("a.b", kind, show(value)) == value


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [(float, 1, 1.0), (tuple[float, ...], [1, 2.5], (1.0, 2.5)), (tuple[str, ...], ["a"], ("a",)), (int, 7, 7)],
)
def test_python_values_that_fit(kind, value, result):
    assert typed("a.b", kind, value) == result
    assert type(typed("a.b", kind, value)) is type(result)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, True),
        (int, 1.0),
        (int, "3"),
        (int, None),
        (float, True),
        (float, "1e-3"),
        (float, 10**400),
        (bool, 1),
        (bool, "true"),
        (str, None),
        (str, 3),
        (tuple[str, ...], "ab"),
        (tuple[int, ...], (1, True)),
        (tuple[int, ...], 1),
        (tuple[str, ...], None),
        (tuple[str, ...], (("a",),)),
    ],
)
def test_python_values_of_another_type_are_refused(kind, value):
    with pytest.raises(UserError, match=r"^a\.b = .* has the wrong type: must be "):
        typed("a.b", kind, value)


def test_lists_are_split_at_outer_commas_only():
    assert split("a.b", "(a,b),(c,)") == ["(a,b)", "(c,)"]
    assert split("a.b", "a , [b,(c,d)], 'e,f'") == ["a", "[b,(c,d)]", "'e,f'"]
