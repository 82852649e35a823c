"""What this process may still take of the machine's memory, as Linux tells it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class _Files(NamedTuple):
    """Of a control group: its limit, its use, and the entry of memory.stat with what is cache that Linux would drop."""

    limit: str
    used: str
    cache: str


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")


def free_memory(root: Path = Path("/")) -> int:
    """Bytes: of the machine's memory, or less where a control group (of a container, of a Slurm job) leaves less.

    root: where the machine's proc and sys are.
    """
    return min([_of_machine(root), *_of_control_groups(root)])


def _of_machine(root: Path) -> int:
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_control_groups(root: Path) -> Iterator[int]:
    """What each group leaves that this process is in; a group that has no limit, or is not shown, says nothing."""
    try:
        memberships = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, files = root / "sys/fs/cgroup", _VERSION_2
        elif "memory" in controllers.split(","):
            top, files = root / "sys/fs/cgroup/memory", _VERSION_1
        else:
            continue
        # A container sees its own group at the top, whatever the path says; elsewhere all groups above limit as well.
        own = top / path.lstrip("/")
        for group in (own, *own.parents):
            if group == top or top in group.parents:
                yield from _of_group(group, files)


def _of_group(group: Path, files: _Files) -> Iterator[int]:
    try:
        limit, used = (int((group / name).read_text(encoding="ascii")) for name in (files.limit, files.used))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    except (OSError, ValueError):  # "max" where there is no limit
        return
    yield max(0, limit - used + int(stat.get(files.cache, 0)))
