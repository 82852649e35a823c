"""Toy translation: sentences of a small grammar, translated by rules with reordering and agreement.

python -m train --config=configs/toy_translation.py --workdir=runs/toy_translation       58 s on 2 cores

Expect sequence_accuracy 0.95 and negation_accuracy 0.996 on test. The vocabulary is the grammar's own (task.symbols is
not used); lengths are counted in source words.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """One cell, one rate, one seed; two layers, for words whose form depends on other words."""
    config = base.get_config()
    config.task.name = "toy_translation"
    config.task.min_length = 3
    config.task.max_length = 20
    config.model.num_layers = 2
    config.lanes.lr = (1e-3,)
    config.run.steps = 2000
    return config
