"""A study as the log would tell it, made without training: curves shaped like real ones, from fixed random numbers."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from train.log import Row, metrics_log, write_config

SCORES = ("additive", "dot", "scaled_dot")


def study_rows(
    *,
    tasks: Sequence[str] = ("copy",),
    scores: Sequence[str] = SCORES,
    widths: Sequence[int] = (4, 16, 64, 256),
    rates: Sequence[float] = (0.001, 0.003, 0.01),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 2000,
    every: int = 100,
    test: bool = True,
    bleu: bool = False,
) -> list[Row]:
    """Unscaled scores fail as d_k grows, and diverge at the largest rate, some before their first evaluation."""
    curve_key = np.random.default_rng(17)
    rows: list[Row] = []
    for task, score, d_k in itertools.product(tasks, scores, widths):
        name = f"score={score},d_k={d_k}" if len(tasks) == 1 else f"task={task},score={score},d_k={d_k}"
        for lane, (lr, seed) in enumerate(itertools.product(rates, seeds)):
            hard = score == "dot" and d_k >= 64
            diverged = None
            if hard and lr == max(rates) and len(rates) > 1:
                diverged = (50, 450, None)[seed % 3] if d_k == 64 else 50
            start = {
                "cell": name,
                "lane": lane,
                "lr": lr,
                "seed": seed,
                "task": task,
                "model": "transformer",
                "score": score,
                "d_k": d_k,
            }
            reach = 0.97 - 0.06 * abs(np.log10(lr / 0.003)) - (0.12 * np.log2(d_k / 16) * hard)
            reach = float(np.clip(reach + 0.012 * curve_key.standard_normal(), 0.05, 1.0))
            speed = (3 + curve_key.random()) / steps * (lr / 0.003) ** 0.4
            best: tuple[float, int] | None = None
            last: Row = {}
            for step in range(every, steps + 1, every):
                gone = diverged is not None and step >= diverged
                accuracy = reach * (1 - np.exp(-speed * step)) + 0.004 * curve_key.standard_normal()
                accuracy = float(np.clip(accuracy, 0, 1))
                loss = float(3.2 * (1.02 - accuracy) ** 1.5)
                counts = {"target_tokens": 8192, "sequences": 1000, "unfinished": 13}
                if not gone and (best is None or loss < best[0]):
                    best = (loss, step)
                if gone:
                    measured: Row = dict.fromkeys(("loss", "token_accuracy", "sequence_accuracy"))
                else:
                    measured = {"loss": loss, "token_accuracy": accuracy, "sequence_accuracy": accuracy**8}
                    last = measured if best is not None and best[1] == step else last
                end = {"diverged_at": diverged if gone else None, "seconds": step * 0.01}
                train = {"loss": None, "token_accuracy": None, "sequence_accuracy": None, "learning_rate": lr}
                if not gone:
                    train |= {"loss": loss * 1.1, "token_accuracy": accuracy * 0.9}
                rows.append({**start, "step": step, "split": "train", **train, "target_tokens": 8192, **end})
                tail = {"best_step": None if best is None else best[1], **end}
                rows.append({**start, "step": step, "split": "valid", **measured, **counts, **tail})
            if test:
                measured = last or dict.fromkeys(("loss", "token_accuracy", "sequence_accuracy"))
                if bleu:
                    quality = 40 * (last["token_accuracy"] if last else 0)
                    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
                    measured = {**measured, "bleu": quality, "chrf": quality * 1.4}
                    measured |= {"bleu_unseen": quality * 0.9, "unknown_tokens": 3, "bleu_signature": signature}
                tail = {
                    "best_step": None if best is None else best[1],
                    "diverged_at": diverged,
                    "seconds": steps * 0.01,
                }
                rows.append({**start, "step": steps, "split": "test", **measured, **counts, **tail})
    return rows


def study_record(rows: Sequence[Row]) -> dict[str, Any]:
    """config.json that fits the rows."""
    axes = {row["cell"]: {"score": row["score"], "d_k": row["d_k"]} for row in rows}
    lanes = {row["lane"]: {"lane": row["lane"], "lr": row["lr"], "seed": row["seed"], "group": 0} for row in rows}
    return {
        "config": {"task": {"name": "copy", "symbols": 29}, "optim": {"name": "adam"}, "run": {"steps": 2000}},
        "axes": ["score", "d_k"],
        "cells": [{"cell": cell, "axes": axis, "settings": {}} for cell, axis in axes.items()],
        "lanes": list(lanes.values()),
        "config_path": "configs/dk_study.py",
        "date": "2026-01-31T12:00:00+00:00",
        "versions": {"python": "3.12.9", "jax": "0.12.0.1", "flax": "0.12.9"},
        "device": {"platform": "cpu", "kind": "cpu", "count": 2},
        "git": {"revision": "0123abc", "dirty": False},
    }


def write_study(workdir: Path, rows: Sequence[Row], record: dict[str, Any] | None = None) -> Path:
    """The workdir a study leaves behind."""
    workdir.mkdir(parents=True, exist_ok=True)
    write_config(workdir, study_record(rows) if record is None else record)
    with metrics_log(workdir) as log:
        log.append(rows)
    return workdir
