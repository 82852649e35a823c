"""Sharper scores in mid-run: the temperature falls to a tenth during the warm-up, after it, or never.

python -m train --config=configs/temperature.py --workdir=runs/temperature
python scripts/report.py runs/temperature

Nine cells of 25 lanes: 6 to 10 minutes on 2 cores by --dry_run. Expect on valid after the last update, rate 1e-3:
changed at 50 (during the warm-up) additive .997, dot .12, scaled_dot .82; changed at 300 .988, .987, .997; never at
least .995. Test is scored with the best parameters, which may be from before the change: add --split=valid --step=600
to scripts/table.py.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """The intervention of Zhai et al. (2023) on copy, where all scores learn: d_k 16, 100 updates of warm-up."""
    config = base.get_config()
    config.model.d_k = 16
    config.lanes.lr = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    config.lanes.seed = (0, 1, 2, 3, 4)
    config.optim.temperature_after = 0.1
    config.cells.model.score = ("additive", "dot", "scaled_dot")
    config.cells.optim.temperature_step = (0, 50, 300)
    return config
