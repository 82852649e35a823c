"""A workdir that is opened again: the same command, free knobs, more cells and lanes, another config."""

import pytest

from tests.workdirs import GRID, SMOKE, layout, left_by_a_study, opened, plan, refused, tasks, tree
from train.log import read_config, write_config
from train.plan import Lane, make_plan
from train.record import find
from train.workdir import open_workdir


@pytest.fixture
def study(tmp_path):
    return left_by_a_study(tmp_path / "study")


def test_the_same_command_changes_nothing(study):
    before = tree(study)
    written = (study / "config.json").stat().st_mtime_ns
    assert opened(study) == [(Lane(0, 3e-3, 0), Lane(1, 3e-3, 1))]
    assert tree(study) == before
    assert (study / "config.json").stat().st_mtime_ns == written


def test_free_knobs_may_change_and_are_recorded(study):
    opened(study, "run.checkpoint_every=7", "run.chunk_steps=3", "run.patience=5")
    record = read_config(study)
    assert record["config"]["run"]["checkpoint_every"] == 7
    assert all(cell["settings"]["run"]["chunk_steps"] == 3 for cell in record["cells"])


def test_a_record_without_a_limit_of_memory_goes_on_and_is_read(study):
    record = read_config(study)
    for settings in (record["config"], *(cell["settings"] for cell in record["cells"])):
        del settings["run"]["memory_gb"]
    write_config(study, record)
    assert find(study, "score=dot,d_k=3", 1).cell.run.memory_gb == 0
    opened(study, "run.memory_gb=2")
    assert find(study, "score=dot,d_k=3", 1).cell.run.memory_gb == 2


def test_new_lanes_are_split_as_asked_and_old_ones_stay(tmp_path):
    def halves(lanes: int) -> list[int]:
        return [lanes - lanes // 2, lanes // 2]

    for seeds, expected in (("0,1,2", [0, 0, 1]), ("0,1,2,3,4", [0, 0, 1, 2, 3])):
        asked = plan(f"lanes.seed={seeds}")
        with open_workdir(tmp_path, asked, tasks(asked), layout, split=halves) as workdir:
            assert [lane["group"] for lane in workdir.record["lanes"]] == expected
            assert len(workdir.record["layouts"]) == len(workdir.groups) == expected[-1] + 1
    with open_workdir(tmp_path, asked, tasks(asked), layout, split=lambda lanes: pytest.fail("nothing is new")):
        pass


def test_cells_can_be_added_and_stay(study):
    opened(study, sweeps=("model.score=dot,additive", "model.d_k=7"))
    record = read_config(study)
    names = [cell["cell"] for cell in record["cells"]]
    assert names == [cell.name for cell in plan().cells] + ["score=dot,d_k=7", "score=additive,d_k=7"]
    assert record["config"]["cells"] == {"model": {"score": ["dot", "scaled_dot", "additive"], "d_k": [3, 5, 7]}}


def test_the_value_that_an_axis_replaces_does_not_matter(tmp_path):
    file = tmp_path / "mine.py"
    for d_k in (3, 5):
        text = SMOKE.read_text(encoding="utf-8")
        file.write_text(text.replace("config.model.d_k = 8", f"config.model.d_k = {d_k}"), encoding="utf-8")
        asked = make_plan(file, sweeps=GRID)
        assert asked.config["model"]["d_k"] == d_k
        with open_workdir(tmp_path / "study", asked, tasks(asked), layout, overwrite=False) as workdir:
            assert len(workdir.record["cells"]) == 4


def test_cells_that_were_left_out_come_later(tmp_path):
    opened(tmp_path, only=("score=dot,d_k=5",))
    assert [cell["cell"] for cell in read_config(tmp_path)["cells"]] == ["score=dot,d_k=5"]
    opened(tmp_path)
    assert len(read_config(tmp_path)["cells"]) == 4


def test_added_lanes_get_the_next_numbers_and_train_together(study):
    first = (Lane(0, 3e-3, 0), Lane(1, 3e-3, 1))
    second = (Lane(2, 1e-2, 0), Lane(3, 1e-2, 1))
    third = (Lane(4, 1e-2, 5),)
    assert opened(study, "lanes.lr=1e-2,3e-3") == [first, second]
    # A group is run whole where one of its lanes is asked for, and is empty, in its place, where none is.
    assert opened(study, "lanes.lr=1e-2", "lanes.seed=1,5") == [(), second, third]
    assert opened(study, "lanes.lr=3e-3", "lanes.seed=1") == [first, (), ()]
    assert opened(study) == [first, (), ()]
    record = read_config(study)
    assert [lane["group"] for lane in record["lanes"]] == [0, 0, 1, 1, 2]
    assert record["config"]["lanes"] == {"lr": [3e-3, 1e-2], "seed": [0, 1, 5]}


def test_another_machine_is_recorded_beside_the_first(study):
    path = study.parent / "environments"
    one, two = {"device": {"count": 2}, "git": "a"}, {"device": {"count": 4}, "git": "a"}
    for environment in (one, two, one, two):
        opened(path, environment=environment)
    record = read_config(path)
    assert record["device"] == {"count": 2}
    assert record["other_environments"] == [two]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["run.steps=23"],
            "holds a study with another config: run.steps is 20 there, 23 here; choose another --workdir",
        ),
        (
            ["model.dropout=0.5", "optim.clip=2"],
            "model.dropout is 0.0 there, 0.5 here; optim.clip is 0.0 there, 2.0 here",
        ),
        (["task.train=a,b"], "task.train is () there, ('a', 'b') here"),
        (["run.devices=1"], "run.devices is 0 there, 1 here"),
    ],
)
def test_another_config_is_refused_naming_keys_and_both_values(study, overrides, message):
    assert message in refused(study, *overrides)
    # also where no cell of the two has the same name
    assert message in refused(study, *overrides, sweeps=("model.score=additive", "model.d_k=2"))


