"""Where the time of an update goes: a trace of one chunk, read back as a table of its operations."""

import collections
import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from train.words import counted
from train.workdir import PROFILE

TOP = 20  # operations in the table
WAIT = 4  # chunks that compile nothing before the one that is traced: the first are short, and meet cold caches
WIDEST = 44  # characters of a shape there

# These run other operations, which the trace holds too, on other threads it may be: only the latter count.
PARENTS = {"while", "call", "conditional"}
# Names of library functions that multiply matrices, in what a custom call calls.
MULTIPLIES = re.compile(r"gemm|matmul|dot|cublas|cudnn|onednn|conv", re.IGNORECASE)

INSTRUCTION = re.compile(r"\s+(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\(")
COMPUTATION = re.compile(r"(?:ENTRY )?%?([\w.\-]+) .*\{$")


class Instruction(NamedTuple):
    """Of a compiled program. kind: in words for people; parents have their HLO opcode. shape: of its result."""

    kind: str
    shape: str


class Operation(NamedTuple):
    """An instruction as it ran. calls: of all lanes and devices. seconds: their sum."""

    name: str
    kind: str
    shape: str
    calls: int
    seconds: float


class Recorder:
    """Traces one chunk that compiles nothing: after some others, or the last.

    path: where traces go. updates: of the chunk that was traced, 0 before.
    """

    def __init__(self, workdir: Path):
        self.path = workdir / PROFILE
        self.updates = 0
        self._waited = 0

    @contextlib.contextmanager
    def around(self, updates: int, *, compiles: bool, last: bool) -> Iterator[None]:
        """Around a chunk of so many updates, until the device is done."""
        if self.updates or compiles or (self._waited < WAIT and not last):
            self._waited += not compiles
            yield
            return
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        with jax.profiler.trace(self.path, profiler_options=options):
            yield
        self.updates = updates

    def table(self, program: str) -> str:
        """The trace as text. `program`: the compiled program's HLO."""
        file = max(self.path.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime_ns)
        return table(operations(file, instructions(program)), self.updates, file)


def instructions(program: str) -> dict[str, Instruction]:
    """The instructions of a program by their names, from its HLO text. A fusion with a product in it is a product."""
    found, computation, multiplying = [], "", set()
    for line in program.splitlines():
        if match := INSTRUCTION.match(line):
            name, shape, opcode = match.groups()
            found.append((name, shape, opcode, line))
            if opcode in ("dot", "convolution"):
                multiplying.add(computation)
        elif match := COMPUTATION.match(line):
            computation = match[1]
    return {
        name: Instruction(_kind(opcode, line, multiplying), re.sub(r"\{.*?\}|/\*.*?\*/", "", shape))
        for name, shape, opcode, line in found
    }


def _kind(opcode: str, line: str, multiplying: set[str]) -> str:
    called = re.search(r"calls=%?([\w.\-]+)", line)
    target = re.search(r'custom_call_target="([^"]*)"', line)
    product = opcode in ("dot", "convolution")
    product |= opcode == "fusion" and called is not None and called[1] in multiplying
    product |= opcode == "custom-call" and target is not None and MULTIPLIES.search(target[1]) is not None
    return "matrix product" if product else opcode


def operations(file: Path, known: Mapping[str, Instruction]) -> list[Operation]:
    """What a trace (an xplane file) holds of a program's instructions, those that took longest first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the types that jaxlib makes while it reads
        ran = [
            (str(stats["hlo_op"]), event.duration_ns)
            for plane in jax.profiler.ProfileData.from_file(str(file)).planes
            for line in plane.lines
            for event in line.events
            if "hlo_op" in (stats := dict(event.stats))
        ]
    nanoseconds, calls = collections.Counter[str](), collections.Counter(name for name, _ in ran)
    for name, duration in ran:
        nanoseconds[name] += duration
    summed = [
        Operation(name, *known.get(name, Instruction("unknown", "")), calls[name], total / 1e9)
        for name, total in nanoseconds.most_common()
    ]
    return [operation for operation in summed if operation.kind not in PARENTS]


def table(ran: Sequence[Operation], updates: int, file: Path) -> str:
    """The operations that took longest: calls and microseconds of one update of all lanes, on all devices."""
    if not ran:
        return f"profile: {file} names no operation"
    total = sum(operation.seconds for operation in ran)
    rows = [("operation", "kind", "result", "calls", "us", "share")]
    for name, kind, shape, calls, seconds in ran[:TOP]:
        shown = shape if len(shape) <= WIDEST else shape[: WIDEST - 3] + "..."
        numbers = (f"{calls / updates:,.1f}", f"{seconds / updates * 1e6:,.1f}", f"{seconds / total:.1%}")
        rows.append((name, kind, shown, *numbers))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map("{:{}{}}".format, row, "<<<>>>", widths)).rstrip() for row in rows]
    title = (
        f"profile of {counted(updates, 'update')}: {total / updates * 1e6:,.0f} us of operations"
        f" an update, summed over lanes and devices; the {len(rows) - 1} longest of {len(ran)}, each for one update"
    )
    kinds = {operation.kind: 0.0 for operation in ran}
    for operation in ran:
        kinds[operation.kind] += operation.seconds
    longest_first = sorted(kinds.items(), key=lambda pair: -pair[1])
    shares = ", ".join(f"{kind} {seconds / total:.1%}" for kind, seconds in longest_first)
    return "\n".join([title, *lines, f"all {len(ran)} by kind: {shares}", f"trace: {file}"])
