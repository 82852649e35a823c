"""Numbers in what is printed, and that the noun after one agrees with it."""

import ast
import itertools
import re

import pytest
from conftest import ROOT

from train.words import counted

NEVER_ONE = {"settings.tokenizer", "tokens"}  # a word, and a count that is refused for its size
FILES = sorted(file for room in ("train", "scripts") for file in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 blank lines"), (1, "1 blank line"), (2, "2 blank lines"), (50_000, "50,000 blank lines")],
)
def test_a_noun_follows_its_number(number, shown):
    assert counted(number, "blank line") == shown


def nouns() -> set[str]:
    """The last words of all nouns that are counted anywhere."""
    calls = (node for file in FILES for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.Call))
    counts = (call for call in calls if ast.unparse(call.func) == "counted")
    return {ast.literal_eval(call.args[1]).split()[-1] for call in counts}


def fixed_plurals(source: bytes, known: set[str]) -> list[str]:
    """Texts in which a value is followed by the plural of a known noun, whatever the value is."""
    found = []
    for text in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)):
        for value, after in itertools.pairwise(text.values):
            if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                word = re.match(r" ([a-z]+)s(?![\w/])", str(after.value))
                if word and word[1] in known and ast.unparse(value.value) not in NEVER_ONE:
                    found.append(ast.unparse(text))
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_no_noun_is_a_plural_whatever_its_number(file):
    assert fixed_plurals(file.read_bytes(), nouns()) == []


def test_a_fixed_plural_is_seen():
    assert fixed_plurals(b'f"{n} lanes, {m:,} in all"', {"lane", "line"}) != []
    assert fixed_plurals(b'f"{n} lanes"', {"step"}) == []
    assert fixed_plurals(b'f"{n} of the lanes"', {"lane"}) == []
