"""The question in minutes: does each score still learn to copy as d_k grows from 4 to 256?

python -m train --config=configs/dk_quick.py --workdir=runs/dk_quick       (or: make study)
python scripts/report.py runs/dk_quick

Twelve cells of nine lanes, 300 updates each. 4 to 6 minutes on 2 cores. Expect as token accuracy on test, at
the best of three rates: scaled_dot at least 0.998 at every d_k; additive 0.95 at d_k 4 (it learns more slowly there)
and at least 0.999 above; dot 1.000 at d_k 4, 0.997 at 16, 0.22 at 64, 0.11 at 256.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """Three scores x four widths, with three rates x three seeds in each cell."""
    config = base.get_config()
    config.task.name = "copy"
    config.run.steps = 300
    config.lanes.lr = (1e-3, 3e-3, 1e-2)
    config.lanes.seed = (0, 1, 2)
    config.cells.model.score = ("additive", "dot", "scaled_dot")
    config.cells.model.d_k = (4, 16, 64, 256)
    return config
