"""Files that commands are to write, refused beforehand."""

import importlib.util
import re

import pytest
from conftest import ROOT

from train.errors import UserError
from train.report.files import check_files


def test_a_file_to_write_needs_a_folder_and_a_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_files(json=None, output=None)
    check_files(json=tmp_path / "new.jsonl", output=tmp_path / "new.html")
    for said, paths in {
        f"--json={tmp_path}/no/x: there is no folder {tmp_path}/no": {"json": tmp_path / "no" / "x"},
        f"--json={tmp_path}: is a folder; name a file": {"json": tmp_path},
        f"--output={tmp_path}/metrics.jsonl: studies have files of this name": {"output": tmp_path / "metrics.jsonl"},
        "--json and --output name the same file": {"json": tmp_path / "x", "output": type(tmp_path)("x")},
    }.items():
        with pytest.raises(UserError, match=re.escape(said)):
            check_files(**paths)


@pytest.mark.parametrize("name", ["diagnostics", "gradient_flow", "lengths", "probe", "report", "table"])
def test_every_command_refuses_its_files_before_any_work_and_names_the_flag(name, tmp_path, capsys):
    file = ROOT / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_script", file)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    subject = [] if name == "probe" else ["--init"] if name == "gradient_flow" else [str(tmp_path)]
    flags = [flag for flag in ("--json", "--output", "--image") if f'"{flag}", type=Path' in file.read_text()]
    assert flags
    for flag in flags:
        assert script.main([*subject, f"{flag}={tmp_path}/no/x.svg"]) == 2
        said = f"error: {flag}={tmp_path}/no/x.svg: there is no folder {tmp_path}/no\n"
        assert capsys.readouterr().err == said
