"""Strictness for every test: warnings are errors (pyproject.toml), ranks never promote silently, two CPU devices."""

import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_num_cpu_devices", 2)
# Tests compile hundreds of small programs and run each for milliseconds. Subprocesses run with all optimizations.
jax.config.update("jax_disable_most_optimizations", True)

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def parallel_data() -> Path:
    """Folder of real parallel text beside the repository, where there is one."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real parallel text: {folder} is absent")
    return folder
