"""Copy: the target is the source. The easiest task here: attention has to look at one place.

python -m train --config=configs/copy.py --workdir=runs/copy       21 s on 2 cores

Expect sequence_accuracy 0.996 on test. Try --config.model.score=dot --config.model.d_k=256 in another workdir:
without the scale the same task is learnt late or not at all.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """One cell, one rate, one seed: twenty symbols out of 32."""
    config = base.get_config()
    config.task.name = "copy"
    return config
