"""What a config holds: one frozen dataclass a section, the bound of each knob beside it.

Adding a knob is one line here and one line, with its comment and its value, in configs/base.py: everything that reads,
checks or overrides a knob goes over these fields. A default stands for config.json of versions without the knob. Names
that other files define (tasks, scores, architectures, positions, optimizers, schedules, metrics) are free text here;
plan.py checks them against the dicts that hold them.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from train.errors import UserError
from train.values import is_tuple, show, single

LARGEST_INT = 2**31 - 1  # steps, sizes and seeds are int32 on the device


@dataclass(frozen=True)
class Bound:
    """What a value may be, in words and as a test; for a tuple the test is of each element.

    least, most: how many elements a tuple may have.
    """

    text: str
    holds: Callable[[Any], bool]
    least: int = 0
    most: int | None = None


def _bounded(
    text: str,
    holds: Callable[[Any], bool],
    least: int = 0,
    most: int | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    count = f" (at least {least} of them)" if least else f" (at most {most} of them)" if most else ""
    return field(default=default, metadata={"bound": Bound(text + count, holds, least, most)})


def at_least(low: int, *, least: int = 0, default: Any = dataclasses.MISSING) -> Any:
    """A number >= low."""
    return _bounded(f"at least {low}", lambda x: x >= low, least, default=default)


def above(low: int, *, least: int = 0, default: Any = dataclasses.MISSING) -> Any:
    """A number > low."""
    return _bounded(f"above {low}", lambda x: x > low, least, default=default)


def fraction() -> Any:
    """A number in [0, 1)."""
    return _bounded("at least 0 and below 1", lambda x: 0 <= x < 1)


def flag(*, default: Any = dataclasses.MISSING) -> Any:
    """True or false."""
    return _bounded("true or false", lambda _: True, default=default)


def named(*, default: Any = dataclasses.MISSING) -> Any:
    """A name that another file defines; plan.py knows which."""
    return _bounded("a name", lambda x: x != "", default=default)


def paths(*, most: int) -> Any:
    """Files, none or up to `most`."""
    return _bounded("paths", lambda x: x != "", most=most)


@dataclass(frozen=True)
class TaskSettings:
    """What is to be learnt, and from which sentences."""

    name: str = named()
    symbols: int = at_least(1)
    min_length: int = at_least(1)
    max_length: int = at_least(1)
    valid_size: int = at_least(1)
    test_size: int = at_least(1)
    train: tuple[str, ...] = paths(most=2)
    valid: tuple[str, ...] = paths(most=2)
    test: tuple[str, ...] = paths(most=2)
    tokenizer: str = named()
    min_count: int = at_least(1)
    max_vocab: int = at_least(0)
    bleu_tokenize: str = named()


@dataclass(frozen=True)
class ModelSettings:
    """The model; its five widths are free numbers."""

    name: str = named()
    score: str = named()
    d_model: int = at_least(1)
    num_heads: int = at_least(1)
    d_k: int = at_least(1)
    d_v: int = at_least(1)
    d_ff: int = at_least(1)
    num_layers: int = at_least(1)
    position: str = named()
    norm: str = named()
    dropout: float = fraction()
    tie_embeddings: bool = flag()
    dtype: str = named()
    attention_bias: bool = flag(default=False)
    rnn: str = named(default="lstm")
    bidirectional: bool = flag(default=True)
    decoder: str = named(default="luong")
    input_feeding: bool = flag(default=False)
    bridge: str = named(default="learned")
    residual: bool = flag(default=False)
    initial: str = named(default="scaled")


@dataclass(frozen=True)
class OptimSettings:
    """The optimizer; the learning rates themselves are lanes."""

    name: str = named()
    schedule: str = named()
    warmup_steps: int = at_least(0)
    clip: float = at_least(0)
    label_smoothing: float = fraction()
    weight_decay: float = at_least(0)
    b1: float = fraction()
    b2: float = fraction()
    eps: float = above(0)
    accumulate: int = at_least(1)
    temperature: float = above(0, default=1.0)
    temperature_after: float = above(0, default=1.0)
    temperature_step: int = at_least(0, default=0)


@dataclass(frozen=True)
class LaneSettings:
    """The lanes of a cell: each rate with each seed."""

    lr: tuple[float, ...] = above(0, least=1)
    seed: tuple[int, ...] = at_least(0, least=1)


@dataclass(frozen=True)
class RunSettings:
    """How long, how often, on what."""

    steps: int = at_least(1)
    batch_size: int = at_least(1)
    eval_every: int = at_least(1)
    eval_batch_size: int = at_least(1)
    checkpoint_every: int = at_least(1)
    chunk_steps: int = at_least(1)
    select: str = named()
    devices: int = at_least(0)
    patience: float = above(0)
    memory_gb: float = at_least(0, default=0.0)
    diagnose_every: int = at_least(0, default=0)


SECTIONS: dict[str, type] = {
    "task": TaskSettings,
    "model": ModelSettings,
    "optim": OptimSettings,
    "lanes": LaneSettings,
    "run": RunSettings,
}

# Knobs that never change a result, so a study may go on with other values of them. run.memory_gb decides which lanes
# train together, which may change last bits: of those that a launch adds, the others keep their groups.
FREE = frozenset({"run.checkpoint_every", "run.chunk_steps", "run.patience", "run.memory_gb", "run.diagnose_every"})


@dataclass(frozen=True)
class Knob:
    """One setting: its dotted path, its type as annotated (a `kind` of values.py), and its bound."""

    path: str
    kind: Any
    bound: Bound


KNOBS: dict[str, Knob] = {
    f"{section}.{entry.name}": Knob(f"{section}.{entry.name}", entry.type, entry.metadata["bound"])
    for section, settings in SECTIONS.items()
    for entry in dataclasses.fields(settings)
}


def check(knob: Knob, value: Any) -> None:
    """Raise UserError unless a value of the right type is finite and within the knob's bound, in float32 too."""

    def refuse(reason: str) -> UserError:
        return UserError(f"{knob.path} = {show(value)} is not allowed: {reason}")

    elements = value if is_tuple(knob.kind) else (value,)
    if is_tuple(knob.kind) and not knob.bound.least <= len(elements) <= (knob.bound.most or len(elements)):
        raise refuse(f"must be {knob.bound.text}")
    for element in elements:
        if isinstance(element, float) and not math.isfinite(element):
            raise refuse("must be finite")
        if isinstance(element, int) and element > LARGEST_INT:
            raise refuse(f"must be at most {LARGEST_INT}")
        if not knob.bound.holds(element):
            raise refuse(f"must be {knob.bound.text}")
        if isinstance(element, float) and not knob.bound.holds(single(element)):
            raise refuse(
                f"must be {knob.bound.text}, and is {show(single(element))} in float32, in which training runs"
            )


