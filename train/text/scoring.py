"""BLEU and chrF of decoded text, by sacrebleu, each with the signature that says how it was computed.

Both compare detokenised lines with the full reference lines as they were read (never cut to the model's length). What
sacrebleu does at the edges, here as everywhere:

- BLEU counts runs of one to four tokens over the whole set. A set in which no line has four tokens scores 0 even where
  every line is right: read sequence_accuracy there.
- An empty output scores nothing and shortens the whole (brevity penalty); all empty is 0.
- The words put out for an empty reference count as wrong ones; chrF passes over such a line.
- The order of the lines does not matter.
"""

from collections.abc import Sequence
from typing import Any

from train.errors import UserError

BLEU_TOKENIZERS = ("13a", "char", "ja-mecab", "none")


class Scorer:
    """BLEU with one of sacrebleu's tokenizers, and chrF.

    tokenize: "none" for text that came split into words; "13a" for raw text in European languages; "char" for languages
    written without spaces; "ja-mecab" for Japanese. Raises UserError for any other, and for "ja-mecab" where its
    dictionary is not installed.
    """

    def __init__(self, tokenize: str):
        if tokenize not in BLEU_TOKENIZERS:
            raise UserError(f"task.bleu_tokenize={tokenize!r} is unknown; choose from {', '.join(BLEU_TOKENIZERS)}")
        from sacrebleu.metrics import BLEU, CHRF  # here, so that commands that score no text start without it

        try:
            # force: no advice against scoring text that is split into words, it is what "none" is for.
            self._bleu: Any = BLEU(tokenize=tokenize, force=True)
        except (RuntimeError, ImportError):
            raise UserError(
                f"task.bleu_tokenize={tokenize} needs a dictionary that is not installed: "
                'pip install "sacrebleu[ja]" (or choose task.bleu_tokenize=char)'
            ) from None
        self._chrf: Any = CHRF()

    def tokens(self, line: str) -> int:
        """Tokens of a line as BLEU counts them."""
        return len(self._bleu.tokenizer(line).split())

    def bleu(self, outputs: Sequence[str], references: Sequence[str]) -> float | None:
        """BLEU, 0 to 100, of line i of one against line i of the other; None for no line."""
        return float(self._bleu.corpus_score(outputs, [references]).score) if outputs else None

    def chrf(self, outputs: Sequence[str], references: Sequence[str]) -> float | None:
        """chrF2, 0 to 100; None for no line."""
        return float(self._chrf.corpus_score(outputs, [references]).score) if outputs else None

    def signatures(self) -> tuple[str, str]:
        """How BLEU and chrF were computed, in sacrebleu's notation."""
        # Known once a score was computed: the number of references is part of it.
        self.bleu([""], [""])
        self.chrf([""], [""])
        return str(self._bleu.get_signature()), str(self._chrf.get_signature())
