"""The part of a study that is looked at."""

from pathlib import Path

import pytest

from scripts import report, table
from tests.synthetic_study import study_rows, write_study
from train.errors import UserError
from train.report.selection import read_part


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    return write_study(tmp_path / "w", study_rows(scores=("dot", "scaled_dot"), widths=(7, 77), steps=200))


@pytest.mark.parametrize(
    ("only", "cells"),
    [
        ([], {"score=dot,d_k=7", "score=dot,d_k=77", "score=scaled_dot,d_k=7", "score=scaled_dot,d_k=77"}),
        (["score=dot"], {"score=dot,d_k=7", "score=dot,d_k=77"}),
        (["d_k=7, score=dot"], {"score=dot,d_k=7"}),
        (["score=dot,d_k=7", "d_k=77"], {"score=dot,d_k=7", "score=dot,d_k=77", "score=scaled_dot,d_k=77"}),
    ],
)
def test_cells_have_all_values_of_one_of_them(workdir, only, cells):
    part = read_part(workdir, only)
    assert {row["cell"] for row in part.rows} == cells
    assert {entry["cell"] for entry in part.record["cells"]} == cells
    assert part.diagnostics == []


@pytest.mark.parametrize("only", ["score=do", "d_k=7,d_k=77", "", "score", "task=sort"])
def test_what_fits_no_cell_is_refused_by_its_name(workdir, only):
    expected = f"--only={only}: the study has no such cell; cells are named like score=dot,d_k=7"
    with pytest.raises(UserError) as raised:
        read_part(workdir, ["score=dot", only])
    assert str(raised.value) == expected


def test_scripts_show_the_part_alone(workdir, capsys):
    assert table.main([str(workdir), "--only=score=dot,d_k=77"]) == 0
    shown = capsys.readouterr().out
    assert "dot" in shown
    assert "scaled_dot" not in shown
    assert report.main([str(workdir), "--only", "score=dot"]) == 0
    page = (workdir / "report.html").read_text("utf-8")
    assert "score=dot,d_k=7" in page
    assert "score=scaled_dot" not in page
    assert '"series": "scaled_dot"' not in page
    assert table.main([str(workdir), "--only=score=lost"]) == 2


def test_what_has_not_ended_is_told(tmp_path):
    rows = study_rows(scores=("dot", "scaled_dot"), widths=(7, 77), steps=200)
    begun = [row for row in rows if row["cell"] != "score=dot,d_k=77"]
    begun = [row for row in begun if (row["cell"], row["split"], row["lane"]) != ("score=scaled_dot,d_k=7", "test", 1)]
    part = read_part(write_study(tmp_path / "w", begun))
    # The record is made of the rows there; what of it has none is a cell that training has not come to.
    part.record["cells"].append({"cell": "score=dot,d_k=77"})
    assert part.unevaluated == ["score=dot,d_k=77"]
    assert part.untested == ["score=scaled_dot,d_k=7"]
    left_out, going_on = part.unfinished().splitlines()
    assert left_out == "left out, not evaluated yet: score=dot,d_k=77"
    assert going_on == "not trained to the end yet: score=scaled_dot,d_k=7"
    whole = read_part(write_study(tmp_path / "whole", rows))
    assert (whole.unevaluated, whole.untested, whole.unfinished()) == ([], [], "")
