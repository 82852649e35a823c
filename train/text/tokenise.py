"""Tokenisers: a line becomes tokens and tokens become a line again.

- ``word``: "I 'm  here ." -> ["I", "'m", "here", "."] -> "I 'm here ." The line is split at spaces (U+0020 alone; runs
  count as one) and joined by one space: for text that is already split into words.
- ``char``: "I am" -> ["I", " ", "a", "m"] -> "I am". Every code point is a token, spaces included, and the tokens
  joined are the line, exactly: for text without spaces between words, and for small raw corpora.

Neither normalises anything: what was known comes back as it was.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from train.errors import UserError


class Tokeniser(NamedTuple):
    """How a cleaned line (train/text/reading.py) is cut into tokens, and how tokens make a line."""

    split: Callable[[str], list[str]]
    join: Callable[[Iterable[str]], str]


def _words(line: str) -> list[str]:
    return [word for word in line.split(" ") if word]


TOKENISERS: dict[str, Tokeniser] = {
    "word": Tokeniser(_words, " ".join),
    "char": Tokeniser(list, "".join),
}


def tokeniser(name: str) -> Tokeniser:
    """The tokeniser of that name; raises UserError with the valid names."""
    if name not in TOKENISERS:
        raise UserError(f"task.tokenizer={name!r} is unknown; choose from {', '.join(sorted(TOKENISERS))}")
    return TOKENISERS[name]
