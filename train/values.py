"""Values of knobs as Python objects and as text: typing by annotation, the syntax of the command line, and its inverse.

A `kind` is the annotation of a field: str, int, float, bool, or tuple[one of these, ...].
"""

import math
import numbers
import re
from decimal import Decimal, InvalidOperation
from typing import Any, get_args, get_origin

import numpy as np

from train.errors import UserError

_FLOAT32 = np.finfo(np.float32)
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def is_tuple(kind: Any) -> bool:
    """Whether a knob of this kind holds several values."""
    return get_origin(kind) is tuple


def element_of(kind: Any) -> Any:
    """Kind of an element of a tuple; the kind itself where it is none."""
    return get_args(kind)[0] if is_tuple(kind) else kind


def single(value: float) -> float:
    """A number as training has it: in float32, and 0 instead of a subnormal number, as which XLA on a CPU takes it."""
    with np.errstate(over="ignore"):
        held = float(np.float32(value))
    return 0.0 if abs(held) < _FLOAT32.tiny else held


def show(value: Any) -> str:
    """A value as it would be written on the command line, for messages."""
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def typed(path: str, kind: Any, value: Any) -> Any:
    """A Python value as this kind: an int is a float, a list a tuple, nothing else is bent. Raises as `parsed` does."""
    if is_tuple(kind):
        if not isinstance(value, tuple | list):
            raise _wrong_type(path, kind, value)
        return tuple(typed(path, element_of(kind), element) for element in value)
    if kind in (bool, str) and isinstance(value, kind):
        return value
    # bool is an int to Python, and never meant where a number is asked for.
    if kind is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if kind is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            return _number(path, repr(float(value)))
        except OverflowError:
            pass
    raise _wrong_type(path, kind, value)


def parsed(path: str, kind: Any, text: str) -> Any:
    """A value given as text, read as this kind. Raises UserError, for numbers too that float32 does not hold.

    Numbers may be written 200, 1e3, 10.0 (if whole) or 1_000; text with or without quotes; tuples as a,b or (a, b)
    or ['a', 'b'], one element as a or (a,), none as () or nothing at all.
    """
    if is_tuple(kind):
        return tuple(parsed(path, element_of(kind), part) for part in split(path, inside(text)))
    text = text.strip()
    if kind is str:
        quoted = len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]
        return text[1:-1] if quoted else text
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if kind is float:
            return _number(path, text)
        if kind is int:
            number = Decimal(text)
            # The size is looked at first: 1e999999999 would take for ever to write out.
            if number.is_finite() and number.adjusted() < 20 and number == int(number):
                return int(number)
    except (ValueError, InvalidOperation):
        pass
    raise _wrong_type(path, kind, text)


def _number(path: str, text: str) -> float:
    """The number a text stands for. Raises UserError, quoting it, where float32 has 0 or infinity in its place."""
    value, exact = float(text), Decimal(text)
    if exact and single(value) == 0:
        reason = f"is 0 in float32, in which training runs; give at least {_FLOAT32.tiny:.1e}"
    elif exact.is_finite() and math.isinf(single(value)):
        reason = f"is infinite in float32, in which training runs; give at most {_FLOAT32.max:.1e}"
    else:
        return value
    raise UserError(f"{path} = {text} {reason}")


def _wrong_type(path: str, kind: Any, value: Any) -> UserError:
    words = f"a tuple, each element {_WORDS[element_of(kind)]}" if is_tuple(kind) else _WORDS[kind]
    hint = "; a list is written a,b" if re.search(r"\d\s*[;:\s-]\s*\d", str(value)) else ""
    return UserError(f"{path} = {show(value)} has the wrong type: must be {words}{hint}")


def inside(text: str) -> str:
    """Text without the one pair of brackets that encloses all of it, if there is one."""
    text = text.strip()
    if text[:1] not in ("(", "["):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text


def split(path: str, text: str) -> list[str]:
    """Parts of a list at its outermost commas; brackets and quotes protect. A comma at the end adds nothing.

    Raises UserError where brackets or quotes do not close, or an element is missing.
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not parts[-1].strip(" (["):
            quote = letter
        else:
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and depth == 0:
                parts.append("")
                continue
        parts[-1] += letter
    if depth or quote:
        raise UserError(f"{path}: brackets or quotes do not close in {text!r}")
    parts = [part.strip() for part in parts]
    if not parts[-1]:
        parts.pop()
    if not all(parts):
        raise UserError(f"{path}: an element is missing between commas in {text!r}")
    return parts
