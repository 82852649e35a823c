"""The report: it opens offline, shows literal text, draws what is finite and says what is not."""

import html
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from model import SCORES
from scripts import report as script
from tests.synthetic_study import study_record, study_rows, write_study
from train.errors import UserError
from train.log import Row, read_config, read_rows
from train.report.axes import thin
from train.report.charts import COLOURS, OWN_COLOUR, fixed_rates, headline, layout, legend_columns, looks, save
from train.report.curves import curves
from train.report.markup import script_json
from train.report.page import render
from train.report.statistics import lane_results

NASTY = '<s> <b>x</b> & "q" 今日</script><script>alert(1)</script>'


class Reader(html.parser.HTMLParser):
    """The text of a page outside scripts, its elements, and every address in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.elements: list[str] = []
        self.addresses: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.inside = tag
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def nasty_rows() -> list[Row]:
    rows = study_rows(scores=("dot", "scaled_dot"), widths=(7, 11), steps=300)
    return [{**row, "score": NASTY, "cell": f"score={NASTY}"} if row["score"] == "dot" else row for row in rows]


@pytest.fixture(scope="module")
def nasty_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of a study whose names are markup."""
    workdir = tmp_path_factory.mktemp("runs") / "<b>今日</b>"
    rows = nasty_rows()
    record = study_record(rows) | {"config": {"task": {"train": [NASTY]}}, "config_path": NASTY}
    write_study(workdir, rows, record)
    assert script.main([str(workdir)]) == 0
    return workdir / "report.html"


def test_names_are_literal_text_and_the_page_loads_nothing(nasty_report: Path) -> None:
    page = nasty_report.read_text("utf-8")
    reader = read(page)
    assert NASTY in reader.text
    assert "<b>今日</b>" in reader.text
    assert reader.elements.count("script") == 2
    assert "b" not in reader.elements
    assert "link" not in reader.elements
    assert reader.addresses == []
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert 0.8e6 < len(page) < 3e6


def test_headless_browser_draws_it_without_network(nasty_report: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium to open the report with")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path}", "--virtual-time-budget=10000"]
    done = subprocess.run(
        [browser, *flags, "--dump-dom", nasty_report.as_uri()], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    assert "could not be drawn" not in done.stdout.split("</noscript>")[-1].split("<script>")[0]
    drawn = done.stdout.split("<script>")[0]
    assert drawn.count("<svg") == 4
    assert drawn.count("mark-line") >= 4
    legend = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawn))
    assert html.escape('<s> <b>x</b> & "q" 今日</script>', quote=False) in legend


def spec_of(page: str) -> dict[str, dict[str, object]]:
    found = re.search(r"Object\.entries\((\{.*\})\)\) \{", page)
    assert found
    specs: dict[str, dict[str, object]] = json.loads(found[1])
    return specs


def test_one_colour_a_score_in_every_chart() -> None:
    rows = study_rows(steps=300)
    page = render(Path("study"), study_record(rows), rows)
    specs = spec_of(page)
    assert len(specs) == 4
    scales = {
        json.dumps(scale, sort_keys=True)
        for spec in specs.values()
        for scale in re.findall(
            r'"color": (\{"field": "series".*?"range": \[.*?\]\})', json.dumps(spec, sort_keys=True)
        )
    }
    assert len({re.search(r"range.*", scale)[0] for scale in scales}) == 1  # type: ignore[index]
    assert all(colour in "".join(scales) for colour in (OWN_COLOUR[name] for name in ("dot", "additive", "scaled_dot")))


def test_new_scores_take_colours_that_are_free() -> None:
    rows = study_rows(scores=("dot", "cosine", "bilinear"), widths=(7, 11), steps=200)
    chart = headline(lane_results(rows), "token_accuracy", "test")
    assert chart is not None
    text = json.dumps(chart.to_dict())
    assert f'"range": ["{OWN_COLOUR["dot"]}", "{COLOURS[0]}", "{COLOURS[1]}"]' in text


