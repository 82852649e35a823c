"""The bottleneck: sentences of 5 to 60 symbols through the encoder's last state, and by attention.

python -m train --config=configs/bottleneck.py --workdir=runs/bottleneck
python scripts/lengths.py runs/bottleneck --image=bottleneck.svg

3 cells of 6 lanes; about 20 minutes on 2 cores beside other work. Expect as sequence accuracy on test at the best of
two rates, all lengths together: none_state .04, none_input .10, luong .98; by length, luong 1.00 at 5 to 10 symbols and
.94 at 56 to 60, the other two .81 and .94 at 5, .30 and .75 at 6 to 10, nothing from 21 on.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """Copy with an LSTM, three ways for the decoder to know the source; two rates and three seeds in each cell."""
    config = base.get_config()
    config.task.min_length = 5
    config.task.max_length = 60
    config.task.test_size = 2048  # some three dozen sentences of each length
    config.model.name = "recurrent"
    config.optim.schedule = "cosine"
    config.lanes.lr = (1e-3, 3e-3)
    config.lanes.seed = (0, 1, 2)
    config.run.steps = 3000
    config.run.eval_every = 300
    config.cells.model.decoder = ("none_state", "none_input", "luong")
    return config
