"""Every knob, once, with its default. Other configs take this one and change a few lines of it.

python -m train --config=configs/base.py --workdir=runs/base       one copy run: one cell, one lane; 21 s on 2 cores

Any knob is overridden on the command line as --config.SECTION.KNOB=VALUE; lists are written a,b or (a, b), an empty
one as (). What a knob may be stands in train/schema.py, which refuses everything else before a file is written.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The copy task learnt once by a small Transformer with the scaled dot product."""
    config = ConfigDict()

    # What is to be learnt. Sentences of the evaluation sets are the same for every seed, batch size and device.
    config.task = ConfigDict()
    config.task.name = "copy"  # an entry of train/tasks TASKS; the file of each draws an example
    config.task.symbols = 32  # different symbols in the sentences of copy, reverse and sort; special ids come on top
    config.task.min_length = 20  # symbols or words of a source, end of sentence not counted; parallel text: unused
    config.task.max_length = 20  # likewise at most; parallel text: longer pairs are left out of train, cut elsewhere
    config.task.valid_size = 256  # sentences of the validation set, where the task makes its own
    config.task.test_size = 512  # sentences of the test set, likewise
    config.task.train = ()  # parallel text: one TSV file, or source file and target file (UTF-8, a sentence a line)
    config.task.valid = ()  # likewise; picks the best parameters
    config.task.test = ()  # likewise; read once, at the end
    config.task.tokenizer = "word"  # parallel text: "word" or "char" (for text without spaces, such as Japanese)
    config.task.min_count = 1  # parallel text: rarer tokens of the training set become the unknown token
    config.task.max_vocab = 0  # parallel text: most tokens a side keeps, by frequency; 0 = no limit
    config.task.bleu_tokenize = "none"  # sacreBLEU's tokeniser: "none" (text is tokenised), "13a", "char", "ja-mecab"

    # The model. Initial values: projections LeCun-normal (variance 1 / inputs) without bias; embeddings of variance
    # 1 / d_model, multiplied by sqrt(d_model) when looked up, positions added after that; the vector v of the additive
    # score has variance 1 / d_k. No initial value makes up for a score's missing 1/sqrt(d_k): that is what is studied.
    config.model = ConfigDict()
    config.model.name = "transformer"  # an entry of ARCHITECTURES in model/__init__.py
    config.model.score = "scaled_dot"  # an entry of SCORES in model/scores.py: how query and key become a number
    config.model.d_model = 64  # width of the residual stream; five free widths, none is derived from another
    config.model.num_heads = 1  # heads of every attention; one, so that d_k is the width of the only inner product
    config.model.d_k = 64  # width of query and key of one head (Vaswani et al. 2017, section 3.2.1)
    config.model.d_v = 64  # width of value of one head; held fixed while d_k varies
    config.model.d_ff = 128  # inner width of the feed-forward layers (section 3.3 there)
    config.model.num_layers = 1  # layers of the encoder, and again of the decoder
    config.model.attention_bias = False  # biases on the projections to query, key and value; they start at 0
    config.model.position = "sinusoidal"  # an entry of POSITIONS in model/positions.py (section 3.5 there)
    config.model.norm = "pre"  # layer norm before each sublayer ("pre", Xiong et al. 2020) or after the sum ("post")
    config.model.dropout = 0.0  # probability of dropping an entry, in [0, 1); training only
    config.model.tie_embeddings = False  # one matrix embeds both sides and is the output layer (Press & Wolf 2017)
    config.model.dtype = "float32"  # of computation: also "bfloat16", "float16"; scores and softmax are always float32
    # Only the recurrent model has these; it has no d_ff, position and norm. Its layers are d_model wide.
    config.model.rnn = "lstm"  # an entry of CELLS in model/cells.py: "lstm", "gru", "tanh"
    config.model.bidirectional = True  # encoder layers of two directions, side by side (Schuster & Paliwal 1997)
    config.model.decoder = "luong"  # attends after a step ("luong") or before it ("bahdanau"); "none_state" and
    # "none_input" have no attention: the encoder's last state starts the decoder, or also enters each step
    config.model.input_feeding = False  # the output of a step is an input of the next (Luong et al. 2015, section 3.3)
    config.model.bridge = "learned"  # what the decoder starts from: "zero"s, the encoder's "last" state, "learned"
    config.model.residual = False  # from the second layer on, a layer's input is added to its output
    config.model.initial = "scaled"  # values of embeddings and cells: as above, or "uniform" within 0.04 of 0

    # The optimizer. Peak learning rates are lanes, below.
    config.optim = ConfigDict()
    config.optim.name = "adam"  # an entry of OPTIMIZERS in train/optim.py
    config.optim.schedule = "constant"  # factor on the peak rate after the warm-up; an entry of SCHEDULES there
    config.optim.warmup_steps = 100  # updates in which the rate climbs linearly to its peak; 0 = peak at once
    config.optim.clip = 0.0  # gradients are scaled down to this global norm; 0 = never (Pascanu et al. 2013)
    config.optim.label_smoothing = 0.0  # in [0, 1), training loss only; 0.1 in Vaswani et al. 2017, section 5.4
    config.optim.weight_decay = 0.0  # adamw only: decay per update, times the rate (Loshchilov & Hutter 2019)
    config.optim.b1 = 0.9  # decay of the mean of gradients, in [0, 1) (Kingma & Ba 2015)
    config.optim.b2 = 0.999  # decay of the mean of squared gradients, in [0, 1)
    config.optim.eps = 1e-8  # added to the root of the mean square
    config.optim.accumulate = 1  # parts a batch is computed in, to save memory; divides run.batch_size
    # Scores are divided by a temperature before the softmax; it may change once in mid-run (Zhai et al. 2023).
    config.optim.temperature = 1.0  # above 0
    config.optim.temperature_after = 1.0  # that of all updates after the first temperature_step
    config.optim.temperature_step = 0  # updates made when it changes; 0 = never

    # Lanes: every rate with every seed, trained together in one compiled program, one row each in metrics.jsonl.
    config.lanes = ConfigDict()
    config.lanes.lr = (3e-3,)  # peak learning rates
    config.lanes.seed = (0,)  # each fixes initial values, batches and dropout of its lanes

    # How long, how often, on what.
    config.run = ConfigDict()
    config.run.steps = 600  # updates of each lane
    config.run.batch_size = 32  # sentences in an update; parallel text: at most the pairs of train
    config.run.eval_every = 100  # updates between evaluations; the last update is always followed by one
    config.run.eval_batch_size = 256  # sentences evaluated at once; more memory, other last bits of the loss
    config.run.checkpoint_every = 200  # updates between checkpoints: what a kill can cost. Free: may change on resume
    config.run.chunk_steps = 50  # most updates in one call of the compiled program. Free: may change on resume
    config.run.diagnose_every = 1  # evaluations between diagnoses (diagnostics.jsonl); 0 = never. Free
    config.run.select = "loss"  # valid metric that picks the best parameters: also token_accuracy, sequence_accuracy
    config.run.devices = 0  # devices used (of a CPU: cores), 0 = all; another number gives other last bits
    config.run.patience = 600.0  # seconds (or 30 times the slowest yet) that an answer may take, compiling too. Free
    # Memory of all devices together that lanes may take, in GB (1e9 bytes); 0 = 80 % of what machine and control
    # group leave at the launch. Lanes that do not fit at once train in groups, one group after another. Free: holds for
    # lanes that are new
    config.run.memory_gb = 0.0

    # The grid: knobs with several values each, in the nesting above (config.cells.model.d_k = (4, 64)). Their product
    # is taken; every point is a cell, named after its values: axes of task, model, optim, run, each as written here.
    config.cells = ConfigDict(sort_keys=False)
    for section in ("task", "model", "optim", "run"):
        config.cells[section] = ConfigDict(sort_keys=False)

    return config
