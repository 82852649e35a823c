"""Tables: numbers in their places, the summary at the end of a study, CSV, and the command line."""

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import table as script
from tests.synthetic_study import study_rows, write_study
from train.errors import UserError
from train.log import Row
from train.report.pivot import BLEU_NOTE, default_layout, pivot
from train.report.statistics import lane_results
from train.report.tables import headline_values, measured, number, summary, to_csv, to_text
from train.report.words import named

ROOT = Path(__file__).resolve().parent.parent


def run(
    score: str, d_k: Any, lr: float, seed: int, valid: float | None, test: float | None, **fields: Any
) -> list[Row]:
    """One lane with one evaluation on valid and one on test."""
    start = {"cell": f"score={score},d_k={d_k}", "lane": int(lr * 1000) * 10 + seed, "lr": lr, "seed": seed}
    start |= {"task": "copy", "score": score, "d_k": d_k, **fields}
    end = {"best_step": None if valid is None else 7, "diverged_at": 3 if valid is None else None}
    return [
        {**start, "step": 7, "split": "valid", "loss": 1.0, "token_accuracy": valid, **end},
        {**start, "step": 7, "split": "test", "loss": 1.0, "token_accuracy": test, **end},
    ]


def small_study() -> list[Row]:
    """At d_k=11 valid prefers 0.01, test would have preferred 0.001."""
    return [
        *run("dot", 7, 0.001, 0, 0.9, 0.8),
        *run("dot", 7, 0.001, 1, 0.9, 0.6),
        *run("dot", 7, 0.01, 0, 0.5, 0.5),
        *run("dot", 7, 0.01, 1, None, None),
        *run("dot", 11, 0.001, 0, 0.3, 0.99),
        *run("dot", 11, 0.001, 1, 0.3, 0.99),
        *run("dot", 11, 0.01, 0, 0.4, 0.125),
        *run("dot", 11, 0.01, 1, 0.4, 0.375),
        *run("additive", 7, 0.001, 0, None, None),
        *run("additive", 7, 0.001, 1, None, None),
    ]


def test_best_and_fixed_rates_side_by_side() -> None:
    text = to_text(pivot(lane_results(small_study())))
    assert text.split("\n") == [
        "token accuracy on test",
        "    | best rate                         | lr 0.001                   | lr 0.01",
        "d_k | dot                  additive     | dot           additive     | dot                 additive",
        "7   | 0.700 ±0.100 @0.001  diverged 2/2 | 0.700 ±0.100  diverged 2/2 | 0.500        (1/2)",
        "11  | 0.250 ±0.125 @0.01                | 0.990 ±0.000               | 0.250 ±0.125",
        "mean ± half the distance between the smallest and the largest seed",
        "@ best rate of a cell: highest mean token_accuracy over seeds on valid, of equal ones the smaller",
        "no finite value in 3 of 10 lanes (3 diverged); (n/m): a mean over n of m lanes",
        "these have fewer seeds or rates than the study:",
        "additive, d_k 7: 1 of 2 rates",
    ]


def test_the_note_says_how_rates_with_different_seeds_were_compared() -> None:
    added = [*run("dot", 11, 0.1, 0, 0.5, 0.5), *run("additive", 7, 0.1, 2, 0.5, 0.5)]
    notes = pivot(lane_results([*small_study(), *added]))[0].notes
    compared = "rates of 1 of 3 cells have different seeds: they are compared on the seeds they all have"
    assert f"{compared}, and each mean is over all seeds of its rate" in notes
    assert ("rates of 1 of 3 cells have no seed in common: those with the most seeds, all the same, compete") in notes
    fixed = pivot(lane_results([*small_study(), *added]), statistic="fixed")[0].notes
    assert not any("different seeds" in note for note in fixed)


def test_a_cell_that_waits_for_its_test_is_a_dash_and_not_diverged() -> None:
    rows = [row for seed in range(3) for row in run("dot", 7, 0.01, seed, 0.5, 0.5) if row["split"] == "valid"]
    rows += [*run("dot", 7, 0.01, 3, None, None), *run("additive", 7, 0.01, 0, None, None)]
    table = to_text(pivot(lane_results(rows))).split("\n")
    assert table[3] == "7   | -    diverged 1/1"
    assert table[-3].startswith("no finite value in 5 of 5 lanes (2 diverged, 3 no test row yet)")


@pytest.mark.parametrize("value", ["bleu", "bleu_unseen"])
def test_bleu_0_beside_exact_matches_is_explained(value: str) -> None:
    def study(bleu: float, exact: float) -> list[Row]:
        rows = [*run("dot", 7, 0.01, 0, 0.5, 0.5), *run("dot", 11, 0.01, 0, 0.5, 0.5)]
        return [
            {**row, "sequence_accuracy": exact, **({value: bleu} if row["split"] == "test" else {})} for row in rows
        ]

    for bleu, exact, said in ((0.0, 0.25, True), (0.0, 0.0, False), (11.0, 0.25, False)):
        lanes = lane_results(study(bleu, exact))
        assert (BLEU_NOTE in pivot(lanes, value=value)[0].notes) == said
        assert BLEU_NOTE not in pivot(lanes, value="token_accuracy")[0].notes
        assert (BLEU_NOTE in summary(study(bleu, exact)[:2])) == said


