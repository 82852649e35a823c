"""What attention does inside, from diagnostics.jsonl: why a score learns or fails. Imports nothing heavy."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from train.log import Row
from train.report.intervals import finite
from train.report.statistics import LaneResult, best_lanes, choosing_metric, ordered


class Quantity(NamedTuple):
    """A field of diagnostics.jsonl in words, and whether its axis is of powers of ten or of shares."""

    words: str
    powers: bool


QUANTITIES = {
    "raw_variance": Quantity("variance of raw scores", True),
    "effective_variance": Quantity("variance of effective scores", True),
    "variance_within": Quantity("variance of effective scores within a row", True),
    "entropy": Quantity("entropy of weights / log of visible keys", False),
    "max_weight": Quantity("largest weight of a row", False),
    "one_minus_sum_p2": Quantity("1 - sum of the squares of a row's weights", False),
    "share_saturated": Quantity("share of rows with a weight above 0.99", False),
    "jacobian_mean": Quantity("mean norm of d weights / d query", True),
    "jacobian_q10": Quantity("10 % quantile of the norm of d weights / d query", True),
    "jacobian_q50": Quantity("median norm of d weights / d query", True),
    "jacobian_q90": Quantity("90 % quantile of the norm of d weights / d query", True),
    "query_norm": Quantity("length of queries", True),
    "key_norm": Quantity("length of keys", True),
    "alignment": Quantity("root mean square cosine of query and key", False),
    "effective_rank": Quantity("effective rank of the weights", True),
}


def of_chosen(rows: Sequence[Row], lanes: Sequence[LaneResult], choose: str) -> list[tuple[LaneResult, Row]]:
    """Rows of attentions of the lanes at the best rate of each cell."""
    chosen = {(lane.cell, lane.lane): lane for lane in best_lanes(lanes, choosing_metric(lanes, choose))}
    pairs = ((chosen.get((row["cell"], row["lane"])), row) for row in rows if row.get("attention") is not None)
    return [(lane, row) for lane, row in pairs if lane is not None]


def over_steps(found: Sequence[tuple[LaneResult, Row]], name: str) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Finite values of a quantity at each step, of all lanes, layers and heads together, by (cell, attention)."""
    numbers: dict[tuple[str, str], dict[int, list[float]]] = {}
    for _, row in found:
        steps = numbers.setdefault((row["cell"], row["attention"]), {})
        value = finite(row.get(name))
        if value is not None:
            steps.setdefault(int(row["step"]), []).append(value)
    return numbers


def at_the_end(found: Sequence[tuple[LaneResult, Row]]) -> list[tuple[str, str, Mapping[str, float | None]]]:
    """(cell, attention, medians over seeds, layers and heads of QUANTITIES) at the last step of each cell."""
    last: dict[str, int] = {}
    for _, row in found:
        last[row["cell"]] = max(last.get(row["cell"], 0), int(row["step"]))
    numbers = {name: over_steps(found, name) for name in QUANTITIES}

    def median(place: tuple[str, str], name: str) -> float | None:
        values = numbers[name][place].get(last[place[0]])
        return statistics.median(values) if values else None

    places = dict.fromkeys((row["cell"], row["attention"]) for _, row in found)
    return [
        (cell, attention, {name: median((cell, attention), name) for name in QUANTITIES})
        for cell in ordered(cell for cell, _ in places)
        for owner, attention in places
        if owner == cell
    ]