def test_all_scores_look_different_and_their_names_fit_above_a_chart() -> None:
    names = sorted(SCORES)
    scales = {channel: scale.to_dict()["range"] for channel, scale in looks(names).items()}
    assert len(set(scales["color"])) == len(names)
    assert {channel: len(found) for channel, found in scales.items()} == dict.fromkeys(scales, len(names))
    assert legend_columns(names) == 4
    assert legend_columns(names[:3]) == 3


def one_row() -> list[Row]:
    return study_rows(steps=100)[:1]


def all_null() -> list[Row]:
    metrics = ("loss", "token_accuracy", "sequence_accuracy")
    rows = study_rows(widths=(7, 11), steps=200)
    return [{**row, **dict.fromkeys(metrics), "best_step": None, "diverged_at": 13} for row in rows]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "no evaluations yet"),
        (one_row(), "Incomplete cells"),
        (all_null(), "no finite number"),
        (study_rows(steps=300, test=False), "No lane has reached its test yet"),
        (
            [{k: v for k, v in row.items() if k != "token_accuracy"} for row in study_rows(steps=200)],
            "sequence accuracy",
        ),
        (study_rows(scores=("dot",), widths=(64,), rates=(0.1,), seeds=(0,), steps=200), "1 training run"),
        (study_rows(tasks=("parallel_text",), widths=(7,), bleu=True, steps=200), "nrefs:1"),
        (study_rows(tasks=("copy", "sort"), steps=200), "task=sort"),
    ],
    ids=["empty", "one row", "all null", "unfinished", "missing metric", "one lane", "translation", "two tasks"],
)
def test_what_a_study_can_hold_makes_a_page(rows: list[Row], expected: str) -> None:
    page = render(Path("study"), study_record(rows), rows)
    text = read(page).text
    assert expected in text
    assert "NaN" not in text
    assert "None" not in text.split("Configuration")[0].replace("None: every loss", "")


def test_facts_of_several_launches_are_told_apart() -> None:
    rows = study_rows(widths=(7,), steps=200)
    launches = [{"platform": "cpu", "lane_shards": 2}, {"platform": "gpu", "lane_shards": 1}]
    text = read(render(Path("study"), study_record(rows) | {"layouts": launches}, rows)).text
    assert "platform cpu, lane_shards 2; platform gpu, lane_shards 1" in text


def test_a_bare_record_is_enough(tmp_path: Path) -> None:
    write_study(tmp_path, study_rows(steps=200), {})
    assert script.main([str(tmp_path)]) == 0
    assert read_config(tmp_path) == {}


def test_diverged_lanes_are_listed_and_the_others_drawn() -> None:
    rows = study_rows(steps=600)
    reader = read(render(Path("study"), study_record(rows), rows))
    listed = reader.text.split("Diverged lanes")[1].split("Configuration")[0]
    assert listed.count("score=dot,d_k=256") == 3
    assert listed.count("score=dot,d_k=64") == 2
    chart = curves(rows, lane_results(rows), "loss", "token_accuracy")
    assert chart is not None
    series = {point["series"] for point in chart.to_dict()["data"]["values"]}
    assert series == {"additive", "dot", "scaled_dot"}


def test_cells_that_did_not_finish_are_named() -> None:
    rows = [row for row in study_rows(steps=200) if (row["score"], row["split"]) != ("dot", "test")]
    rows = [row for row in rows if row["cell"] != "score=additive,d_k=4"]
    text = read(render(Path("study"), study_record(study_rows(steps=200)), rows)).text
    waiting = text.split("Incomplete cells")[1]
    assert "score=dot,d_k=640 of 9" in waiting
    assert "score=additive,d_k=40 of 90not started" in waiting
    assert "scaled_dot" not in waiting