@pytest.mark.parametrize(
    ("sweeps", "message"),
    [
        (
            (*GRID, "model.d_v=2,3"),
            "(axis model.d_v is different): model.score, model.d_k there, model.score, model.d_k,",
        ),
        (GRID[:1], "(axis model.d_k is different): model.score, model.d_k there, model.score here"),
    ],
)
def test_other_axes_are_refused_by_name(study, sweeps, message):
    assert message in refused(study, sweeps=sweeps)


def test_axes_in_another_order_would_give_cells_other_names(study):
    record = read_config(study)
    record["config"]["cells"]["model"] = dict(reversed(record["config"]["cells"]["model"].items()))
    write_config(study, record)
    assert "(their order is different): model.d_k, model.score there, model.score, model.d_k here" in refused(study)


def test_a_cell_whose_settings_differ_is_refused(study):
    record = read_config(study)
    record["cells"][0]["settings"]["model"]["d_v"] = 5
    write_config(study, record)
    assert "cell score=dot,d_k=3 in " in (line := refused(study))
    assert "model.d_v is 5 there, 8 here" in line


@pytest.mark.parametrize("sweeps", [GRID, (*GRID[:1], "model.d_k=7,11")], ids=["the same cells", "other cells"])
def test_other_text_in_the_files_is_refused(study, sweeps):
    message = refused(study, digest="80", sweeps=sweeps)
    assert message.startswith("task.train (")
    assert "put that text back" in message


def test_other_text_is_refused_for_a_new_point_of_an_axis_of_the_task_too(tmp_path):
    text = "task.name=parallel_text"
    opened(tmp_path / "study", text, sweeps=("task.min_count=1",))
    message = refused(tmp_path / "study", text, sweeps=("task.min_count=2",), digest="80")
    assert "put that text back" in message


def test_what_the_tasks_noted_at_first_is_recorded(study):
    opened(study, sweeps=(*GRID[:1], "model.d_k=7"), digest="7f")
    assert {tuple(cell["notes"]) for cell in read_config(study)["cells"]} == {("read 7f",)}


def test_the_layout_of_each_group_is_recorded_once(study):
    opened(study, sweeps=(*GRID, "lanes.seed=0,1,2"))
    assert read_config(study)["layouts"] == [{"lane_shards": 2}, {"lane_shards": 1}]


def test_knobs_of_another_version_are_differences(study):
    record = read_config(study)
    record["config"]["optim"]["momentum"] = 0.5
    del record["config"]["optim"]["clip"]
    write_config(study, record)
    line = refused(study)
    assert "optim.momentum is 0.5 there, absent here" in line
    assert "optim.clip is absent there, 0.0 here" in line
