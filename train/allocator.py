"""How the C library keeps the memory that compiled programs ask for anew at every call.

The temporaries of a program are one block, taken when it is called and given back when it returns. glibc keeps what is
given back in arenas, of which a thread uses one; those of all threads but the first hold blocks up to 64 MiB, and a
larger one is mapped from the system at every call, which zeroes it page by page as it is touched. With one arena for
all threads every block is kept, but the threads then wait for each other at each of the many small buffers of short
operations. So: one arena where blocks are large, and otherwise an arena a core instead of glibc's eight, whose free
parts add up. Measured in docs/performance.md.
"""

import ctypes
import os
import platform

LARGEST_KEPT = 64 * 2**20  # bytes; HEAP_MAX_SIZE of glibc's malloc/arena.c
NEVER = 2**31 - 1  # bytes
# From glibc's malloc.h: parameters of mallopt(3)
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
SETTINGS = (
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
)


def keep_memory(block: float, cores: int) -> dict[int, int]:
    """Set this process up for programs whose temporaries are a block of so many bytes; return what was set.

    Must come before the threads that run programs. Leaves a process alone whose environment has settings of its own
    (mallopt(3)), and one that does not use glibc.
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in SETTINGS):
        return {}
    wanted = {M_ARENA_MAX: 1, M_MMAP_MAX: 0, M_TRIM_THRESHOLD: NEVER} if block > LARGEST_KEPT else {M_ARENA_MAX: cores}
    mallopt = ctypes.CDLL(None).mallopt
    return {parameter: value for parameter, value in wanted.items() if mallopt(parameter, value)}
