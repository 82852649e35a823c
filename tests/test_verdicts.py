"""Which cells are compared, what is said of them, and what a study can hold: text, CSV, sentences, the report."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from scripts import table as script
from tests.synthetic_study import study_record, study_rows, write_study
from train.log import Row
from train.report.comparisons import BETTER, EQUIVALENT, NO_DIFFERENCE, TOO_FEW, WORSE, difference
from train.report.page import render
from train.report.statistics import lane_results
from train.report.tables import summary
from train.report.verdict_table import NOTHING, p_text, verdict_csv, verdict_text
from train.report.verdicts import compare, compared_axis, margin_of, pairs_of, rules, sentences

Values = dict[str, dict[int, list[float | None]]]  # score -> d_k -> token accuracy on test, one a seed

STUDY: Values = {
    "dot": {7: [0.981, 0.984, 0.979, 0.982, 0.98], 11: [0.21, 0.25, 0.2, 0.22, 0.24]},
    "scaled_dot": {7: [0.982, 0.983, 0.98, 0.981, 0.98], 11: [0.97, 0.98, 0.96, 0.97, 0.98]},
    "additive": {7: [0.9, 0.2, 0.99, 0.7, 0.95], 11: [0.972, 0.978, 0.962, 0.97, 0.979]},
}


def rows_of(values: Values, *, lr: float = 0.01, first_lane: int = 0, **fields: Any) -> list[Row]:
    """One lane a value, seeds counted from 0; None diverged before its first evaluation."""
    rows: list[Row] = []
    for score, widths in values.items():
        for d_k, tests in widths.items():
            for seed, value in enumerate(tests):
                start = {"cell": f"score={score},d_k={d_k}", "lane": first_lane + seed, "lr": lr, "seed": seed}
                start |= {"task": "copy", "score": score, "d_k": d_k, **fields}
                end = {"best_step": 0 if value is None else 7, "diverged_at": 3 if value is None else None}
                measured = {"token_accuracy": value, "loss": None if value is None else 2 - value}
                rows += [{**start, "step": 7, "split": split, **measured, **end} for split in ("valid", "test")]
    return rows


def words(values: Values, metric: str = "token_accuracy") -> dict[tuple[str, int], str]:
    made = compare(lane_results(rows_of(values)), metric, "test")
    return {(each.pair, each.place.get("d_k", 0)): each.verdict.word for each in made}


def test_each_score_is_compared_with_the_scaled_product_and_additive_with_dot() -> None:
    assert words(STUDY) == {
        ("dot against scaled_dot", 7): EQUIVALENT,
        ("dot against scaled_dot", 11): WORSE,
        ("additive against scaled_dot", 7): NO_DIFFERENCE,
        ("additive against scaled_dot", 11): EQUIVALENT,
        ("additive against dot", 7): NO_DIFFERENCE,
        ("additive against dot", 11): BETTER,
    }
    assert words(STUDY, "loss")["dot against scaled_dot", 11] == WORSE


def test_the_pairs_follow_the_rule() -> None:
    assert pairs_of("score", ["dot", "cosine"]) == [("cosine", "dot")]
    assert pairs_of("score", ["additive", "dot"]) == [("dot", "additive")]
    assert pairs_of("score", ["dot", "additive"]) == [("additive", "dot")]
    three = [("cosine", "scaled_dot"), ("dot", "scaled_dot")]
    assert pairs_of("score", ["cosine", "dot", "scaled_dot"]) == three
    assert pairs_of("score", ["cosine", "additive", "dot"]) == [
        ("additive", "cosine"),
        ("dot", "cosine"),
        ("additive", "dot"),
    ]
    assert pairs_of("position", ["none", "additive", "dot"]) == [("additive", "none"), ("dot", "none")]


def test_without_scores_the_first_other_axis_is_compared() -> None:
    one: Values = {"dot": {7: [0.5, 0.6, 0.7]}}
    rows = [row for name in ("sine", "none") for row in rows_of(one, position=name)]
    for row in rows:
        row["cell"] = row["position"]
    (found,) = compare(lane_results(rows), "token_accuracy", "test")
    assert (found.pair, found.place) == ("none against sine", {})
    assert sentences([found]) == ["none against sine: equivalent"]
    widths = lane_results(rows_of({"dot": {7: [0.5, 0.6], 11: [0.6, 0.6]}}))
    assert compared_axis(widths) == ""
    assert compare(widths, "token_accuracy", "test") == []
    assert verdict_text(widths, "token_accuracy", "test") == NOTHING


def test_values_are_those_of_the_rate_that_is_best_on_valid() -> None:
    rows = [*rows_of(STUDY), *rows_of(STUDY, lr=0.1, first_lane=5)]
    for row in rows:
        if row["split"] == "test" and row["lr"] == 0.1:
            row["token_accuracy"] = 0.123
        if row["split"] == "valid" and row["score"] == "dot":
            row["token_accuracy"] = row["lr"]
    made = compare(lane_results(rows), "token_accuracy", "test")
    assert made[0].difference.first == 0.123
    assert made[0].difference.second == pytest.approx(sum(STUDY["scaled_dot"][7] or [0]) / 5)  # type: ignore[arg-type]


def test_seeds_are_paired_by_their_number() -> None:
    rows = rows_of({"dot": {7: [0.9, 0.8, 0.7, 0.6]}, "scaled_dot": {7: [0.5, 0.45, 0.3, 0.2]}})
    kept = [row for row in rows if (row["score"], row["seed"]) != ("dot", 0)]
    (found,) = compare(lane_results(kept[::-1]), "token_accuracy", "test")
    expected = difference([0.8, 0.7, 0.6], [0.45, 0.3, 0.2], margin=0.01)
    assert found.difference.mean == pytest.approx(expected.mean)
    assert found.difference.t == pytest.approx(expected.t)
    assert "3 seeds in common of 3 and 4" in found.remark


def test_a_diverged_lane_counts_as_0_or_leaves_its_pair_out() -> None:
    values: Values = {"dot": {7: [None, 0.2, 0.3, 0.25]}, "scaled_dot": {7: [0.9, 0.91, 0.92, 0.9]}}
    lanes = lane_results(rows_of(values))
    (found,) = compare(lanes, "token_accuracy", "test")
    assert (found.difference.seeds, found.difference.first) == (4, pytest.approx(0.1875))
    assert found.remark == "1 of 4 lanes of dot diverged: counted as 0 beside one that did not"
    (found,) = compare(lanes, "loss", "test")
    assert found.difference.seeds == 3
    assert found.remark == "1 of 4 lanes of dot diverged: left out"


@pytest.mark.parametrize(
    ("values", "word", "remark"),
    [
        ({"dot": {7: [0.5]}, "scaled_dot": {7: [0.9]}}, TOO_FEW, "1 seed: a verdict takes 3"),
        ({"dot": {7: [0.5, 0.6]}, "scaled_dot": {7: [0.9, 0.9]}}, TOO_FEW, "2 seeds: a verdict takes 3"),
        ({"dot": {7: [1.0] * 3}, "scaled_dot": {7: [1.0] * 3}}, EQUIVALENT, ""),
        ({"dot": {7: [0.5] * 3}, "scaled_dot": {7: [0.5] * 3}}, EQUIVALENT, ""),
        (
            {"dot": {7: [None] * 3}, "scaled_dot": {7: [0.9, 0.91, 0.92]}},
            WORSE,
            "3 of 3 lanes of dot diverged: counted as 0 beside one that did not",
        ),
        ({"dot": {7: [None] * 3}, "scaled_dot": {7: [None] * 3}}, TOO_FEW, "no pair of seeds has values"),
        ({"dot": {7: [None, None, 0.2, 0.3]}, "scaled_dot": {7: [None, 0.9, 0.9, 0.9]}}, WORSE, "1 of 4 lanes of sc"),
        ({"dot": {7: [0.9975, 0.9971, 0.9973]}, "scaled_dot": {7: [0.9984, 0.998, 0.9983]}}, WORSE, "below 0.01"),
    ],
    ids=[
        "one seed",
        "two seeds",
        "all at 1",
        "all equal",
        "one diverged",
        "both",
        "one seed of both",
        "below the margin",
    ],
)
def test_what_a_study_can_hold_has_a_verdict_or_a_reason(values: Values, word: str, remark: str) -> None:
    lanes = lane_results(rows_of(values))
    (found,) = compare(lanes, "token_accuracy", "test")
    assert found.verdict.word == word
    assert remark in found.remark
    assert word in verdict_text(lanes, "token_accuracy", "test")
    assert len(sentences([found])) == (word != TOO_FEW)


def test_no_pair_is_made_where_a_cell_is_missing_and_a_waiting_test_is_named() -> None:
    rows = [row for row in rows_of(STUDY) if (row["score"], row["d_k"]) != ("dot", 7)]
    rows = [row for row in rows if (row["score"], row["split"]) != ("additive", "test")]
    made = compare(lane_results(rows), "token_accuracy", "test")
    assert [(each.pair, each.place["d_k"]) for each in made if each.first == "dot"] == [("dot against scaled_dot", 11)]
    waiting = [each for each in made if each.first == "additive"]
    assert {each.verdict.word for each in waiting} == {TOO_FEW}
    assert waiting[0].remark == "no test row yet in 5 of 5 lanes of additive; no pair of seeds has values"


def test_the_family_is_all_that_is_shown() -> None:
    made = compare(lane_results(rows_of(STUDY)), "token_accuracy", "test")
    smallest = min(made, key=lambda each: each.difference.t or 1)
    assert smallest.verdict.p == pytest.approx(6 * (smallest.difference.t or 0))
    said = " ".join(rules(made, "token_accuracy"))
    assert "for 6 comparisons" in said
    assert "within ±0.01" in said
    assert "smallest p is 0.0625, above the 0.0083 that the first of 6 needs: here it decides nothing" in said


def test_margins_are_stated_for_the_metrics_that_have_one() -> None:
    assert [margin_of(name) for name in ("token_accuracy", "bleu", "chrf", "loss", "ter")] == [
        0.01,
        0.5,
        0.5,
        0.02,
        None,
    ]


def test_sentences_name_the_widths_and_the_panel() -> None:
    made = compare(lane_results(rows_of(STUDY)), "token_accuracy", "test")
    assert sentences(made)[0] == "dot against scaled_dot: equivalent at d_k 7; worse at 11"
    tasks = [*rows_of(STUDY), *({**row, "cell": f"sort {row['cell']}", "task": "sort"} for row in rows_of(STUDY))]
    lines = sentences(compare(lane_results(tasks), "token_accuracy", "test"))
    assert "task=sort: dot against scaled_dot: equivalent at d_k 7; worse at 11" in lines
    assert len(lines) == 6


def test_the_summary_ends_with_what_is_shown() -> None:
    text = summary(rows_of(STUDY), width=70)
    assert "dot against scaled_dot: equivalent at d_k 7; worse at 11" in text
    assert "token accuracy on test, paired over seeds, 5 % after Holm" in text
    assert "against" not in summary([row for row in rows_of(STUDY) if row["seed"] == 0])


def test_text_has_every_number_and_fits_the_terminal() -> None:
    lines = verdict_text(lane_results(rows_of(STUDY)), "token_accuracy", "test", 100).split("\n")
    assert max(map(len, lines)) <= 120
    assert lines[2:4] == [
        "dot against scaled_dot",
        "d_k  dot    scaled_dot  difference  95 % interval     verdict     p (Holm)  p (flip)  P(better)  effect",
    ]
    assert lines[5].startswith("11   0.224  0.972       -0.748      -0.764 to -0.732  worse")
    assert "0.0625*" in lines[5]
    assert [p_text(p) for p in (None, 0.0, 0.04321, 1.0)] == ["-", "<0.0001", "0.0432", "1.0000"]


def test_an_interval_of_shares_leaves_no_room_for_what_cannot_be() -> None:
    values: Values = {"dot": {7: [0.0, 0.1, 0.5]}, "scaled_dot": {7: [1.0, 0.99, 0.98]}}
    assert "-1.000 to " in verdict_text(lane_results(rows_of(values)), "token_accuracy", "test")


def test_csv_has_a_line_a_comparison_with_full_digits() -> None:
    lanes = lane_results(rows_of(STUDY))
    lines = list(csv.DictReader(io.StringIO(verdict_csv(lanes, "token_accuracy", "test"))))
    made = compare(lanes, "token_accuracy", "test")
    assert len(lines) == len(made) == 6
    for line, each in zip(lines, made, strict=True):
        assert (line["first"], line["second"], line["d_k"]) == (each.first, each.second, str(each.place["d_k"]))
        assert float(line["difference"]) == each.difference.mean
        assert (float(line["p_holm"]), line["verdict"]) == (each.verdict.p, each.verdict.word)
    one = verdict_csv(lane_results(rows_of({"dot": {7: [0.5]}, "scaled_dot": {7: [0.9]}})), "token_accuracy", "test")
    assert next(iter(csv.DictReader(io.StringIO(one))))["p_flip"] == ""


def test_the_command_compares_and_refuses_what_does_not_belong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = str(write_study(tmp_path / "study", study_rows(steps=300)))
    assert script.main([workdir, "--verdicts"]) == 0
    assert "Verdicts: token accuracy on test, each cell at its best rate" in capsys.readouterr().out
    assert script.main([workdir, "--verdicts", "--lr=0.003", "--value=loss"]) == 0
    assert "loss on test (nats per token), learning rate 0.003" in capsys.readouterr().out
    assert script.main([workdir, "--verdicts", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("axis,first,second,d_k,metric")
    for wrong in ("--rows=lr", "--columns=d_k", "--statistic=sd", "--lr=0.5"):
        assert script.main([workdir, "--verdicts", wrong]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith(f"error: {wrong}")
        assert captured.err.count("\n") == 1


def test_the_report_shows_verdicts_and_cells() -> None:
    rows = rows_of(STUDY)
    page = render(Path("study"), study_record(rows), rows)
    section = page.split("<h2>Verdicts</h2>")[1].split("<h2>")[0]
    assert "<caption>dot against scaled_dot</caption>" in section
    assert section.count("<td>worse</td>") == 1
    assert "5 of 5 never" in section
    assert "IQM: interquartile mean" in section
    rows = study_rows(scores=("dot",), widths=(7,), rates=(0.01,), seeds=(0,), steps=200)
    assert NOTHING in render(Path("study"), study_record(rows), rows)


def test_of_a_loss_the_smaller_is_the_improvement() -> None:
    lanes = lane_results(rows_of({"dot": {7: [0.5, 0.6, 0.7]}, "scaled_dot": {7: [0.9, 0.91, 0.65]}}))
    improvements = {name: compare(lanes, name, "test")[0].improvement for name in ("token_accuracy", "loss")}
    assert improvements == pytest.approx(dict.fromkeys(improvements, 1 / 9))


def test_a_difference_of_one_count_in_every_seed_is_uncertain() -> None:
    rows = rows_of({"dot": {7: [1.0] * 3}, "scaled_dot": {7: [1 - 1 / 512] * 3}})
    counted = [{**row, "target_tokens": 512} for row in rows]
    found = [compare(lane_results(each), "token_accuracy", "test")[0].verdict.word for each in (rows, counted)]
    assert found == [BETTER, EQUIVALENT]


def test_only_a_difference_that_is_shown_and_small_is_remarked() -> None:
    values: Values = {"dot": {7: [0.998, 0.999, 0.997]}, "scaled_dot": {7: [0.998, 0.998, 0.998]}}
    (found,) = compare(lane_results(rows_of(values)), "token_accuracy", "test")
    assert found.remark == ""


def test_values_that_are_numbers_are_named_with_their_axis() -> None:
    rows = study_rows(scores=("dot",), widths=(7, 11), steps=200)
    lanes = lane_results([{"heads" if name == "d_k" else name: row[name] for name in row} for row in rows])
    (comparison,) = compare(lanes, "token_accuracy", "test")
    assert comparison.pair == "heads=11 against 7"
