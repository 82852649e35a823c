"""A thread that compiles programs while others run: on 2 cores too a gain."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from jax.stages import Compiled

Ahead = Callable[[Iterable[Callable[[], Compiled]]], None]


@contextlib.contextmanager
def in_background() -> Iterator[Ahead]:
    """A function that takes calls that compile a program each, and has them made in turn.

    What still waits at the end is dropped. An error of compiling comes again where the program is called.
    """
    pool = ThreadPoolExecutor(1)

    def compile_all(programs: Iterable[Callable[[], Compiled]]) -> None:
        for program in programs:
            pool.submit(program)

    try:
        yield compile_all
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
