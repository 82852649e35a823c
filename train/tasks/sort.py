"""Sort: the target is the source's symbols by rising id, repeats kept.

source   7  4  9  9  <eos>
target   4  7  9  9  <eos>
"""

import numpy as np

from train.tasks.split import Ids
from train.tasks.symbols import SymbolTask


class Sort(SymbolTask):
    """Say the symbols in the order of their ids, each as often as it came."""

    @staticmethod
    def transform(content_bl: Ids) -> Ids:
        """sorted(x), row by row; padding stays at the end."""
        # PAD is 0: one less, without a sign, is the largest number there is, and goes behind every symbol.
        shifted_bl = content_bl.astype(np.uint32) - np.uint32(1)
        shifted_bl.sort(axis=1)
        return (shifted_bl + np.uint32(1)).astype(np.int32)