def test_cells_that_an_extension_left_out_are_not_called_stopped() -> None:
    rows = study_rows(widths=(4,), steps=200)
    extended = [row for row in rows if row["seed"] < 2 or row["score"] == "dot"]
    waiting = read(render(Path("study"), study_record(rows), extended)).text.split("Incomplete cells")[1]
    assert "These cells lack some of the study's lanes, or have lanes without a test row." in waiting
    assert "the command that asked for them goes on" in waiting
    assert "score=additive,d_k=46 of 9" in waiting
    assert "score=dot,d_k=4" not in waiting.split("Configuration")[0]


def test_a_point_says_what_it_stands_for_where_no_tooltip_can(tmp_path: Path) -> None:
    # At the largest rate unscaled scores lose 1 of 3 lanes at d_k 64 before an evaluation, and all at 256.
    rows = [row for row in study_rows(steps=300) if row["lr"] == 0.01]
    waiting = [row for row in rows if (row["score"], row["d_k"], row["split"]) != ("dot", 64, "test")]
    for study, mark, share in ((rows, "", "2/3"), (waiting, "–", "")):
        chart = headline(lane_results(study), "token_accuracy", "test")
        assert chart is not None
        points = [point for point in chart.to_dict()["data"]["values"] if point["series"] == "dot"]
        marks = {point["at"]: (point["missing"], point["share"]) for point in points}
        assert marks == {4: ("", ""), 16: ("", ""), 64: (mark, share), 256: ("×", "")}
    chart = headline(lane_results(rows), "token_accuracy", "test")
    assert chart is not None
    save(chart, tmp_path / "chart.svg")
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "chart.svg").read_text("utf-8"))
    assert (drawn.count("2/3"), drawn.count("×")) == (1, 1)


def with_accuracies(*test: float) -> list[Row]:
    """A study of one cell whose lanes have these token accuracies on test."""
    rows = study_rows(scores=("dot",), widths=(7,), rates=(0.01,), seeds=range(len(test)), steps=200)
    return [{**row, "token_accuracy": test[row["seed"]]} if row["split"] == "test" else row for row in rows]


def test_an_interval_stays_in_the_range_of_its_metric() -> None:
    counted = with_accuracies(0.05, 0.9, 0.95)
    text = read(render(Path("study"), study_record(counted), counted)).text
    assert "e-04 to 1.000" in text
    assert "clipped" not in text
    wide = [{field: value for field, value in row.items() if field != "target_tokens"} for row in counted]
    text = read(render(Path("study"), study_record(wide), wide)).text
    assert "0.000 to 1.000" in text
    assert text.count("interval clipped to the range of the metric") == 1
    narrow = with_accuracies(0.5, 0.51, 0.52)
    text = read(render(Path("study"), study_record(narrow), narrow)).text
    assert "0.485 to 0.535" in text
    assert "clipped" not in text


def test_the_page_says_what_choosing_a_rate_leaves_in_the_numbers() -> None:
    for test, words in ((True, "not the luck of the seeds"), (False, "chosen there too, so what is shown for them")):
        rows = study_rows(widths=(7,), steps=200, test=test)
        assert words in read(render(Path("study"), study_record(rows), rows)).text


def test_a_diverged_lane_stays_in_the_curve_with_what_it_froze_at() -> None:
    rows = study_rows(scores=("dot",), widths=(64,), rates=(0.01,), seeds=(0, 1), steps=300)
    for row in rows:
        if row["split"] == "valid":
            row |= {"loss": row["seed"] * row["step"] / 100 + 1, "diverged_at": 150 if row["seed"] == 0 else None}
    chart = curves(rows, lane_results(rows), "loss", "token_accuracy")
    assert chart is not None
    assert [point["mean"] for point in chart.to_dict()["data"]["values"]] == [1.5, 2.0, 2.5]


def test_long_curves_are_thinned_with_their_ends() -> None:
    assert thin(5, 20) == [0, 1, 2, 3, 4]
    kept = thin(1001, 100)
    assert (len(kept), kept[0], kept[-1]) == (100, 0, 1000)
    rows = study_rows(scores=("dot", "additive"), widths=(7,), rates=(0.01,), seeds=(0,), steps=20000, every=10)
    assert len(rows) == 8002
    chart = curves(rows, lane_results(rows), "loss", "token_accuracy")
    assert chart is not None
    assert len(chart.to_dict()["data"]["values"]) == 200


