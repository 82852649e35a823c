"""Workdirs for tests: opened as a launch does it, over a grid of four cells."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import ROOT

from train.errors import UserError
from train.log import read_config
from train.plan import Plan, make_plan
from train.workdir import open_workdir

SMOKE = ROOT / "configs" / "smoke.py"
GRID = ("model.score=dot,scaled_dot", "model.d_k=3,5")


def plan(*overrides: str, sweeps: tuple[str, ...] = GRID, only: tuple[str, ...] = ()) -> Plan:
    return make_plan(SMOKE, overrides, sweeps, only)


class Read(NamedTuple):
    """A task as a workdir sees it: it read one file."""

    digest: str

    def digests(self):
        return {"task.train": self.digest}

    def notes(self):
        return (f"read {self.digest}",)


def tasks(asked: Plan | None = None, digest: str = "7f") -> dict[str, Any]:
    return {cell.name: Read(digest) for cell in (asked or plan()).cells}


def layout(lanes: int) -> dict[str, int]:
    return {"lane_shards": lanes}


def opened(path, *arguments, overwrite=False, environment=None, digest="7f", **keywords):
    """Open and unlock: the groups of lanes."""
    asked = plan(*arguments, **keywords)
    with open_workdir(
        path, asked, tasks(asked, digest), layout, overwrite=overwrite, environment=environment
    ) as workdir:
        assert workdir.record == read_config(path)
        return workdir.groups


def refused(path, *arguments, **keywords) -> str:
    """The line with which a workdir is refused; nothing in it may have changed."""
    before = tree(path)
    with pytest.raises(UserError) as caught:
        opened(path, *arguments, **keywords)
    assert tree(path) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def tree(path: Path) -> dict[str, bytes | None]:
    return {
        str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else None
        for entry in path.rglob("*")
        if entry.name != ".lock"
    }


def left_by_a_study(path: Path) -> Path:
    """The path, where a workdir now holds what a study leaves, and a file of somebody's own."""
    opened(path)
    (path / "metrics.jsonl").write_text('{"cell": "score=dot,d_k=3"}\n')
    (path / "cells" / "score=dot,d_k=3").mkdir(parents=True)
    (path / "profile" / "plugins").mkdir(parents=True)
    (path / "report.html").write_text("<p>")
    (path / "stacks.txt").write_text("Thread")
    (path / "notes.txt").write_text("mine")
    return path
