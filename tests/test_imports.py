"""Which way imports run, read from the source: scripts -> train -> model, configs by themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("model", "train", "configs", "scripts")
FILES = sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
LONGEST = 320  # lines; a file that needs more has more than one noun

# Own rooms that a room may import, apart from itself, and for the strict ones everything else that it may.
DOWNWARDS = {"model": set(), "train": {"model"}, "configs": set(), "scripts": {"train", "model"}}
OUTSIDE = {"model": {"jax", "flax", "numpy"}, "configs": {"ml_collections"}}

# Of training: the functions that make one program of many runs, and who may use them. The estimate of a dry run only
# counts the operations of an update and times the machine, that of accuracy by length evaluates one trained run at a
# time: they compile nothing that trains.
TRANSFORMS = {"jit", "vmap", "pmap", "shard_map", "lax.map"}
ALLOWED = {"train/lanes.py": TRANSFORMS, "train/estimate.py": {"jit"}, "train/lengths.py": {"jit"}}

STDLIB_OF_MODEL = {"collections", "dataclasses", "functools", "math", "typing"}


def named(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def imports(source: str) -> Iterator[str]:
    """Full dotted names of what is imported anywhere in a file: "train.plan.Cell", "jax"."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import would escape this reading.
            assert node.level == 0, f"relative import in line {node.lineno}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wrong_imports(name: str, source: str) -> list[str]:
    """Imports of a file that run in a direction they may not."""
    room = name.partition("/")[0]
    wrong = []
    for imported in imports(source):
        top = imported.partition(".")[0]
        upwards = top in (*ROOMS, "tests") and top != room and top not in DOWNWARDS[room]
        foreign = room == "configs" and top not in {*OUTSIDE["configs"], "configs"}
        foreign |= room == "model" and top not in {*OUTSIDE["model"], *STDLIB_OF_MODEL, "model"}
        task_of_model = name.startswith("train/tasks/") and top == "model"
        script_of_script = room == "scripts" and top == "scripts"
        checkpoint = top == "orbax" and name != "train/checkpoint.py"
        if upwards or foreign or task_of_model or script_of_script or checkpoint:
            wrong.append(imported)
    return wrong


def transforms(source: str) -> set[str]:
    """Of TRANSFORMS, what a file imports from JAX or reaches as an attribute of it."""
    used = {name.removeprefix("jax.") for name in imports(source) if name.startswith("jax.")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if dotted.startswith(("jax.", "lax.")):
                used.add(dotted.removeprefix("jax."))
    return {name for name in TRANSFORMS for use in used if use == name or use.endswith(f".{name}")}


def test_there_is_something_to_read():
    assert {named(file).partition("/")[0] for file in FILES} >= {"model", "train", "configs"}


@pytest.mark.parametrize("file", FILES, ids=named)
def test_imports_run_downwards(file):
    assert wrong_imports(named(file), file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", FILES, ids=named)
def test_files_are_short_and_named_after_a_noun(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST
    assert file.stem not in ("utils", "util", "helpers", "misc", "common")


@pytest.mark.parametrize("file", sorted((ROOT / "train").rglob("*.py")), ids=named)
def test_only_one_file_makes_one_program_of_many_runs(file):
    assert transforms(file.read_text(encoding="utf-8")) <= ALLOWED.get(named(file), set())


def test_the_one_file_is_seen_to_do_it():
    assert transforms((ROOT / "train/lanes.py").read_text(encoding="utf-8")) >= {"jit", "vmap"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("model/scores.py", "import train"),
        ("model/scores.py", "from train.plan import Cell"),
        ("model/scores.py", "import optax"),
        ("model/scores.py", "from pathlib import Path"),
        ("train/plan.py", "from configs import base"),
        ("train/loop.py", "def f():\n    import scripts.table"),
        ("train/step.py", "from tests import reference"),
        ("train/tasks/copy.py", "from model.scores import SCORES"),
        ("train/loop.py", "import orbax.checkpoint as ocp"),
        ("configs/copy.py", "from train.schema import KNOBS"),
        ("configs/copy.py", "import os"),
        ("scripts/table.py", "from scripts.report import main"),
        ("scripts/table.py", "from configs import base"),
    ],
)
def test_a_wrong_direction_is_seen(name, line):
    assert len(wrong_imports(name, line)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import jax\njax.jit(f)",
        "import jax\n@jax.vmap\ndef f(): ...",
        "from jax import vmap",
        "from jax import lax\nlax.map(f, x)",
        "import jax\njax.lax.map(f, x)",
        "from jax.experimental.shard_map import shard_map",
        "import jax\njax.shard_map(f)",
    ],
)
def test_a_transform_is_seen(source):
    assert transforms(source)


def test_other_maps_are_none():
    assert transforms("import jax\njax.tree.map(f, x)\nmap(f, x)\njax.lax.scan(f, x)\npool.map(f)") == set()
