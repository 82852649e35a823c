"""What the documents say can be done: every command of the README and of the configs' docstrings, with few steps."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from train.log import read_rows
from train.plan import make_plan

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGS = sorted(path for path in (ROOT / "configs").rglob("*.py") if path.name != "__init__.py")
CUT_DOWN = [
    f"--config.{setting}"
    for setting in (
        "run.steps=2",
        "run.eval_every=2",
        "run.batch_size=4",
        "run.eval_batch_size=8",
        "run.diagnose_every=0",
        "optim.warmup_steps=1",
        "task.valid_size=8",
        "task.test_size=8",
        "model.d_model=8",
        "model.d_ff=8",
        # What follows is so that most commands have the same programs, which are compiled once.
        "model.num_layers=1",
        "model.d_k=4",
        "task.min_length=5",
        "task.max_length=5",
        "task.symbols=10",
    )
]
CUT_DOWN_AXES = {"model.d_k": "4", "optim.temperature_step": "0,1"}  # of two updates


def commands(text: str) -> list[str]:
    """Command lines of a text that start training, backslashes at line ends joined."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    found = re.findall(r"^(?:\S*/)?python -m train (.*?)(?:  .*)?$", joined, re.MULTILINE)
    return [command for command in found if "--workdir" in command]


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def cut_down(command: str, workdir: Path) -> list[str]:
    """Its arguments, with the workdir and the files moved, and the first cell, rate and seed of the grid alone."""
    arguments = [argument for argument in shlex.split(command) if not argument.startswith("--workdir=")]
    if "--config.task.train" in command:
        for name in re.findall(r"[\w.]+\.(?:en|fr|ja)\b", command):
            words = ["a", "small", "cat", "sleeps", "here", "today"]
            lines = [" ".join(words[start : start + 4]) for start in range(3)] * 5
            (workdir.parent / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        arguments = [re.sub(r"(?<=[=,])(?=\w+\.(?:en|fr|ja)\b)", f"{workdir.parent}/", one) for one in arguments]
    config = next(argument.removeprefix("--config=") for argument in arguments if argument.startswith("--config="))
    axes = {f"{section}.{key}" for section, axes in make_plan(ROOT / config).config["cells"].items() for key in axes}
    arguments += [one for one in CUT_DOWN if one.partition("=")[0].removeprefix("--config.") not in axes]
    cut_axes = [f"{axis}={values}" for axis, values in CUT_DOWN_AXES.items() if axis in axes]
    plan = make_plan(ROOT / config, (), cut_axes)
    sweeps = [*cut_axes, f"lanes.lr={plan.lanes[0].lr}", f"lanes.seed={plan.lanes[0].seed}"]
    arguments += [f"--sweep={sweep}" for sweep in sweeps]
    if plan.cells[0].axes:
        arguments.append("--only=" + ",".join(f"{name}={value}" for name, value in plan.cells[0].axes.items()))
    return [*arguments, f"--workdir={workdir}"]


DOCUMENTED = [pytest.param(docstring(path), id=path.stem) for path in CONFIGS] + [pytest.param(README, id="README")]


@pytest.mark.parametrize("text", DOCUMENTED)
def test_every_document_has_a_command_that_starts_training(text):
    assert commands(text)


@pytest.mark.slow
@pytest.mark.parametrize("text", DOCUMENTED)
def test_the_commands_run(text, tmp_path, subprocess_environment):
    for number, command in enumerate(commands(text)):
        workdir = tmp_path / str(number)
        started = subprocess.run(
            [sys.executable, "-m", "train", *cut_down(command, workdir)],
            cwd=ROOT,
            env={**subprocess_environment, "JAX_DISABLE_MOST_OPTIMIZATIONS": "true"},
            capture_output=True,
            text=True,
            timeout=110,
        )
        assert started.returncode == 0, started.stdout + started.stderr
        assert [row["split"] for row in read_rows(workdir)] == ["train", "valid", "test"]
        for script in ("table.py", "report.py"):
            subprocess.run([sys.executable, f"scripts/{script}", workdir], cwd=ROOT, check=True, timeout=60)


def test_the_commands_of_the_readme_are_those_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_files_that_the_readme_points_to_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_configs_that_the_readme_lists_are_those_there_are():
    listed = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `.*?\|", README.partition("## Read")[0], re.MULTILINE)))
    )
    assert {path.stem for path in CONFIGS} - {"base"} <= listed


def test_nothing_is_left_to_be_measured():
    for path in [*CONFIGS, ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(MEASURE|TODO|TABLE|ROW)\b|_MINUTES\b", text), path


def anchors(text: str) -> set[str]:
    """Of the headings of a Markdown text, as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_all_that_the_list_of_the_articles_points_to_is_there():
    text = (ROOT / "docs" / "articles.md").read_text(encoding="utf-8")
    tests = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text)
    assert len(tests) > 20
    for file, name in tests:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"{file}::{name}"
    files = re.findall(r"`((?:configs|model|scripts|train)/\w+\.py)`", text)
    assert {"configs/bottleneck.py", "configs/recurrent_copy.py"} <= set(files)
    for file in files:
        assert (ROOT / file).is_file(), file
    links = re.findall(r"\]\(([^)#]+)#([^)]+)\)", text)
    assert links
    for file, anchor in links:
        assert anchor in anchors((ROOT / "docs" / file).read_text(encoding="utf-8")), f"{file}#{anchor}"
