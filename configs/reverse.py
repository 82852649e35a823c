"""Reverse: the target is the source backwards. The place to look at depends on where the sentence ends.

python -m train --config=configs/reverse.py --workdir=runs/reverse       32 s on 2 cores

Expect sequence_accuracy 0.86 on test.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """One cell, one rate, one seed; lengths vary, so that positions alone do not tell where to look."""
    config = base.get_config()
    config.task.name = "reverse"
    config.task.min_length = 10
    config.run.steps = 2000
    return config
