"""The question in full: two tasks, three scores, d_k from 1 to 1024, five rates, five seeds.

python -m train --config=configs/dk_study.py --workdir=runs/dk_study
python scripts/report.py runs/dk_study

66 cells of 25 lanes: 4.7 hours on 2 cores by the estimate of --dry_run, in a slow hour; not yet run in full. Run it
in parts, and stop it when you like: the same command goes on. The part --only task=copy,d_k=64 took 5.5 minutes.
Expect about what came out there, token_accuracy on test by rate 3e-4 / 1e-3 / 3e-3 / 1e-2 / 3e-2: additive .93 / .998 /
.998 / .99 / .87; dot .45 / .989 / .20 / .13 / .10; scaled_dot .995 / .999 / .998 / .996 / .96. After 600 updates the
unscaled product has learnt at one rate of the five, the other two at every one.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """Tasks x scores x every power of two, rates a factor of about three apart."""
    config = base.get_config()
    # One range of lengths for both tasks: symbols of copy, source words of the toy grammar.
    config.task.min_length = 3
    config.task.max_length = 20
    config.lanes.lr = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    config.lanes.seed = (0, 1, 2, 3, 4)
    config.cells.task.name = ("copy", "toy_translation")
    config.cells.model.score = ("additive", "dot", "scaled_dot")
    config.cells.model.d_k = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    return config
