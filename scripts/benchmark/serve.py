"""The contender's side: prepare once, then make one repeat whenever the host says so.

    PYTHON serve.py NAME SPEC_JSON

runs contenders/NAME.py, whose function `prepare` gets the spec, on the "cores" that stand in it, if any do. On standard
output stand JSON lines alone: one when it is ready, {"compile_seconds": .., "facts": {..}}, then one for every line
"go" on standard input, until that ends. Where a package is absent the only line is {"missing": ".."}. Everything else
that is printed, by libraries too, goes to standard error.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Prepared(NamedTuple):
    """What a contender is once it has compiled and run its work for the first time.

    repeat: makes one repeat, {"seconds": .., "count": ..} or other quantities by name.
    facts: what holds for all repeats, by name. compile_seconds: what building and compiling took.
    """

    repeat: Callable[[], dict[str, float]]
    facts: dict[str, Any]
    compile_seconds: float


def seconds_of(call: Callable[[], Any], calls: int = 1) -> float:
    """Wall-clock seconds of so many calls in a row; `call` returns when its work is done."""
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - started


def calls_for(seconds: float, call: Callable[[], Any]) -> int:
    """How many calls, at least one, last about so many seconds. The first call warms up and does not count."""
    call()
    calls, took = 1, seconds_of(call)
    while took < seconds / 4:
        calls *= 2
        took = seconds_of(call, calls)
    return max(1, round(seconds * calls / took))


def serve(prepare: Callable[[dict[str, Any]], Prepared], spec: dict[str, Any], answer: Callable[[Any], None]) -> None:
    """Answer until standard input ends."""
    prepared = prepare(spec)
    answer({"compile_seconds": prepared.compile_seconds, "facts": prepared.facts})
    for line in sys.stdin:
        if line.strip() == "go":
            answer(prepared.repeat())


def main(name: str, spec: str) -> None:
    """Import the contender and serve."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(value: Any) -> None:
        print(json.dumps(value, allow_nan=False), file=answers, flush=True)

    told = json.loads(spec)
    if "cores" in told:
        os.sched_setaffinity(0, told["cores"])  # before any library counts them
    try:
        prepare = importlib.import_module(f"contenders.{name}").prepare
        serve(prepare, told, answer)
    except ImportError as error:
        answer({"missing": str(error)})


if __name__ == "__main__":
    main(*sys.argv[1:])
