"""What the terminal shows while a study runs: a bar where there is a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from tqdm import tqdm

from train.words import counted


class Progress:
    """Updates done of all cells, as a tqdm bar or as one line an evaluation.

    Args:
      groups: cells (with their groups of lanes) to train in this launch.
      updates: updates to make in all of them.
    """

    def __init__(self, groups: int, updates: int):
        self._groups, self._group = groups, 0
        self._updates, self._done = updates, 0
        self._started = time.monotonic()
        self._cell = ""
        self._bar = tqdm(total=updates, unit="step", dynamic_ncols=True) if sys.stderr.isatty() else None

    def say(self, line: str) -> None:
        """Print a line above the bar, or just print it."""
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line)

    def start(self, cell: str, lanes: int, skipped: int, steps: int, *, compiled: bool) -> None:
        """A cell begins, `skipped` of whose updates were made by an earlier launch, with its program there or not."""
        self._group += 1
        self._cell = cell
        self._updates -= skipped
        how = f"going on from step {skipped}/{steps}" if skipped else counted(steps, "step")
        if skipped or self._bar is None:
            wait = "" if compiled else "; compiling first"
            self.say(f"[{self._group}/{self._groups}] {cell}  {how}, {counted(lanes, 'lane')}{wait}")
        if self._bar is not None:
            self._bar.total = self._updates
            self._bar.set_description(f"[{self._group}/{self._groups}] {cell}")

    def advance(self, updates: int) -> None:
        """So many updates, of all lanes of the cell, are done."""
        self._done += updates
        if self._bar is not None:
            self._bar.update(updates)

    def evaluated(self, step: int, steps: int, summary: str, rate: str) -> None:
        """An evaluation is done: what it found, and how fast updates went, in words."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"{summary}, {rate}")
            return
        left = (time.monotonic() - self._started) / max(self._done, 1) * (self._updates - self._done)
        print(
            f"[{self._group}/{self._groups}] {self._cell}  step {step}/{steps}  {summary}  {rate}  {clock(left)} left",
            flush=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
