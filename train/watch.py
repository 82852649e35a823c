"""Two things that can end a study early: a signal, and a program that does not come back."""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

# A compiled program may take so many times longer than the slowest before it.
PATIENCE_FACTOR = 30
SPEAKING_SECONDS = 5.0  # to say why the process ends, before it is ended without a word


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
    """Ends the process, with one line and status 1, when a call does not come back; all stacks go to a file.

    Seen with some versions of XLA on CPUs: a program waits for ever in its own thread pool. The study can be resumed.
    From outside, a program that waits looks like one that compiles for long: the line names the remedies of both.

    Args:
      patience: seconds that any call may take, compilation included; beyond them, PATIENCE_FACTOR times the slowest
        call so far.
      stacks: the file, made when it is needed; without it, or where it cannot be written, they go to standard error.
    """

    def __init__(self, patience: float, stacks: Path | None = None):
        self._patience = patience
        self._stacks = stacks
        self._slowest = 0.0

    def _give_up(self, limit: float) -> None:
        try:
            stacks, place = (self._stacks.open("w"), self._stacks) if self._stacks else (sys.__stderr__, "below")
        except OSError as error:
            stacks, place = sys.__stderr__, f"below, as {self._stacks} cannot be written ({error.strerror})"
        line = (
            f"error: no answer from the device for {limit:g} s; the same command goes on; if it was still compiling, or"
            f" the machine was busy, add a larger --config.run.patience; stacks: {place}\n"
        )
        below_the_bar = b"\n" if os.isatty(2) else b""
        os.write(2, below_the_bar + line.encode(errors="backslashreplace"))
        faulthandler.dump_traceback(stacks or 2)
        os._exit(1)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Around a call that blocks until the device is done."""
        limit = max(self._patience, PATIENCE_FACTOR * self._slowest)
        giving_up = threading.Timer(limit, self._give_up, [limit])
        giving_up.daemon = True
        giving_up.start()
        # This is no thread of Python's: it can act while the interpreter is held, but it has no words.
        faulthandler.dump_traceback_later(limit + SPEAKING_SECONDS, exit=True, file=sys.__stderr__ or 2)
        started = time.monotonic()
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            giving_up.cancel()
            self._slowest = max(self._slowest, time.monotonic() - started)