def check_together(values: Mapping[str, Any]) -> None:
    """Raise UserError where knobs, each allowed by itself, do not fit each other. `values` is by dotted path."""

    def refuse(first: str, relation: str, second: str) -> UserError:
        return UserError(f"{first} = {show(values[first])} {relation} {second} = {show(values[second])}")

    if values["task.min_length"] > values["task.max_length"]:
        raise refuse("task.min_length", "is above", "task.max_length")
    if values["run.batch_size"] % values["optim.accumulate"]:
        raise refuse("optim.accumulate", "does not divide", "run.batch_size")
    if values["optim.warmup_steps"] > values["run.steps"]:
        raise refuse("optim.warmup_steps", "is above", "run.steps")
    if values["optim.schedule"] == "cosine" and values["optim.warmup_steps"] == values["run.steps"]:
        raise refuse("optim.warmup_steps", "leaves the cosine nothing to fall in: must be below", "run.steps")
    if values["optim.temperature_step"] >= values["run.steps"]:
        raise refuse("optim.temperature_step", "leaves no update after the change: must be below", "run.steps")
    tokens = values["run.eval_every"] * values["run.batch_size"] * (values["task.max_length"] + 1)
    if tokens > LARGEST_INT:
        raise refuse("run.eval_every", f"has {tokens:,} tokens, too many to count in 32 bits, with", "run.batch_size")
    if values["optim.weight_decay"] and values["optim.name"] in ("adam", "sgd"):
        raise refuse("optim.weight_decay", "would not be used (choose adamw) by", "optim.name")
