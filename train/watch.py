"""Two things that can end a study early: a signal, and a program that does not come back."""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

# A compiled program may take so many times longer than the slowest before it.
PATIENCE_FACTOR = 30


class Stop:
    """Notes SIGINT and SIGTERM instead of dying of them; the loop asks at its next chunk.

    `signal`: number of the first signal received, 0 = none. Further signals change nothing: it is saving.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, object] = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.signal:
            self.signal = number
            # Not print: the signal may have come in the middle of one.
            os.write(2, b"\nstopping: the state will be saved at the end of this chunk\n")

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.signal:
            return  # the process is about to end with a status that names the signal: a second one must not change it
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]


class Watchdog:
    """Ends the process, with a line, all stacks and status 1, when a compiled program does not come back.

    Seen with some versions of XLA on CPUs: a program waits for ever in its own thread pool. The study can be resumed.

    Args:
      patience: seconds that any call may take, compilation included; beyond them, PATIENCE_FACTOR times the slowest
        call so far.
    """

    def __init__(self, patience: float):
        self._patience = patience
        self._slowest = 0.0

    @staticmethod
    def _give_up(limit: float) -> None:
        line = f"error: no answer from the device for {limit:g} s (run.patience); the same command goes on; stacks:\n"
        os.write(2, line.encode())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around a call that blocks until the device is done."""
        limit = max(self._patience, PATIENCE_FACTOR * self._slowest)
        words = threading.Timer(limit, self._give_up, [limit])
        words.daemon = True
        words.start()
        # This is no thread of Python's: it can act while the interpreter is held. It leaves the other time to speak.
        faulthandler.dump_traceback_later(limit + 1.0, exit=True, file=sys.__stderr__ or 2)
        started = time.monotonic()
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            words.cancel()
            self._slowest = max(self._slowest, time.monotonic() - started)