@pytest.mark.slow
def test_forty_thousand_rows_make_a_page_of_moderate_size() -> None:
    rows = study_rows(seeds=range(5), steps=2000, every=10)
    assert len(rows) > 70000
    page = render(Path("study"), study_record(rows), rows)
    assert len(page) < 3e6


def test_panels_stand_in_rows_that_the_page_can_hold() -> None:
    rows = study_rows(tasks=("copy", "sort"), rates=(0.001, 0.003, 0.01, 0.03), steps=200)
    lanes = lane_results(rows)
    for chart in (curves(rows, lanes, "loss", "loss"), fixed_rates(lanes, "token_accuracy", "test")):
        assert chart is not None
        spec = chart.to_dict()
        names = spec["facet"]["sort"]
        assert len(names) == 8
        assert [name.split(", ")[0] for name in names] == ["task=copy"] * 4 + ["task=sort"] * 4
        assert {point[spec["facet"]["field"]] for point in spec["data"]["values"]} == set(names)
        assert spec["columns"] * spec["spec"]["width"] < 900
    few = [row for row in rows if row["lr"] < 0.03]
    chart = fixed_rates(lane_results(few), "token_accuracy", "test")
    assert chart is not None
    assert set(chart.to_dict()["facet"]) == {"row", "column"}


def test_layouts_of_other_studies() -> None:
    plan = layout(lane_results(study_rows(widths=(7,), steps=200)))
    assert (plan.x, plan.series) == ("score", "score")
    plan = layout(lane_results(study_rows(scores=("dot",), widths=(7,), steps=200)))
    assert (plan.x, plan.series_names) == ("lr", ("dot",))


def test_json_in_a_script_holds_no_markup() -> None:
    text = script_json({"name": "</script><!-- \u2028"})
    assert "<" not in text
    assert json.loads(text) == {"name": "</script><!-- \u2028"}
    with pytest.raises(ValueError, match="JSON"):
        script_json(float("nan"))


def test_images_for_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workdir = write_study(tmp_path / "w", study_rows(steps=300))
    image = tmp_path / "chart.svg"
    assert script.main([str(workdir), f"--output={tmp_path}/r.html", f"--image={image}"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/r.html\n{image}\n"
    assert "<svg" in image.read_text("utf-8")
    assert "d_k, width of query and key per head" in image.read_text("utf-8")
    chart = headline(lane_results(read_rows(workdir)), "token_accuracy", "test")
    assert chart is not None
    save(chart, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    for name in ("chart.gif", "absent/chart.svg"):
        with pytest.raises(UserError, match=name):
            save(chart, tmp_path / name)


def test_what_cannot_be_read_or_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workdir = write_study(tmp_path / "w", [])
    full = write_study(tmp_path / "full", study_rows(steps=200))
    before = sorted(tmp_path.rglob("*"))
    for arguments in (
        [str(full), f"--image={tmp_path}/c.jpg"],
        [str(full), f"--image={tmp_path}/c"],
        [str(full), f"--image={tmp_path}/no/c.svg"],
        [str(full), f"--image={tmp_path}/c.svg", "--value=lost"],
        [str(full), f"--image={tmp_path}/c.svg", f"--output={tmp_path}/no/r.html"],
        [str(full), "--value=loss"],
        [str(tmp_path / "absent")],
        [str(workdir), "--output=/dev/full"],
        [str(workdir), f"--output={tmp_path}/no/r.html"],
        [str(workdir), f"--image={tmp_path}/c.svg"],
    ):
        assert script.main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ")
        assert captured.err.count("\n") == 1
        assert captured.out == ""
        assert sorted(tmp_path.rglob("*")) == before
