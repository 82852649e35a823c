"""Reverse: the target is the source read backwards.

source   7  4  9  9  <eos>
target   9  9  4  7  <eos>
"""

import numpy as np

from train.tasks.split import Ids
from train.tasks.symbols import SymbolTask


class Reverse(SymbolTask):
    """Say the symbols again, the last one first."""

    @staticmethod
    def transform(content_bl: Ids) -> Ids:
        """x[::-1], row by row; padding stays at the end."""
        # Boolean masks keep the order of reading, so the reversed symbols move from the right end to the left.
        target_bl = np.zeros_like(content_bl)
        backwards_bl = content_bl[:, ::-1]
        target_bl[content_bl > 0] = backwards_bl[backwards_bl > 0]
        return target_bl