def test_bleu_0_is_explained_only_where_its_lane_is_shown() -> None:
    rows = [*run("dot", 7, 0.01, 0, 0.5, 0.5), *run("dot", 7, 0.1, 0, 0.4, 0.5)]
    for row in rows:
        row |= {"sequence_accuracy": 0.25, "bleu": 0.0 if row["lr"] == 0.1 else 11.0}
        row["loss"] = row["lr"]
    lanes = lane_results(rows)
    assert BLEU_NOTE in pivot(lanes, value="bleu")[0].notes
    assert BLEU_NOTE not in pivot(lanes, value="bleu", statistic="best")[0].notes


def test_counts_and_rates_are_no_metrics() -> None:
    rows = study_rows(scores=("dot",), widths=(7,), bleu=True, steps=200)
    assert {"learning_rate", "unfinished", "unknown_tokens"} <= {field for row in rows for field in row}
    assert measured(rows) == ("loss", "token_accuracy", "sequence_accuracy", "bleu", "chrf", "bleu_unseen")
    assert headline_values(rows) == ("bleu", "chrf", "token_accuracy")
    bare = [{key: row[key] for key in row if key not in ("token_accuracy", "sequence_accuracy")} for row in rows]
    assert headline_values([row for row in bare if row["split"] != "test"]) == ("loss",)


def test_rows_of_training_are_a_table_too() -> None:
    rows = study_rows(scores=("dot",), widths=(7, 11), rates=(0.01,), steps=200)
    table = pivot(lane_results(rows), split="train")[0]
    assert table.title == "token accuracy on train"
    assert all(entry.spread.finite == 3 for entry in table.blocks[0].entries.values())


def test_every_line_fits_the_terminal_and_blocks_line_up() -> None:
    text = summary(study_rows(steps=200), width=100)
    lines = text.split("\n")
    assert max(map(len, lines)) <= 100
    bars = [[i for i, letter in enumerate(line) if letter == "|"] for line in lines[1:6]]
    assert all(places[0] == bars[0][0] for places in bars)
    assert "diverged 3/3" in text


def test_each_task_has_its_table() -> None:
    tables = pivot(lane_results(study_rows(tasks=("copy", "sort"), steps=200)))
    assert [table.panel for table in tables] == [{"task": "copy"}, {"task": "sort"}]
    assert "task=sort, token accuracy on test" in summary(study_rows(tasks=("copy", "sort"), steps=200))


def test_translation_is_summed_up_by_bleu_and_chrf_too() -> None:
    text = summary(study_rows(tasks=("parallel_text",), bleu=True, steps=200))
    assert "BLEU on test (0 to 100)" in text
    assert "chrF on test (0 to 100)" in text
    assert "lowest mean loss over seeds on valid" in text


def test_one_cell_gives_a_line_a_rate() -> None:
    lines = summary(study_rows(scores=("dot",), widths=(64,), steps=600)).split("\n")
    assert lines[0] == "score=dot,d_k=64: mean ± half spread on test"
    assert [line.split(",")[0] for line in lines[1:]] == ["  lr 0.001", "  lr 0.003", "  lr 0.01"]
    assert "2 diverged, the first at step 50" in lines[3]
    assert sum("(best rate on valid)" in line for line in lines) == 1


@pytest.mark.parametrize(
    "rows",
    [
        [],
        run("dot", 7, 0.1, 0, 0.5, 0.5),
        run("dot", 7, 0.1, 0, 0.5, 0.5)[:1],
        [{**row, "loss": None} for row in run("dot", 7, 0.1, 0, None, None)],
        [*run("dot", 7, 0.1, 0, None, None), *run("dot", 11, 0.1, 0, None, None)],
        [{"cell": "c", "lane": 0, "split": "train", "step": 1}],
        [{"cell": name, "lane": 0, "split": "valid", "step": 1} for name in "cd"],
        study_rows(steps=200, test=False),
    ],
    ids=["empty", "one lane", "one row", "all null", "two cells all null", "bare row", "missing metrics", "unfinished"],
)
def test_what_a_study_can_hold_never_fails(rows: list[Row]) -> None:
    text = summary(rows)
    assert text
    lanes = lane_results(rows)
    along, across = default_layout(lanes)
    for statistic in ("both", "best", "fixed", "mean", "low", "diverged"):
        tables = pivot(lanes, rows=along, columns=across, statistic=statistic)
        assert to_text(tables)
        assert bool(to_csv(tables)) == bool(lanes)


def test_an_unfinished_study_is_summed_up_on_valid() -> None:
    text = summary(study_rows(steps=200, test=False))
    assert "token accuracy on valid" in text


