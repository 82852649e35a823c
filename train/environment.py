"""What a study ran on, for config.json, and the compilation cache."""

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

# In JAX's words; of "NotADirectoryError: [Errno 20] Not a directory: 'file'" the system's own.
UNKEPT = re.compile(
    r"Error (?:read|writ)ing persistent compilation cache entry for '.*?': \w+: (?:\[Errno \d+\] )?(.*?)(?:: '.*')?$",
    re.DOTALL,
)
DISTRIBUTIONS = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint", "ml_collections", "sacrebleu")


def describe() -> dict[str, Any]:
    """Versions, device and git revision, as plain data."""
    devices = jax.devices()
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in DISTRIBUTIONS},
        },
        "device": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
        },
        "git": git_revision(),
    }


def git_revision() -> str | None:
    """Commit of the source tree, with "+" where it has changes; None outside a repository."""
    source = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(source), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache directory, unless JAX's own settings name another place.

    Where that cannot be, one line on standard error says so, and nothing else changes.
    """
    setting = "JAX_COMPILATION_CACHE_DIR"
    if jax.config.values["jax_compilation_cache_dir"] is None:
        setting = "XDG_CACHE_HOME"
        home = Path(os.environ.get(setting) or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "dk-lab" / "jax"))
        # Initial values are many small programs: together they take longer to compile than to read.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    _tell_in_one_line(jax.config.values["jax_compilation_cache_dir"], setting)


def _tell_in_one_line(folder: str, setting: str) -> None:
    """Make one line of the warnings that JAX gives for each program that it cannot keep or read."""
    before, told = warnings.showwarning, False

    def show(message: Warning | str, *where: Any, **how: Any) -> None:
        nonlocal told
        unkept = UNKEPT.match(str(message))
        if unkept is None:
            before(message, *where, **how)
        elif not told:
            told = True
            reason = " ".join(unkept[1].split())
            line = f"warning: compiled programs are not kept in {folder}: {reason}; {setting} names another folder"
            tqdm.write(line, file=sys.stderr)  # above a bar, if there is one

    warnings.showwarning = show
