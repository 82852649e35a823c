"""What the process keeps of memory given back, seen from outside: in processes of their own, since settings stay."""

import json
import os
import platform
import subprocess
import sys

import pytest
from conftest import ROOT

from train.allocator import LARGEST_KEPT, SETTINGS

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

# A thread takes a block, touches it and gives it back; how much of it does the process still hold?
HELD = """
import ctypes, threading
from train.allocator import keep_memory

def resident():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024

set_up = keep_memory({block}, 2)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def work():
    block = libc.malloc({size})
    ctypes.memset(block, 1, {size})
    libc.free(block)

before = resident()
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(len(set_up), (resident() - before) / {size})
"""

# Threads that all hold a small block: how many arenas do they use?
ARENAS = """
import ctypes, os, threading
from train.allocator import keep_memory

keep_memory({block}, 3)
libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
gate = threading.Barrier(10)

def work():
    libc.malloc(ctypes.c_size_t(5000))
    gate.wait(30)

threads = [threading.Thread(target=work) for _ in range(9)]
for thread in threads:
    thread.start()
gate.wait(30)
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def output(source: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    return subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env={**inherited, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout


def held(block: float, **environment: str) -> tuple[int, float]:
    """(settings made, share of a block of twice LARGEST_KEPT that stays)."""
    settings, share = output(HELD.format(block=block, size=2 * LARGEST_KEPT), **environment).split()
    return int(settings), float(share)


@glibc
def test_a_large_block_stays_whichever_thread_gave_it_back():
    settings, share = held(LARGEST_KEPT + 1)
    assert settings == 3
    assert share > 0.95


@glibc
def test_for_small_blocks_the_system_gets_a_large_one_back():
    settings, share = held(LARGEST_KEPT)
    assert settings == 1
    assert share < 0.05


@glibc
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_user_stand(name):
    value = "glibc.malloc.check=0" if name == "GLIBC_TUNABLES" else "131072"
    assert held(LARGEST_KEPT + 1, **{name: value})[0] == 0


@glibc
@pytest.mark.parametrize(("block", "arenas"), [(LARGEST_KEPT + 1, 1), (LARGEST_KEPT, 3)])
def test_threads_share_arenas(block, arenas):
    assert output(ARENAS.format(block=block)).count("<heap nr=") == arenas


@pytest.mark.slow
@glibc
def test_memory_does_not_grow_with_updates(tmp_path):
    """Bytes resident at evaluations: what JAX, Orbax and the allocator come to hold, they hold soon."""
    source = f"""
import json
from train.__main__ import run
from train.progress import Progress
seen = {{}}

def evaluated(self, step, *_):
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    seen[step] = int(lines["VmRSS"].split()[0]) * 1024

Progress.evaluated = evaluated
run(["--config=configs/smoke.py", "--only=score=dot", "--workdir={tmp_path / "study"}", "--config.run.steps=2000",
     "--config.run.eval_every=50", "--config.run.checkpoint_every=100"])
print(json.dumps(seen))
"""
    seen = json.loads(output(source).splitlines()[-1])
    assert seen["2000"] < 1.05 * seen["200"]
