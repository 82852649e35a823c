"""From a plan to tasks and models; ids that no vocabulary has."""

import numpy as np
import pytest
from conftest import ROOT

from train.cells import make_run, make_tasks
from train.errors import UserError
from train.plan import Plan, make_plan
from train.tasks import Batch, check_ids


def text_plan(folder, scores: str = "dot") -> Plan:
    for name in ("a", "b"):
        (folder / name).write_text("one two\nthree\n", encoding="utf-8")
    files = [f"task.{split}={folder}/a,{folder}/b" for split in ("train", "valid", "test")]
    overrides = [*files, "task.min_count=1", "run.batch_size=2", "run.eval_batch_size=2"]
    return make_plan(ROOT / "configs" / "parallel_text.py", overrides, sweeps=[f"model.score={scores}", "model.d_k=5"])


def test_cells_with_one_task_share_it_and_others_do_not(tmp_path):
    plan = make_plan(ROOT / "configs" / "smoke.py", sweeps=["model.score=dot,scaled_dot", "task.symbols=5,7"])
    tasks = make_tasks(plan, None)
    assert len(tasks) == 4
    assert len({id(task) for task in tasks.values()}) == 2


@pytest.mark.parametrize("left", [(), ("source.vocab",), ("source.vocab", "target.vocab")])
def test_vocabularies_that_a_kill_left_half_written_are_made_again(tmp_path, left):
    plan = text_plan(tmp_path)
    (name,) = make_tasks(plan, None)
    folder = tmp_path / "study" / "cells" / name
    folder.mkdir(parents=True)
    make_tasks(plan, None)[name].write(folder)
    for file in ("source.vocab", "target.vocab"):
        if file not in left:
            (folder / file).unlink()
    task = make_tasks(plan, tmp_path / "study")[name]
    assert any("as stored in" in note for note in task.notes()) == (len(left) == 2)
    assert task.source_vocab == 7


def test_a_model_that_does_not_fit_the_vocabularies_is_refused_by_the_name_of_the_cell(tmp_path):
    plan = text_plan(tmp_path)
    (tmp_path / "b").write_text("eins zwei\ndrei vier\n", encoding="utf-8")
    cell = make_plan(
        ROOT / "configs" / "parallel_text.py",
        [f"task.{split}={tmp_path}/a,{tmp_path}/b" for split in ("train", "valid", "test")]
        + ["task.min_count=1", "model.tie_embeddings=true"],
        sweeps=["model.score=dot", "model.d_k=5"],
    ).cells[0]
    task = make_tasks(plan, None)[cell.name]
    with pytest.raises(UserError, match=r"^cell score=dot,d_k=5: tie_embeddings needs equal vocabularies"):
        make_run(cell, task)


@pytest.mark.parametrize("bad", [9, 10, 99, -1, -11, -100])
@pytest.mark.parametrize("side", [0, 1])
def test_ids_outside_a_vocabulary_are_named_before_a_step_is_made(bad, side):
    task = make_tasks(make_plan(ROOT / "configs" / "smoke.py", ["task.symbols=5"]), None).popitem()[1]
    batch = Batch(np.full((3, 7), 8, np.int32), np.full((3, 7), 4, np.int32))
    check_ids(batch, task)
    batch[side][1, 6] = bad
    with pytest.raises(
        ValueError, match=f"id {bad} in a {('source', 'target')[side]} batch is outside its vocabulary of 9"
    ):
        check_ids(batch, task)
