"""What looking inside costs: seconds of an evaluation of valid, and of a diagnosis beside it.

The copy task (20 of 32 symbols), 1+1 layers of width 64, one head, batch 32, 256 sentences of valid; a lane a core. The
ratio is (evaluation + diagnosis) / evaluation.
"""

import os
import sys
from argparse import Namespace

from measurement import Row, mean, ratio, row
from process import Contender, measure

SIZES = tuple((score, d_k) for score in ("scaled_dot", "additive") for d_k in (16, 64, 256))
REPEATS = 9


def rows(options: Namespace) -> list[Row]:
    """Measure every size; with --quick the first, once."""
    lanes = ",".join(map(str, range(len(os.sched_getaffinity(0)))))
    out: list[Row] = []
    for score, d_k in SIZES[: 1 if options.quick else None]:
        print(f"{score}, d_k {d_k}", file=sys.stderr, flush=True)
        knobs = [f"model.score={score}", f"model.d_k={d_k}", f"lanes.seed={lanes}"]
        one = Contender("lanes", "evaluations", ({"knobs": knobs},))
        measured = measure([one], options.repeats or (1 if options.quick else REPEATS))
        if not measured.rounds:
            continue
        sizes = {"score": score, "d_k": d_k}
        evaluation, diagnosis = (measured.values("lanes", name) for name in ("evaluation", "diagnosis"))
        for name, values in (("evaluation", evaluation), ("diagnosis", diagnosis)):
            out.append(row("diagnosis", "lanes", name, "ms", [1e3 * value for value in values], sizes))
        both = [one + other for one, other in zip(evaluation, diagnosis, strict=True)]
        out.append(ratio("diagnosis", "both/evaluation", "time", both, evaluation, sizes))
    ratios = [one for one in out if one.unit == "times"]
    return out + ([mean(ratios, geometric=True)] if ratios else [])
