"""The question for a recurrent model: three scores, d_k from 16 to 1024, five rates, five seeds.

python -m train --config=configs/recurrent_dk_study.py --workdir=runs/recurrent_dk_study
python scripts/report.py runs/recurrent_dk_study

21 cells of 25 lanes; 77 minutes on 2 cores beside other work. Expect as token accuracy on test at the best of five
rates: additive .985 at d_k 16 and .988 to .990 above; scaled_dot .983 falling to .978; dot .980 falling to .951, behind
both from 128 on (verdicts). Nothing breaks down: scores of an LSTM's states start near 0.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """Copy as in dk_study, by an LSTM that attends after each step."""
    config = base.get_config()
    config.task.min_length = 3
    config.model.name = "recurrent"
    config.lanes.lr = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    config.lanes.seed = (0, 1, 2, 3, 4)
    config.cells.model.score = ("additive", "dot", "scaled_dot")
    config.cells.model.d_k = (16, 32, 64, 128, 256, 512, 1024)
    return config
