"""scripts/probe.py: what it prints, writes and refuses."""

import importlib.util
import json
import re

import pytest
from conftest import ROOT

SPEC = importlib.util.spec_from_file_location("probe", ROOT / "scripts" / "probe.py")
assert SPEC is not None
assert SPEC.loader is not None
probe = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(probe)

FIELDS = [
    "score",
    "d_k",
    "variance",
    "entropy",
    "max_weight",
    "one_minus_sum_p2",
    "share_saturated",
    *(f"jacobian_{part}" for part in ("mean", "q10", "q50", "q90")),
]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Nothing stays in this process."""
    monkeypatch.setattr(probe, "use_compilation_cache", lambda: None)


def test_rows_of_unit_normals(tmp_path, capsys):
    file, page = tmp_path / "probe.jsonl", tmp_path / "probe.html"
    flags = ["--scores=dot,scaled_dot", "--d_k=4,16", "--rows=64", "--keys=7", f"--json={file}", f"--output={page}"]
    assert probe.main(flags) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(row["score"], row["d_k"]) for row in rows] == [
        (score, d_k) for d_k in (4, 16) for score in ("dot", "scaled_dot")
    ]
    assert all(row.keys() >= set(FIELDS) for row in rows)
    assert [row["entropy_expansion"] is None for row in rows] == [row["variance_within"] > 2 for row in rows]
    out = capsys.readouterr().out
    assert out.split()[:3] == ["score", "d_k", "variance"]
    text = page.read_text()
    assert text.count('class="chart"') == 2
    assert not re.search(r"(src|href)=", text.partition("<script>")[0])


@pytest.mark.slow
def test_models_as_they_start(tmp_path):
    file = tmp_path / "probe.jsonl"
    flags = ["--config=configs/smoke.py", "--config.lanes.lr=1e-3,1e-2", "--sweep=model.d_k=8,128", "--rows=16"]
    assert probe.main([*flags, "--scores=dot", "--d_k=4", f"--json={file}"]) == 0
    rows = [row for row in map(json.loads, file.read_text().splitlines()) if "cell" in row]
    assert len(rows) == 4 * 2 * 3  # cells, seeds, attentions; rates are alike before the first update
    cross = [row for row in rows if row["attention"] == "cross" and row["score"] == "dot"]
    for row in cross:
        # Layer normalisation supplies the premise: vectors of mean square 1 give queries and keys of variance about 1,
        assert row["query_norm"] ** 2 == pytest.approx(row["d_k"], rel=0.5)
        # and the variance of their products grows as the width does.
        assert row["raw_variance"] == pytest.approx(row["d_k"], rel=0.9)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--scores=dto"], "'dto' is unknown"),
        (["--d_k=0"], "from 1 on"),
        (["--d_k=four"], "from 1 on"),
        (["--scores="], "choose from"),
        (["--keys=1"], "--keys=1: give a whole number from 2"),
        (["--keys=99999999999"], "--keys=99999999999: give a whole number from 2"),
        (["--rows=0"], "--rows=0: give a whole number from 1"),
        (["--seed=-1"], "--seed=-1: give a whole number from 0 to 4294967295"),
        (["--seed=4294967296"], "--seed=4294967296: give"),
        (["--d_k=4,99999999999"], "--d_k=4,99999999999: at most 4096"),
        (["--d_k=4096", "--keys=20000"], "times --keys=20000"),
        (["--config="], "names no file"),
        (["--json="], "--json=.: is a folder"),
        (["--output=."], "--output=.: is a folder"),
        (["--sweep=model.d_k=4"], "add --config=FILE"),
        (["--config.model.d_k=4"], "add --config=FILE"),
        (["--json=nowhere/x.jsonl"], "there is no folder nowhere"),
        (["--output=nowhere/x.html"], "there is no folder nowhere"),
        (["--config=configs/nowhere.py"], "nowhere.py"),
    ],
)
def test_refusals_are_one_line_and_come_first(flags, said, capsys, monkeypatch):
    monkeypatch.setattr(probe, "unit_normal_rows", None)  # nothing is drawn before
    assert probe.main(flags) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
