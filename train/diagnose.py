"""What one run is like inside at some step, on one batch: its attentions, its gradient, its next update.

Training pays nothing for it: it is a program of its own, called between updates, which leaves the state as it is.
"""

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model.attention import ATTENTIONS
from model.diagnostics import Numbers, of_attentions, of_groups
from train.step import Knobs, Run, State, shift_right
from train.tasks import PAD, Batch, EvaluationSet


class Diagnosis(NamedTuple):
    """Numbers by name. attentions: by kind (keys of ATTENTIONS), each [layer, head]. groups: by parameter group."""

    attentions: dict[str, Numbers]
    groups: dict[str, Numbers]


def fixed_batch(fixed: EvaluationSet, rows: int) -> Batch:
    """The first sentences of an evaluation set, in its own order; rows of padding where it has fewer."""
    width_s = max(batch.source_bs.shape[1] for batch in fixed.batches)
    width_t = max(batch.target_bt.shape[1] for batch in fixed.batches)
    source_bs, target_bt = (np.full((rows, width), PAD, np.int32) for width in (width_s, width_t))
    start = 0
    for batch in fixed.batches:
        order_b = fixed.order_n[start : start + len(batch.source_bs)]
        start += len(order_b)
        wanted_b = (order_b >= 0) & (order_b < rows)
        source_bs[order_b[wanted_b], : batch.source_bs.shape[1]] = batch.source_bs[wanted_b]
        target_bt[order_b[wanted_b], : batch.target_bt.shape[1]] = batch.target_bt[wanted_b]
    return Batch(source_bs, target_bt)


def diagnose(run: Run, state: State, batch: Batch, knobs: Knobs) -> Diagnosis:
    """Of a run at the parameters of its state.

    Attentions are without dropout, at the temperature of the last update. The gradient is that of the training
    objective on this batch, the update what the optimizer would make of it next.
    """
    target_bt = jnp.asarray(batch.target_bt)
    module = run.after(knobs, state.step)
    _, sown = module.apply(
        {"params": state.params}, batch.source_bs, shift_right(target_bt), deterministic=True, mutable=["attention"]
    )
    real = {"source": jnp.asarray(batch.source_bs) != PAD, "target": target_bt != PAD}
    attentions: dict[str, list[Numbers]] = {place.attention: [] for place in module.places}
    looked_at = []
    for place in module.places:
        seen = functools.reduce(operator.getitem, place.path, sown["attention"])["seen"][0]
        queries, keys = ATTENTIONS[place.attention]
        looked_at.append((seen, real[queries], queries == keys))
    for place, numbers in zip(module.places, of_attentions(looked_at), strict=True):
        attentions[place.attention].append(numbers)
    stacked = {kind: jax.tree.map(lambda *each: jnp.stack(each), *found) for kind, found in attentions.items()}

    key_dropout = jax.random.fold_in(jax.random.fold_in(jax.random.key(knobs.seed), 2), state.step)
    grads, _, _ = run.gradient(state.params, batch, run.at(knobs, state.step), key_dropout)
    update, _ = run.change(grads, state, knobs)
    return Diagnosis(stacked, of_groups(parameter=state.params, gradient=grads, update=update))


def diagnosis_rows(diagnosis: Any, lane: int) -> list[dict[str, Any]]:
    """Of a lane of many: a row for every attention, layer and head, then one for every parameter group.

    Numbers have six digits: float32 has hardly more.
    """
    rows: list[dict[str, Any]] = []
    # In the order of ATTENTIONS: the keys of what comes out of a compiled program are sorted.
    for attention in [kind for kind in ATTENTIONS if kind in diagnosis.attentions]:
        numbers = diagnosis.attentions[attention]
        layers, heads = next(iter(numbers.values())).shape[1:]
        for layer in range(layers):
            for head in range(heads):
                name = {"attention": attention, "layer": layer, "head": head, "group": None}
                rows.append(name | {key: _rounded(value[lane, layer, head]) for key, value in numbers.items()})
    for group, numbers in diagnosis.groups.items():
        name = {"attention": None, "layer": None, "head": None, "group": group}
        rows.append(name | {key: _rounded(value[lane]) for key, value in numbers.items()})
    return rows


def _rounded(value: Any) -> float:
    return float(f"{float(value):.6g}")
