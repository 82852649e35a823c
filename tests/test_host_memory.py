"""Memory that is left: the machine's, or a control group's where that is less."""

import pytest

from train.host_memory import free_memory

KIB = 1024
MACHINE = 8_000_000


def machine(root, memberships, groups):
    """proc and sys of a machine with MACHINE KiB available."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9000000 kB\nMemAvailable:    {MACHINE} kB\n")
    (root / "proc/self/cgroup").write_text(memberships)
    for folder, files in groups.items():
        (root / "sys/fs/cgroup" / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (root / "sys/fs/cgroup" / folder / name).write_text(text)
    return root


def version_1(limit, used, cache=0):
    return {
        "memory.limit_in_bytes": f"{limit}\n",
        "memory.usage_in_bytes": f"{used}\n",
        "memory.stat": f"cache 3\ntotal_inactive_file {cache}\n",
    }


def version_2(limit, used, cache=0):
    return {
        "memory.max": f"{limit}\n",
        "memory.current": f"{used}\n",
        "memory.stat": f"anon 3\ninactive_file {cache}\n",
    }


@pytest.mark.parametrize(
    ("memberships", "groups", "expected"),
    [
        ("", {}, MACHINE * KIB),
        ("0::/\n", {}, MACHINE * KIB),
        ("0::/job\n", {"job": version_2("max", 5)}, MACHINE * KIB),
        ("0::/job\n", {"job": version_2(1000, 700, 50)}, 350),
        ("0::/job/step\n", {"job": version_2(1000, 700), "job/step": version_2(5000, 10)}, 300),
        ("0::/of/the/host\n", {".": version_2(1000, 100)}, 900),
        ("0::/job\n", {"job": version_2(1000, 1001)}, 0),
        ("4:cpu,memory:/job\n0::/\n", {"memory/job": version_1(1000, 700, 50)}, 350),
        ("5:cpu:/job\n", {"memory/job": version_1(1000, 700)}, MACHINE * KIB),
        ("4:memory:/job\n", {"memory/job": version_1(2**63 - KIB, 700)}, MACHINE * KIB),
    ],
)
def test_the_least_that_machine_and_groups_leave(tmp_path, memberships, groups, expected):
    assert free_memory(machine(tmp_path, memberships, groups)) == expected


def test_a_machine_that_says_nothing_has_its_memory(tmp_path):
    assert free_memory(tmp_path) > 2**20


def test_this_machine():
    assert 2**20 < free_memory() < 2**50
