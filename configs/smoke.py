"""Does everything work here? A study in small: two scores, two lanes, twenty updates each.

python -m train --config=configs/smoke.py --workdir=runs/smoke       18 s on 2 cores

Expect a table with a column for dot and one for scaled_dot, a loss still near ln 12 = 2.5 nats (nothing is learnt in so
few updates), and exit status 0. The same command again says that there is nothing left to do.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    """The base config, cut down to seconds."""
    config = base.get_config()
    config.task.symbols = 11
    config.task.min_length = 3
    config.task.max_length = 5
    config.task.valid_size = 32
    config.task.test_size = 32
    config.model.d_model = 16
    config.model.d_k = 8
    config.model.d_v = 8
    config.model.d_ff = 32
    config.optim.warmup_steps = 5
    config.lanes.seed = (0, 1)
    config.run.steps = 20
    config.run.batch_size = 8
    config.run.eval_every = 10
    config.run.eval_batch_size = 32
    config.run.checkpoint_every = 10
    config.run.chunk_steps = 10
    config.cells.model.score = ("dot", "scaled_dot")
    return config
