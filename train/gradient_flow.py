"""Gradients through time in recurrent cells, of the trained lanes of a study and at initialisation, as rows."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from model.cells import CELLS, make_cell
from model.diagnostics import QUANTILES
from model.gradient_flow import Flow, flow, rescaled, sigma_max
from train.diagnose import fixed_batch
from train.errors import UserError
from train.log import Row
from train.plan import Cell
from train.record import find
from train.report.selection import Part
from train.report.statistics import LOWER_IS_BETTER, lane_results
from train.restore import restore
from train.tasks import PAD

SIGMAS = (0.5, 0.9, 1.0, 1.1, 1.5)  # largest singular values of the recurrent matrix of a tanh cell: both sides of 1
RECURRENT = "recurrent"  # of ARCHITECTURES
NAMES = tuple(f"q{round(100 * q)}" for q in QUANTILES)


class Followed(NamedTuple):
    """A cell of some parameters, and the gradients of some sentences in it.

    names: what its rows begin with. label: what it is called; with group, what of it is drawn together, its name is
    unique. sigma: sigma_max of the recurrent matrix of a tanh cell, None of another.
    """

    names: Row
    label: str
    group: str
    sigma: float | None
    flow: Flow


def _followed(cell: str, params: Any, input_bsm: jax.Array, length_b: np.ndarray, **names: Any) -> Followed:
    found = jax.tree.map(np.asarray, flow(cell, params, input_bsm, jnp.asarray(length_b)))
    sigma = float(sigma_max(params)) if cell == "tanh" else None
    return Followed(names.pop("names"), names.pop("label"), names.pop("group"), sigma, found)


def at_initialisation(width: int, length: int, sentences: int, seed: int, sizes: Sequence[float]) -> Iterator[Followed]:
    """Every entry of CELLS as models start with it, tanh with each of SIGMAS; an orthogonal matrix has sigma_max 1.

    All get the same inputs, independent and normal, as embeddings of random tokens are; sizes: their standard
    deviations, 1 that of embeddings as models start.
    """
    key_input, key_init = jax.random.split(jax.random.key(seed))
    input_bsm = jax.random.normal(key_input, (sentences, length, width))
    length_b = np.full(sentences, length)
    for size in sizes:
        for cell in sorted(CELLS, reverse=True):
            module = make_cell(cell, width, "scaled", "float32")
            carry = module.initialize_carry(key_init, (width,))
            params = module.init(key_init, carry, input_bsm[0, 0])["params"]
            for sigma in SIGMAS if cell == "tanh" else (None,):
                label = cell if sigma is None else f"{cell}, sigma_max {sigma:g}"
                yield _followed(
                    cell,
                    params if sigma is None else rescaled(params, sigma),
                    size * input_bsm,
                    length_b,
                    names={"label": label, "cell_type": cell, "lane": None, "input_size": size},
                    label=label,
                    group=f"inputs of size {size:g}",
                )


def _recurrent_cells(part: Part) -> list[str]:
    """Names of the cells whose model is recurrent, of those that were evaluated if any was.

    Raises UserError where none is recurrent.
    """
    entries = part.record["cells"]
    names = [entry["cell"] for entry in entries if entry["settings"].get("model", {}).get("name") == RECURRENT]
    if not names:
        looked_at = ", ".join(entry["cell"] for entry in entries)
        raise UserError(
            f"{part.workdir} has no recurrent cell among {looked_at}: train with --config.model.name={RECURRENT}"
        )
    unevaluated = part.unevaluated
    return [name for name in names if name not in unevaluated] or names


def _best_lane(rows: Sequence[Row], cell: Cell) -> int:
    """The lane that is best on valid by what picks its parameters; lane 0 where none was evaluated."""
    sign = 1.0 if cell.run.select in LOWER_IS_BETTER else -1.0
    lanes = lane_results([row for row in rows if row["cell"] == cell.name])
    values = [(lane.value("valid", cell.run.select), lane.lane) for lane in lanes]
    return min(((sign * value, lane) for value, lane in values if value is not None), default=(0.0, 0))[1]


def of_study(part: Part, lane: int | None, sentences: int) -> Iterator[Followed]:
    """The recurrent cell that reads forwards in the first layer of the encoder, on the first sentences of valid.

    lane: None: of each cell the best on valid.

    Raises:
      UserError: no recurrent cell, no such lane, no checkpoint yet.
    """
    for name in _recurrent_cells(part):
        number = _best_lane(part.rows, find(part.workdir, name, 0).cell) if lane is None else lane
        trained = restore(part.workdir, name, number)
        source_bs = fixed_batch(trained.task.evaluation("valid"), sentences).source_bs
        length_b = (source_bs != PAD).sum(axis=1)
        source_bs, length_b = source_bs[length_b > 0, : length_b.max()], length_b[length_b > 0]
        input_bsm = trained.module.apply({"params": trained.params}, jnp.asarray(source_bs), method="embed_source")
        kind = trained.cell.model.rnn
        yield _followed(
            kind,
            trained.params["encoder_0"]["cells_0"],
            input_bsm.astype(jnp.float32),
            length_b,
            names={"cell": name, "cell_type": kind, "lane": number},
            label=f"{name}, lane {number}",
            group="",
        )


def _quantiles(prefix: str, values: np.ndarray) -> Row:
    return {f"{prefix}_{part}": float(q) for part, q in zip(NAMES, np.nanquantile(values, QUANTILES), strict=True)}


def distance_rows(followed: Followed) -> Iterator[Row]:
    """A row a distance: quantiles of the norm over sentences, its bound, quantiles of the product of forget gates.

    `sentences`: how many are so long. bound: sigma_max^distance, of a tanh cell. forget_...: over units and sentences.
    What a cell does not have is None.
    """
    with np.errstate(over="ignore"):
        norm_bd = np.exp(followed.flow.log_norm_bd.astype(np.float64))
        bound_d = np.power(followed.sigma or np.nan, 1.0 + np.arange(norm_bd.shape[1]))
    for index in range(norm_bd.shape[1]):
        row = {**followed.names, "distance": index + 1, "sentences": int((~np.isnan(norm_bd[:, index])).sum())}
        row |= _quantiles("norm", norm_bd[:, index])
        row["bound"] = float(bound_d[index]) if np.isfinite(bound_d[index]) else None
        row |= dict.fromkeys([f"forget_{part}" for part in (*NAMES, "max")])
        if followed.flow.log_forget_bdm is not None:
            forget_bm = np.exp(followed.flow.log_forget_bdm[:, index].astype(np.float64))
            row |= _quantiles("forget", forget_bm) | {"forget_max": float(np.nanmax(forget_bm))}
        yield row
