"""Why: the three scores and eight controls as d_k grows, with what attention does inside.

python -m train --config=configs/controls.py --workdir=runs/controls
python scripts/report.py runs/controls

55 cells of 25 lanes. On 2 cores beside other work the 44 up to d_k 256 took an hour, seven at 1024 another; the other
four are slower and, but for additive, were run at two rates. For eight seeds of the three scores add --sweep
lanes.seed=5,6,7 with --only score=additive --only score=dot --only score=scaled_dot. Expect as token accuracy on test
at the best of five rates, at d_k 4, 16, 64, 256: additive_linear .31, .31, .28, .22; general 1.00, 1.00, .986, .24; dot
1.00, 1.00, .995, .17; additive_unnormalised 1.00, 1.00, 1.00, .82; all others at least .997 everywhere. At the largest
rate, 3e-2, and d_k 256 only cosine and scaled_dot_mup still have .98. docs/findings.md says what follows.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """Copy of 20 symbols, 600 updates; five rates and five seeds in each cell."""
    config = base.get_config()
    config.lanes.lr = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    config.lanes.seed = (0, 1, 2, 3, 4)
    config.cells.model.score = (
        "additive",
        "additive_linear",
        "additive_unnormalised",
        "cosine",
        "dot",
        "dot_t5_init",
        "general",
        "learned_temperature",
        "scaled_dot",
        "scaled_dot_log_n",
        "scaled_dot_mup",
    )
    config.cells.model.d_k = (4, 16, 64, 256, 1024)
    return config
