"""A study whose lanes do not fit into memory at once, and one that is profiled: the same rows all the same."""

import functools
import os
import re
import signal
import threading

import pytest
from conftest import ROOT

import train.loop
import train.profile
from train.errors import UserError
from train.log import DIAGNOSTICS, read_config, read_diagnostics, read_rows
from train.memory import GB, need
from train.plan import make_plan

FEW = (
    "run.steps=12",
    "run.eval_every=6",
    "run.checkpoint_every=6",
    "run.chunk_steps=3",
    "run.devices=2",
    "run.diagnose_every=0",
    "lanes.lr=1e-3,1e-2",
    "model.d_ff=512",  # so that products are among what takes longest
)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Nothing of a run stays in this process: neither the compilation cache nor handlers of signals."""
    monkeypatch.setattr(train.loop, "use_compilation_cache", lambda: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def study(workdir, *overrides: str, score: str = "dot", **flags: bool) -> int:
    plan = make_plan(ROOT / "configs" / "smoke.py", [*FEW, *overrides], [f"model.score={score}"])
    return train.loop.run_study(plan, workdir, overwrite=False, **flags)


def limit(lanes: int) -> str:
    """What lets just so many lanes of the study train together."""
    plan = make_plan(ROOT / "configs" / "smoke.py", FEW, ["model.score=dot"])
    (cell,) = plan.cells
    tasks = train.loop.make_tasks(plan, None)
    layout = train.loop.choose_layout(lanes, cell.run.batch_size, 2, "cpu")
    run = train.loop.make_runs(plan, tasks)[cell.name]
    return f"run.memory_gb={need(cell, run, tasks[cell.name], layout).total(lanes, layout) * 1.001 / GB!r}"


def rows(workdir) -> list[dict]:
    """Without times, by lane."""
    kept = [{key: value for key, value in row.items() if key != "seconds"} for row in read_rows(workdir)]
    return sorted(kept, key=lambda row: (row["lane"], row["step"], row["split"]))


def groups(workdir) -> list[int]:
    return [lane["group"] for lane in read_config(workdir)["lanes"]]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("together") / "study"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.loop, "use_compilation_cache", lambda: None)
        assert study(workdir) == 0
    assert groups(workdir) == [0, 0, 0, 0]
    return workdir


@pytest.mark.slow
def test_lanes_in_groups_give_the_rows_of_lanes_together_stopped_between_groups_or_not(tmp_path, together, monkeypatch):
    test = train.loop.Evaluations.test

    def test_and_stop(evaluations, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return test(evaluations, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(train.loop.Evaluations, "test", test_and_stop)
        assert study(tmp_path / "s", limit(2)) == 128 + signal.SIGTERM
    assert groups(tmp_path / "s") == [0, 0, 1, 1]
    assert {row["lane"] for row in rows(tmp_path / "s")} == {0, 1}
    # Free: another limit, with which one group would do, changes nothing of the lanes that are there.
    assert study(tmp_path / "s", "run.memory_gb=3") == 0
    assert groups(tmp_path / "s") == [0, 0, 1, 1]
    assert len(read_config(tmp_path / "s")["layouts"]) == 2
    assert read_config(tmp_path / "s")["config"]["run"]["memory_gb"] == 3
    for mine, theirs in zip(rows(tmp_path / "s"), rows(together), strict=True):
        for key, value in theirs.items():
            if isinstance(value, float):
                assert mine[key] == pytest.approx(value, rel=1e-5, abs=1e-5)
            else:
                assert mine[key] == value


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_lane_that_does_not_fit_is_refused_before_anything_is_written_or_removed(tmp_path, together, overwrite):
    plan = make_plan(ROOT / "configs" / "smoke.py", [*FEW, "run.memory_gb=1e-6"], ["model.score=dot"])
    workdir = together if overwrite else tmp_path / "none"
    before = rows(together)
    line = r"^cell score=dot needs up to 0\.00\S* GB for one lane, more than the 1e-06 GB of run\.memory_gb \(1e-06\)"
    with pytest.raises(UserError, match=line):
        train.loop.run_study(plan, workdir, overwrite=overwrite)
    assert rows(together) == before
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="for one lane"):
        train.loop.dry_run(plan)


def test_lanes_of_a_later_launch_are_grouped_by_its_limit(tmp_path, together, monkeypatch):
    monkeypatch.setattr(train.loop.Group, "train", lambda *arguments, **keywords: None)
    assert study(tmp_path / "s", limit(2), "lanes.lr=1e-3,") == 0
    assert study(tmp_path / "s", limit(1), "lanes.lr=1e-3,1e-2") == 0
    assert groups(tmp_path / "s") == [0, 0, 1, 2]


def test_a_dry_run_says_how_many_groups_where_it_is_more_than_one(capsys):
    plan = make_plan(ROOT / "configs" / "smoke.py", [*FEW, limit(2)], ["model.score=dot"])
    assert train.loop.dry_run(plan) == 0
    assert "they train in 2 groups, one after another; lanes of each: 2, 2 (run.memory_gb)" in capsys.readouterr().out
    assert train.loop.dry_run(make_plan(ROOT / "configs" / "smoke.py", FEW, ["model.score=dot"])) == 0
    assert "groups" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_profile_names_products_and_changes_no_row(tmp_path, together, capsys, monkeypatch):
    # All operations: which of those of a tiny model are the longest is up to what else the machine does.
    monkeypatch.setattr(train.profile, "TOP", 10_000)
    assert study(tmp_path / "s", score="dot,scaled_dot", profile=True) == 0
    out = capsys.readouterr().out
    assert [row for row in rows(tmp_path / "s") if row["cell"] == "score=dot"] == rows(together)
    assert list((tmp_path / "s" / "profile").rglob("*.xplane.pb"))
    title = out.index("profile of 3 updates: ")
    *table, kinds = out[title : out.index("trace: ", title)].splitlines()
    assert len(table) > 22
    shares = [float(line.split()[-1].rstrip("%")) for line in table[2:]]
    assert shares == sorted(shares, reverse=True)
    assert 5 < sum(shares[:20]) <= 100 + 20 * 0.05
    assert any(re.search(r"  matrix product  f32\[\d", line) for line in table)
    assert not any(re.search(r"  (while|call|conditional|unknown)  ", line) for line in table)
    by_kind = [float(share) for share in re.findall(r" ([\d.]+)%", kinds)]
    assert kinds.startswith("all ")
    assert "matrix product" in kinds
    assert sum(by_kind) == pytest.approx(100, abs=1)
    assert out.count("profile of ") == 1  # of the first cell
    assert study(tmp_path / "s", score="dot,scaled_dot", profile=True) == 0
    assert capsys.readouterr().out.startswith("nothing left to do or to profile: ")


def test_a_group_that_needs_more_than_the_limit_says_so_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train.loop, "_split", lambda *arguments: lambda lanes: [lanes])
    few = ("lanes.lr=1e-3,", "lanes.seed=0,", "run.steps=6", "run.memory_gb=1e-5")
    assert study(tmp_path / "s", *few) == 0
    out = capsys.readouterr().out
    (line,) = re.findall(r"^.*these lanes.*$", out, re.MULTILINE)
    limit = r"more than the 1e-05 GB of run\.memory_gb \(1e-05\); going on"
    assert re.fullmatch(rf"score=dot: these lanes need 0\.00\S* GB together, {limit}", line)


def test_while_a_cell_trains_the_next_one_compiles_and_only_the_next(tmp_path, monkeypatch):
    events = []
    compiled, trained = threading.Event(), train.loop.Group.train

    def programs(group):
        def compile_one(name):
            events.append((name, group._cell.name))
            if (name, group._cell.name) == ("second", "score=dot"):
                compiled.set()

        return [functools.partial(compile_one, name) for name in ("first", "second")]

    def watched(group, *args, **keywords):
        trained(group, *args, **keywords)
        assert compiled.wait(60)
        events.append(("trained", group._cell.name))

    monkeypatch.setattr(train.loop.Group, "programs", programs)
    monkeypatch.setattr(train.loop.Group, "train", watched)
    assert study(tmp_path / "study", score="additive,dot") == 0
    assert events == [
        ("second", "score=additive"),  # it has the first by now
        ("first", "score=additive"),
        ("first", "score=dot"),
        ("second", "score=dot"),
        ("trained", "score=additive"),
        ("second", "score=dot"),
        ("first", "score=dot"),
        ("trained", "score=dot"),
    ]


def test_what_is_compiled_ahead_is_all_that_training_calls(tmp_path, monkeypatch, capsys):
    """Every chunk, both evaluations, what follows them, diagnoses: training adds nothing and announces nothing."""
    counts = []
    trained = train.loop.Group.train

    def watched(group, *args, **keywords):
        for compile_one in group.programs():
            compile_one()
        compiled = group._lanes._programs._compiled
        before = set(compiled)
        trained(group, *args, **keywords)
        counts.append((len(before), len(compiled)))

    monkeypatch.setattr(train.loop.Group, "train", watched)
    assert study(tmp_path / "study", "model.d_k=13", "run.diagnose_every=1", score="additive,dot") == 0
    assert counts == [(4, 4), (4, 4)]
    assert "compiling" not in capsys.readouterr().out


def test_an_error_of_compiling_ahead_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(train.loop.Group, "programs", lambda group: [lambda: 1 / 0])
    assert study(tmp_path / "study", score="additive,dot") == 0


def test_what_waits_to_be_compiled_when_a_study_ends_early_is_dropped(tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    compiled = []

    def fail(group, *arguments, **keywords):
        keywords["begun"]()
        assert begun.wait(60)
        raise UserError("the disk is full")

    def compile_one(name):
        compiled.append(name)
        begun.set()
        go_on.wait(60)

    monkeypatch.setattr(train.loop.Group, "programs", lambda group: [functools.partial(compile_one, n) for n in "ab"])
    monkeypatch.setattr(train.loop.Group, "train", fail)
    try:
        with pytest.raises(UserError, match="the disk is full"):
            study(tmp_path / "study")
    finally:
        go_on.set()
    assert compiled == ["b"]


def steps_diagnosed(workdir) -> list[int]:
    return sorted({row["step"] for row in read_diagnostics(workdir)})


def test_diagnoses_come_before_the_first_update_at_every_nth_evaluation_and_at_the_last(tmp_path):
    for every, steps in (("2", [0, 12, 14]), ("0", [])):
        assert study(tmp_path / every, "run.steps=14", f"run.diagnose_every={every}") == 0
        assert steps_diagnosed(tmp_path / every) == steps
        assert (tmp_path / every / DIAGNOSTICS).exists() == bool(steps)
    found = [row for row in read_diagnostics(tmp_path / "2") if row["step"] == 12 and row["lane"] == 2]
    assert [row["attention"] for row in found][:4] == ["encoder_self", "decoder_self", "cross", None]
    (valid,) = (
        row for row in read_rows(tmp_path / "2") if (row["step"], row["lane"], row["split"]) == (12, 2, "valid")
    )
    assert all(list(row)[:8] == list(valid)[:8] for row in found)  # the lane and the axes of its cell
    # What it looks at changes nothing.
    assert rows(tmp_path / "2") == rows(tmp_path / "0")
