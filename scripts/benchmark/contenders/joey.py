"""JoeyNMT 2.3 on parallel text: its own training loop, data iterator and log; validation and checkpoints left out.

A repeat is one call of its `train_and_validate` for so many updates. What it counts and how long it took are those of
JoeyNMT's own line "Tokens per Sec": real target tokens, EOS counted, padding not, from the first batch that the
iterator makes to the last update.

Spec: data (folder), source and target (suffixes), folder (for what it writes), cores (a thread on each),
seed, updates, sizes.
"""

import time
from pathlib import Path
from typing import Any

import torch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.prediction import prepare as joey_prepare
from joeynmt.training import TrainManager
from serve import Prepared

NEVER = 10**9  # updates


class Timed(TrainManager):
    """Keeps what its log says and writes no checkpoint. `rates`: of each line of the log, tokens and seconds."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.rates: list[tuple[int, float]] = []

    def _log_scores(self, epoch_no: int, elapsed_time: float, start_tokens: int, *rest: Any) -> None:
        self.rates.append((self.stats.total_tokens - start_tokens, elapsed_time))
        super()._log_scores(epoch_no, elapsed_time, start_tokens, *rest)

    def _save_checkpoint(self, new_best: bool, score: float) -> None:
        """Nothing: neither side's checkpoints are measured."""


def stack(sizes: dict[str, Any]) -> dict[str, Any]:
    """One side of the model: normalisation before each sublayer, one rate of dropout everywhere."""
    return {
        "type": "transformer",
        "num_layers": sizes["num_layers"],
        "num_heads": sizes["num_heads"],
        "hidden_size": sizes["d_model"],
        "ff_size": sizes["d_ff"],
        "dropout": sizes["dropout"],
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": True, "dropout": sizes["dropout"]},
    }


def side(suffix: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """One side of the text: words between spaces."""
    return {"lang": suffix, "level": "word", "max_length": sizes["max_length"], "voc_min_freq": sizes["min_count"]}


def config(spec: dict[str, Any]) -> dict[str, Any]:
    """What would stand in its YAML file."""
    sizes, data = spec["sizes"], Path(spec["data"])
    return {
        "name": "benchmark",
        "joeynmt_version": "2.3.0",
        "model_dir": spec["folder"],
        "use_cuda": False,
        "random_seed": spec["seed"],
        "data": {
            **{split: str(data / split) for split in ("train", "dev", "test")},
            "src": side(spec["source"], sizes),
            "trg": side(spec["target"], sizes),
        },
        "testing": {},
        "training": {
            "batch_size": sizes["batch_size"],
            "batch_type": "sentence",
            "normalization": "tokens",
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "learning_rate_min": 0.0,
            "learning_rate_warmup": 300,
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": sizes["clip"],
            "label_smoothing": sizes["label_smoothing"],
            "epochs": NEVER,
            "logging_freq": spec["updates"],
            "validation_freq": spec["updates"] * NEVER,
        },
        "model": {"initializer": "xavier_uniform", "encoder": stack(sizes), "decoder": stack(sizes)},
    }


def prepare(spec: dict[str, Any]) -> Prepared:
    """Read the text, build the model, make the first updates."""
    started = time.perf_counter()
    torch.set_num_threads(len(spec["cores"]))
    Path(spec["folder"]).mkdir(parents=True, exist_ok=True)
    args = parse_global_args(config(spec), rank=0, mode="train")
    model, train, dev, _ = joey_prepare(args, rank=0, mode="train")
    trainer = Timed(
        rank=0,
        model=model,
        model_dir=args.model_dir,
        device=args.device,
        autocast=args.autocast,
        seed=args.seed,
        train_args=args.train,
        dev_args=set_validation_args(args.test),
    )

    def repeat() -> dict[str, float]:
        """The next updates, on sentences in a new order."""
        stats = trainer.stats
        stats.epochs, stats.is_max_update = stats.epochs + 1, False
        trainer.args = trainer.args._replace(max_updates=stats.steps + spec["updates"])
        trainer.train_and_validate(train_data=train, valid_data=dev)
        tokens, seconds = trainer.rates[-1]
        return {"seconds": seconds, "count": tokens}

    repeat()
    facts = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabularies": [len(model.src_vocab), len(model.trg_vocab)],
        "threads": torch.get_num_threads(),
    }
    return Prepared(repeat, facts, time.perf_counter() - started)
