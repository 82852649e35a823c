"""A workdir begins, is refused, begins anew, and belongs to one process at a time."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workdirs import layout, left_by_a_study, opened, plan, refused, tasks, tree
from train.errors import UserError
from train.log import read_config
from train.plan import Lane
from train.workdir import open_workdir


@pytest.fixture
def study(tmp_path):
    return left_by_a_study(tmp_path / "study")


# A new workdir --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "a/b/c", "with spaces", "実験 ä", "-x"])
def test_a_new_workdir_holds_the_resolved_config(tmp_path, name):
    groups = opened(tmp_path / name, "lanes.lr=1e-3,1e-2", environment={"versions": {"jax": "1"}, "git": None})
    assert groups == [(Lane(0, 1e-3, 0), Lane(1, 1e-3, 1), Lane(2, 1e-2, 0), Lane(3, 1e-2, 1))]
    record = read_config(tmp_path / name)
    assert record["config"] == plan("lanes.lr=1e-3,1e-2").config
    assert record["axes"] == ["score", "d_k"]
    assert [cell["cell"] for cell in record["cells"]] == [cell.name for cell in plan().cells]
    assert record["cells"][1]["axes"] == {"score": "dot", "d_k": 5}
    assert record["cells"][1]["settings"]["model"]["d_k"] == 5
    assert record["lanes"][3] == {"lane": 3, "lr": 1e-2, "seed": 1, "group": 0}
    assert record["versions"] == {"jax": "1"}
    assert record["git"] is None


def test_what_a_killed_first_start_leaves_counts_as_empty(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.json.tmp").write_text('{"conf')
    assert len(opened(tmp_path)) == 1


@pytest.mark.parametrize("path", ["/dev/null/x", "/proc/x", "/dev/null", "x" * 300, "nul\0l"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_unusable_workdirs_are_refused_in_a_line(tmp_path, monkeypatch, path, overwrite):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        open_workdir(path, plan(), tasks(), layout, overwrite=overwrite)
    assert str(caught.value).startswith(f"--workdir={path} cannot be used: ")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path):
    tmp_path.chmod(0o555)
    assert "Permission denied" in refused(tmp_path)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_content_is_refused(tmp_path, overwrite):
    (tmp_path / "thesis.tex").write_text("ten years")
    assert "is not empty and holds no study (it has thesis.tex, no config.json)" in refused(
        tmp_path, overwrite=overwrite
    )
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", ['{"model_type": "bert"}', '{"config": 3, "cells": [], "lanes": []}', "[1]", "{"])
def test_a_config_of_another_program_is_refused(tmp_path, overwrite, content):
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "cells").mkdir()
    assert "config.json" in refused(tmp_path, overwrite=overwrite)
    assert not (tmp_path / ".lock").exists()


# Starting anew --------------------------------------------------------------------------------------------------------


def test_overwrite_removes_what_a_study_leaves_and_nothing_else(study):
    outside = study.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (study / "diagnostics.jsonl").symlink_to(outside / "precious")
    (study / "cells" / "link").symlink_to(outside)
    opened(study, "run.steps=23", sweeps=("model.d_v=2,3",), overwrite=True)
    assert set(tree(study)) == {"config.json", "notes.txt"}
    assert (outside / "precious").exists()
    assert read_config(study)["config"]["run"]["steps"] == 23


def test_overwrite_of_a_link_to_a_folder_removes_the_link(study):
    outside = study.parent / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (study / "cells" / "score=dot,d_k=3").rmdir()
    (study / "cells").rmdir()
    (study / "cells").symlink_to(outside)
    opened(study, overwrite=True)
    assert not (study / "cells").exists()
    assert (outside / "precious").exists()


def test_overwrite_helps_out_of_a_damaged_config(study):
    (study / "config.json").write_text('{"config": ')
    assert "--overwrite" in refused(study)
    opened(study, overwrite=True)
    assert set(tree(study)) == {"config.json", "notes.txt"}


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_what_a_killed_overwrite_left_is_no_study_until_it_is_finished(study, monkeypatch, left):
    removed = iter(range(left))

    def killed(path, *arguments, **keywords):
        if next(removed, None) is None:
            raise KeyboardInterrupt
        return unlink(path, *arguments, **keywords)

    unlink = Path.unlink
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(study, overwrite=True)
    assert "--overwrite again" in refused(study)
    opened(study, overwrite=True)
    assert set(tree(study)) == {"config.json", "notes.txt"}


def test_overwrite_of_nothing_is_a_first_start(tmp_path):
    assert opened(tmp_path / "new", overwrite=True) == [(Lane(0, 3e-3, 0), Lane(1, 3e-3, 1))]


# One process at a time ------------------------------------------------------------------------------------------------


def test_a_workdir_in_use_is_refused_until_it_is_free(study):
    with open_workdir(study, plan(), tasks(), layout, overwrite=False):
        assert f"is in use by process {os.getpid()}" in refused(study)
        assert f"is in use by process {os.getpid()}" in refused(study, overwrite=True)
    opened(study)
    workdir = open_workdir(study, plan(), tasks(), layout, overwrite=False)
    del workdir
    opened(study)


def test_a_refused_workdir_is_not_left_locked(study):
    with pytest.raises(UserError):
        open_workdir(study, plan("run.steps=23"), tasks(), layout, overwrite=False)
    opened(study)


def test_a_killed_process_leaves_no_lock(study):
    program = "import fcntl, sys, time; fcntl.flock(f := open(sys.argv[1]), 2); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, study / ".lock"], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert "is in use by process" in refused(study)
        other.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            opened(study)
            break
        except UserError:
            time.sleep(0.05)
    else:
        pytest.fail("still locked")


def test_the_record_is_strict_json(study):
    json.loads((study / "config.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
