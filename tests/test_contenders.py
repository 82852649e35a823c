"""Contenders as child processes: ones that behave and ones that do not."""

import importlib
import os
import sys
import textwrap
import time
from typing import Any

import pytest
from conftest import ROOT

BENCHMARK = ROOT / "scripts" / "benchmark"
sys.path.insert(0, str(BENCHMARK))  # as `python scripts/benchmark` has it
process = importlib.import_module("process")

FAKE = """
    import os, time
    from serve import Prepared

    print("noise of a library")

    def prepare(spec):
        {prepare}
        def repeat():
            {repeat}
            with open(spec["log"], "a") as file:
                print(spec["name"], file=file)
            return {{"seconds": 0.5, "count": spec["count"]}}
        return Prepared(repeat, {{"pid": os.getpid()}}, 0.25)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes a contender that counts as told, with more to do while it prepares and in a repeat."""
    (tmp_path / "contenders").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process._say.cache_clear()

    def make(name: str, counts: tuple[int, ...] = (3,), prepare: str = "pass", repeat: str = "pass") -> Any:
        source = textwrap.dedent(FAKE).format(prepare=prepare, repeat=repeat)
        (tmp_path / "contenders" / f"fake_{name}.py").write_text(source)
        specs = tuple({"name": name, "log": str(tmp_path / "log"), "count": count} for count in counts)
        return process.Contender(name, f"fake_{name}", specs)

    return make


def test_contenders_work_in_turn_each_round_beginning_with_another(fake, tmp_path):
    out = process.measure([fake("a"), fake("b", counts=(1, 2))], 3)
    assert out.rates("a") == [6.0, 6.0, 6.0]
    assert out.rates("b") == [6.0, 6.0, 6.0]  # of two processes at once, 2 and 4
    assert out.ready["a"][0]["compile_seconds"] == 0.25
    assert (tmp_path / "log").read_text().split() == [*"abb", *"bba", *"abb"]
    assert not out.lost


def test_rounds_end_when_the_time_is_up_but_not_before_three(fake):
    out = process.measure([fake("slow", repeat="time.sleep(0.05)")], 50, seconds=0.01)
    assert len(out.rates("slow")) == process.FEWEST == 3


@pytest.mark.parametrize(
    ("where", "status"),
    [({"prepare": "raise ValueError('no')"}, "1: ValueError: no"), ({"repeat": "os._exit(7)"}, "7: ")],
)
def test_a_child_that_dies_is_told_in_one_line_and_the_others_go_on(fake, where, status, capfd):
    out = process.measure([fake("dying", **where), fake("a")], 2)
    assert out.rates("a") == [6.0, 6.0]
    assert list(out.rounds) == ["a"]
    assert out.lost["dying"].startswith(f"ended with status {status}")
    assert capfd.readouterr().err == f"dying: {out.lost['dying']}\n"


@pytest.mark.parametrize("where", ["prepare", "repeat"])
def test_a_child_that_hangs_is_ended_in_time(fake, where, tmp_path):
    note = tmp_path / "pid"
    hang = f"open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    since = time.monotonic()
    out = process.measure([fake("hanging", **{where: hang}), fake("a")], 2, prepare_limit=2.0, repeat_limit=2.0)
    assert time.monotonic() - since < 20
    assert out.lost == {"hanging": "no answer within 2 s"}
    assert len(out.rates("a")) == 2
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_a_missing_package_or_interpreter_is_told_once(fake, capfd):
    missing = fake("missing", prepare="import no_such_package")
    absent = fake("absent")._replace(python="/no/such/python")
    for _ in range(2):
        out = process.measure([missing, absent, fake("a")], 1)
        assert list(out.rounds) == ["a"]
    assert capfd.readouterr().err.splitlines() == [
        "missing: No module named 'no_such_package'; make bench-setup",
        "absent: /no/such/python: No such file or directory; make bench-setup, or name another with --python",
    ]


def test_nothing_is_left_running(fake):
    out = process.measure([fake("a")], 1)
    with pytest.raises(ProcessLookupError):
        os.kill(out.ready["a"][0]["facts"]["pid"], 0)
