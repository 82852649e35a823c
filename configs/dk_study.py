"""The question in full: two tasks, three scores, d_k from 1 to 1024, five rates, five seeds.

python -m train --config=configs/dk_study.py --workdir=runs/dk_study
python scripts/report.py runs/dk_study

66 cells of 25 lanes. The half --only task=copy took 56 minutes on 2 cores, nothing cached (estimate of --dry_run:
57), 20 of them for the additive score at d_k 256 to 1024, and left 63 MB of diagnostics.jsonl. That of
toy_translation has not been run. Stop it when you like: the same command goes on. Expect on copy, as token accuracy
on test at the best of five rates, five seeds: additive .71 at d_k 1, .95 at 2, .98 at 4, above .995 from 8 on;
scaled_dot .81, .99, and above .995 from 4 on; dot .81, .98, above .995 from 4 to 32, .987 at 64, .69 at 128, .25 at
256, .20 at 512, .16 at 1024. From d_k 4 on the largest rate at which dot learns falls. At 3e-2 all three fail
from 512 on.
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
