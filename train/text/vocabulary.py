"""Vocabulary of one side: token <-> id, the same on every machine and in every run, kept as a text file.

Ids 0 to 3 are <pad>, <bos>, <eos> and <unk>; the tokens of the training text follow by falling count, those of one
count by code point. The file has one token a line, UTF-8, lines ended by "\\n" alone: the line's number, from 0, is the
id. A text that holds the literal word "<unk>" (or "<pad>" ...) does no harm: it gets an ordinary id of its own further
down, and only the first four lines are special.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from train.errors import UserError

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")


class Vocabulary:
    """Tokens by id; `len` is the size with the four special ids."""

    def __init__(self, content: Iterable[str]):
        """content: the ordinary tokens in the order of their ids, which start at 4."""
        self.tokens = (*SPECIAL, *content)
        self._ids = {token: number for number, token in enumerate(self.tokens) if number >= len(SPECIAL)}

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def build(cls, counts: Counter[str], *, min_count: int, max_vocab: int) -> "Vocabulary":
        """Keep tokens seen at least `min_count` times, the `max_vocab` first of them (0 = all)."""
        kept = [token for token, count in counts.items() if count >= min_count]
        kept.sort(key=lambda token: (-counts[token], token))
        return cls(kept[:max_vocab] if max_vocab else kept)

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a file that `write` left; raises UserError where it cannot be one."""
        try:
            lines = path.read_bytes().decode("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the vocabulary {path}: {error}") from None
        content = lines[len(SPECIAL) : -1]
        if tuple(lines[: len(SPECIAL)]) != SPECIAL or lines[-1] or "" in content or len(set(content)) != len(content):
            raise UserError(
                f"{path} is not a vocabulary of this program (first lines {', '.join(SPECIAL)}, then one token a line, "
                "none twice); restore the file or start anew with --overwrite"
            )
        return cls(content)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        draft = path.with_name(path.name + ".part")
        draft.write_bytes("".join(f"{token}\n" for token in self.tokens).encode("utf-8"))
        os.replace(draft, path)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of tokens, UNK for those not known. No EOS is added."""
        known = self._ids.get
        return [known(token, UNK) for token in tokens]

    def decode(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """Tokens up to the first EOS; PAD and BOS are left out, UNK reads "<unk>".

        Raises ValueError naming the id and the vocabulary's size where an id lies outside it.
        """
        id_t = np.asarray(ids, dtype=np.int64)
        self.check(id_t)
        words = []
        for number in id_t.tolist():
            if number == EOS:
                break
            if number not in (PAD, BOS):
                words.append(self.tokens[number])
        return words

    def check(self, ids: np.ndarray) -> None:
        """Raise ValueError naming the first id that is not in the vocabulary, and its size."""
        outside = ids[(ids < 0) | (ids >= len(self))]
        if outside.size:
            raise ValueError(
                f"id {outside.flat[0]} is outside the vocabulary of {len(self)} ids (0 to {len(self) - 1})"
            )
