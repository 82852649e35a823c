"""One side of the parallel text: its tokeniser and its vocabulary. Lines become ids and ids become lines."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from train.errors import UserError
from train.text.tokenise import Tokeniser, tokeniser
from train.text.vocabulary import Vocabulary

FILES = ("source.vocab", "target.vocab")


class Side(NamedTuple):
    """How lines of one side are cut and numbered."""

    tokeniser: Tokeniser
    vocabulary: Vocabulary

    def encode(self, line: str) -> list[int]:
        """Ids of a cleaned line, without EOS."""
        return self.vocabulary.encode(self.tokeniser.split(line))

    def decode(self, tokens_nt: np.ndarray) -> list[str]:
        """A line for each row of ids: up to EOS, without PAD and BOS, unknown tokens as <unk>.

        Raises ValueError for an id outside the vocabulary, naming it and the vocabulary's size.
        """
        return [self.tokeniser.join(self.vocabulary.decode(row)) for row in tokens_nt]


def read_sides(directory: Path, tokenizer: str) -> tuple[Side, Side]:
    """Source and target side from the vocabularies in a folder.

    Raises UserError where one is missing or is not a vocabulary.
    """
    cut = tokeniser(tokenizer)
    source, target = (Side(cut, Vocabulary.read(directory / name)) for name in FILES)
    return source, target


def write_sides(directory: Path, sides: tuple[Side, Side]) -> None:
    """Leave source.vocab and target.vocab in a folder, which is made if need be; OSError is told as UserError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, side in zip(FILES, sides, strict=True):
            side.vocabulary.write(directory / name)
    except OSError as error:
        raise UserError(f"cannot write a vocabulary in {directory}: {error.strerror or error}") from None
