"""Contenders in interleaved repeats: all are alive, one works at a time."""

import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from child import Answer, Child, Lost

PREPARE_SECONDS = 900.0  # longest wait for a contender to get ready, and
REPEAT_SECONDS = 600.0  # for one repeat
FEWEST = 3  # rounds, however long they take


class Contender(NamedTuple):
    """Who measures: contenders/<file>.py, one process for each spec. Several processes of one contender work at once.

    python: the interpreter; that of this process unless the contender lives in another environment.
    environment: added to that of this process.
    """

    name: str
    file: str
    specs: tuple[dict[str, Any], ...]
    python: str = sys.executable
    environment: Mapping[str, str] = {}


@functools.cache  # once each, at however many sizes
def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Measured(NamedTuple):
    """What came out, by the contender's name.

    rounds: of every round the answers of its processes. ready: what they said when they were ready (compile_seconds,
    facts). lost: why a contender is not among them.
    """

    rounds: dict[str, list[list[Answer]]]
    ready: dict[str, list[Answer]]
    lost: dict[str, str]

    def lose(self, name: str, reason: Lost, children: Sequence[Child]) -> None:
        """Go on without a contender."""
        self.lost[name] = str(reason)
        self.rounds.pop(name, None)
        _say(f"{name}: {reason}")
        for child in children:
            child.close()

    def rates(self, name: str) -> list[float]:
        """Count a second in every round, summed over the contender's processes."""
        return [sum(one["count"] / one["seconds"] for one in answers) for answers in self.rounds[name]]

    def values(self, name: str, quantity: str) -> list[float]:
        """One quantity in every round, of a contender of one process."""
        return [answers[0][quantity] for answers in self.rounds[name]]


@contextlib.contextmanager
def _started(contenders: Sequence[Contender], limit: float, out: Measured) -> Iterator[dict[str, list[Child]]]:
    """Processes by contender, made ready one after another."""
    with contextlib.ExitStack() as stack:
        running: dict[str, list[Child]] = {}
        for name, file, specs, python, environment in contenders:
            children: list[Child] = []
            ready: list[Answer] = []
            try:
                for spec in specs:
                    children.append(stack.enter_context(Child(file, spec, python, environment)))
                    ready.append(children[-1].answer(limit))
                running[name], out.rounds[name], out.ready[name] = children, [], ready
            except Lost as error:
                out.lose(name, error, children)
        yield running


def measure(
    contenders: Sequence[Contender],
    repeats: int,
    *,
    seconds: float = float("inf"),
    prepare_limit: float = PREPARE_SECONDS,
    repeat_limit: float = REPEAT_SECONDS,
) -> Measured:
    """Rounds in which every contender makes one repeat, each round beginning with another one.

    Args:
      contenders: alive at once; names differ.
      repeats: rounds.
      seconds: no further round begins after so many seconds, once there are `FEWEST`.
      prepare_limit, repeat_limit: seconds that a contender may take to get ready, and for one repeat; one that takes
        longer or dies is lost, the others go on without it.
    """
    out = Measured({}, {}, {})
    with _started(contenders, prepare_limit, out) as running:
        begun = time.monotonic()
        for number in range(repeats):
            if number >= FEWEST and time.monotonic() - begun > seconds:
                break
            order = list(running)
            shift = number % max(len(order), 1)
            for name in order[shift:] + order[:shift]:
                children = running[name]
                for child in children:
                    child.go()
                try:
                    out.rounds[name].append([child.answer(repeat_limit) for child in children])
                except Lost as error:
                    out.lose(name, error, running.pop(name))
    return out
