"""The section of the report that says what of the differences is shown, and the facts of every cell."""

from collections.abc import Sequence

from train.log import Row
from train.report.intervals import Spread
from train.report.markup import escape, grid
from train.report.sensitivity import DEAD_LOSS, REACHED_ACCURACY, REACHED_LOSS, CellFacts, Reached, cell_facts
from train.report.statistics import LaneResult, group_by
from train.report.tables import number
from train.report.verdict_table import NOTHING, cells, columns, heading, remarks
from train.report.verdicts import compare, rules
from train.report.words import bounds, label, title_of


def steps_text(steps: Reached | None) -> str:
    """The median step, and how many lanes never came there."""
    if steps is None:
        return "-"
    never = steps.lanes - steps.reached - steps.waiting
    parts = [f"{steps.median:g}"] if steps.median is not None else []
    parts += [f"{never} of {steps.lanes} never"] if never else []
    parts += [f"{steps.waiting} of {steps.lanes} not yet"] if steps.waiting else []
    return ", ".join(parts)


def _interval(spread: Spread, metric: str) -> str:
    if spread.low is None or spread.high is None:
        return "-"
    smallest, largest = bounds(metric)
    return f"{number(max(spread.low, smallest), metric)} to {number(min(spread.high, largest), metric)}"


def _line(facts: CellFacts, metric: str, sensitivities: Sequence[str]) -> list[str]:
    value = facts.value
    found = [facts.sensitivity.get(name) for name in sensitivities]
    return [
        escape(facts.cell),
        "-" if facts.lr is None else f"{facts.lr:g}",
        *(number(each, metric) for each in (value.mean, value.iqm, value.typical)),
        _interval(value, metric),
        escape(steps_text(facts.steps)),
        *(number(each.mean if each else None, name) for each, name in zip(found, sensitivities, strict=True)),
        f"{facts.diverged} of {facts.lanes}",
        f"{facts.dead} of {facts.finished}",
    ]


def _cells(rows: Sequence[Row], lanes: Sequence[LaneResult], metric: str, split: str) -> str:
    facts = cell_facts(rows, lanes, metric, split)
    sensitivities = [
        name for name in dict.fromkeys((metric, "loss")) if any(name in each.sensitivity for each in facts)
    ]
    by_accuracy = metric.endswith("accuracy")
    threshold = f"{label(metric)} {REACHED_ACCURACY:g}" if by_accuracy else f"{REACHED_LOSS:g} of the initial loss"
    head = [
        "cell",
        "rate",
        "mean",
        "IQM",
        "typical seed",
        "95 % interval",
        "steps",
        *(f"sensitivity, {label(name)}" for name in sensitivities),
        "diverged",
        "dead",
    ]
    notes = [
        "Typical seed: the centre of the seeds on a scale without a bound (log odds of an accuracy, logarithm of a "
        "loss), which the interval covers; one seed that lags moves it less than the mean. IQM: interquartile mean, of "
        "the middle half of the seeds.",
        f"Steps: the first evaluation on valid with {threshold}, median over seeds; a lane that never comes there "
        "counts as later than any.",
        f"Dead, of the lanes that finished: never diverged, and the loss on valid never below {DEAD_LOSS:g} of the "
        "initial one.",
    ]
    if sensitivities:
        notes.append(
            "Sensitivity to the rate: how much worse the mean over all rates is than the best rate, no rate counting "
            "as worse than no training (Wortsman et al. 2023). It means nothing where scores rescale what a "
            "rate does, and a cell that learns at no rate is not sensitive."
        )
    table = grid(list(map(escape, head)), [_line(each, metric, sensitivities) for each in facts])
    title = f"Cells: {title_of(metric, split)}, at the best rate of each cell; sensitivity, diverged, dead: all rates"
    said = f'<p class="note">{"<br>".join(map(escape, notes))}</p>'
    return f'<h3>{escape(title)}</h3><div class="scroll">{table}</div>{said}'


def verdicts_section(rows: Sequence[Row], lanes: Sequence[LaneResult], metric: str, split: str) -> str:
    """HTML: a table of comparisons a pair with the rules they follow, and a table of cells."""
    comparisons = compare(lanes, metric, split)
    parts = [f"<h2>Verdicts</h2><p>{escape(heading(lanes, metric, split) if comparisons else NOTHING)}.</p>"]
    tables = []
    for pair in group_by(comparisons, lambda each: each.pair).values():
        lines = [list(map(escape, cells(each, metric))) for each in pair]
        table = grid(list(map(escape, columns(pair))), lines, escape(pair[0].pair))
        tables.append(f'<div class="scroll">{table}</div>')
    if comparisons:
        parts.append(f'<div class="tables">{"".join(tables)}</div>')
        said = [*rules(comparisons, metric), *remarks(comparisons)]
        parts.append(f'<p class="note">{"<br>".join(map(escape, said))}</p>')
    return "\n".join([*parts, _cells(rows, lanes, metric, split)])