def test_layout_follows_the_axes_that_vary() -> None:
    both = lane_results([*run("dot", 7, 0.1, 0, 1.0, 1.0), *run("additive", 11, 0.1, 0, 1.0, 1.0)])
    assert default_layout(both) == ("d_k", "score")
    positions = [row for name in ("none", "sine") for row in run("dot", 7, 0.1, 0, 1.0, 1.0, position=name)]
    for row in positions:
        row["cell"] = row["position"]
    assert default_layout(lane_results(positions)) == ("position", "score")


def test_csv_has_full_digits_and_one_shape() -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv(pivot(lane_results(small_study()))))))
    best = {line["d_k"]: line for line in lines if line["rate"] == "best"}
    assert float(best["7"]["dot mean"]) == pytest.approx(0.7)
    assert float(best["11"]["dot lr"]) == 0.01
    assert (best["7"]["additive mean"], best["7"]["additive finite"], best["7"]["additive lanes"]) == ("", "0", "2")
    plain = to_csv(pivot(lane_results(small_study()), rows="lr", statistic="max"))
    header, *rest = list(csv.reader(io.StringIO(plain)))
    assert header == ["d_k", "rate", "lr", "dot", "additive"]
    assert rest[0] == ["7", "", "0.001", "0.8", ""]


def test_numbers_have_the_digits_of_their_metric() -> None:
    assert number(0.98765, "token_accuracy") == "0.988"
    assert [number(27.31, name) for name in ("bleu", "bleu_unseen", "chrf", "chrf++")] == ["27.3"] * 4
    assert number(1.5e-7, "loss") == "1.5e-07"
    assert number(0.0, "loss") == "0.000"
    assert number(None, "loss") == "-"


def test_names_may_hold_anything() -> None:
    rows = [*run("<b>今日</b>\n", 7, 0.1, 0, 0.5, 0.5), *run("|", 7, 0.1, 0, 0.5, 0.5)]
    text = to_text(pivot(lane_results(rows)))
    assert "<b>今日</b>\\n" in text
    assert len(text.split("\n")) == 5


def test_a_name_the_log_lacks_is_refused_with_the_names_it_has() -> None:
    lanes = lane_results(small_study())
    with pytest.raises(UserError, match="--rows=width: the log has no such axis; it has d_k, lr, score, seed, task"):
        pivot(lanes, rows="width")
    with pytest.raises(UserError, match="--statistic=median: choose from best"):
        pivot(lanes, statistic="median")
    with pytest.raises(UserError, match=r"--lr=0\.5: the log has no such rate; it has 0\.001, 0\.01"):
        pivot(lanes, lr=0.5)


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workdir = write_study(tmp_path / "今日 study", small_study())
    assert script.main([str(workdir), "--value=loss", "--statistic=best"]) == 0
    assert "loss on test (nats per token)" in capsys.readouterr().out
    target = tmp_path / "table.csv"
    assert script.main([str(workdir), "--columns=lr", "--csv", f"--output={target}"]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.read_text().startswith("score,rate,d_k,0.001 mean")
    for wrong in (["--value=lost"], ["--rows=score", "--columns=score"], [f"--output={tmp_path}/no/t.csv"]):
        assert script.main([str(workdir), *wrong]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
    assert script.main([str(tmp_path / "absent")]) == 2


def test_the_summary_imports_nothing_heavy() -> None:
    code = "import sys, train.report.tables; print([m for m in ('altair', 'vl_convert', 'jax') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_columns_of_numbers_say_of_which_axis_they_are() -> None:
    text = to_text(pivot(lane_results(small_study()), rows="score", columns="d_k", value="token_accuracy"), 200)
    assert "d_k=7" in text
    assert "d_k=11" in text
    assert named("score", "dot") == "dot"
    assert named("temperature_step", 0) == "temperature_step=0"
    assert named("scale", None) == "scale=none"


def test_valid_after_an_update_as_well_as_at_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = {"cell": "score=dot,d_k=7", "lane": 0, "lr": 0.01, "seed": 0, "task": "copy", "score": "dot", "d_k": 7}
    rows = [
        {**start, "step": step, "split": "valid", "loss": 1 - accuracy, "token_accuracy": accuracy, "best_step": 20}
        for step, accuracy in ((10, 0.5), (20, 0.875), (30, 0.125))
    ]
    workdir = write_study(tmp_path / "study", rows)
    for arguments, value in (([], "0.875"), (["--step=30"], "0.125"), (["--step=10"], "0.500")):
        assert script.main([str(workdir), "--split=valid", "--statistic=mean", *arguments]) == 0
        text = capsys.readouterr().out
        assert value in text
        assert text.startswith(f"after update {arguments[0].partition('=')[2]}\n" if arguments else "mean of")
    for arguments, why in (
        (["--step=10"], "test is evaluated once, with the best parameters; add --split=valid"),
        (["--step=11", "--split=valid"], "valid was evaluated after 10, 20, 30"),
    ):
        assert script.main([str(workdir), *arguments]) == 2
        assert capsys.readouterr().err == f"error: {arguments[0]}: {why}\n"
