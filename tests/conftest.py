"""Strictness for every test: warnings are errors (pyproject.toml), ranks never promote silently, two CPU devices."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

import jax
import pytest

import train.lanes

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# Tests compile hundreds of small programs and run each for milliseconds. Subprocesses run with all optimizations.
jax.config.update("jax_disable_most_optimizations", True)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs() -> Iterator[None]:
    """Programs of a file are dropped after it: a process that holds tens of thousands of mappings may get no more."""
    yield
    train.lanes.kept.clear()
    jax.clear_caches()


@pytest.fixture(scope="session")
def subprocess_environment(tmp_path_factory) -> dict[str, str]:
    """Environment of a command as a user starts it; programs compiled once are shared by the tests of a session."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "TF_", "XLA_"))}
    return {
        **clean,
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture(scope="session")
def parallel_data() -> Path:
    """Folder of real parallel text beside the repository, where there is one."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real parallel text: {folder} is absent")
    return folder


@pytest.fixture
def config_file(tmp_path):
    """Writes a config file: base with these lines."""

    def write(*lines: str, begin: str = "config = base.get_config()") -> Path:
        body = "".join(f"    {line}\n" for line in (begin, *lines))
        file = tmp_path / "mine.py"
        file.write_text(f"from configs import base\n\n\ndef get_config():\n{body}    return config\n", encoding="utf-8")
        return file

    return write
