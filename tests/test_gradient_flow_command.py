"""scripts/gradient_flow.py: what it follows, prints, writes and refuses."""

import importlib.util
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT

from model.cells import CELLS
from model.gradient_flow import start, step
from train.gradient_flow import at_initialisation, distance_rows, of_study
from train.log import read_rows
from train.report.selection import read_part
from train.restore import restore

SPEC = importlib.util.spec_from_file_location("gradient_flow_script", ROOT / "scripts" / "gradient_flow.py")
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

FIELDS = {"cell_type", "lane", "distance", "sentences", "bound", "forget_max"} | {
    f"{what}_{part}" for what in ("norm", "forget") for part in ("q10", "q50", "q90")
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No cache of programs stays in this process."""
    monkeypatch.setattr(script, "use_compilation_cache", lambda: None)


def test_quantiles_are_over_the_sentences_that_are_so_long():
    (one,) = [one for one in at_initialisation(5, 11, 3, 0, [1.0]) if one.label == "lstm"]
    norm_bd = one.flow.log_norm_bd.copy()
    norm_bd[0, 4:] = np.nan
    norm_bd[:, 5] = np.log([2.0, 3.0, 7.0])
    rows = list(distance_rows(one._replace(flow=one.flow._replace(log_norm_bd=norm_bd))))
    assert [row["sentences"] for row in rows] == [3, 3, 3, 3, 2, 3, *[2] * 5]
    assert [rows[5][f"norm_{part}"] for part in ("q10", "q50", "q90")] == pytest.approx([2.2, 3.0, 6.2])
    assert rows[4]["norm_q50"] == pytest.approx(np.exp(norm_bd[1:, 4]).mean())
    assert all(row["forget_q10"] <= row["forget_q50"] <= row["forget_q90"] <= row["forget_max"] <= 1 for row in rows)


def launched(environment, *arguments):
    command = [sys.executable, "scripts/gradient_flow.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110)


def check_rows(rows):
    for row in rows:
        assert row.keys() >= FIELDS
        assert (row["bound"] is not None) == (row["cell_type"] == "tanh")
        assert {row[f"forget_{part}"] is not None for part in ("q10", "q50", "q90", "max")} == {
            row["cell_type"] == "lstm"
        }
        assert 0 < row["norm_q10"] <= row["norm_q50"] <= row["norm_q90"]
        if row["bound"] is not None:
            assert row["norm_q90"] <= row["bound"] * (1 + 1e-4)


def test_cells_at_initialisation(tmp_path, subprocess_environment):
    file, output = tmp_path / "flow.jsonl", tmp_path / "flow.html"
    sizes = ("--d_model=7", "--length=11", "--sentences=5", "--input_size=1,0.1")
    done = launched(subprocess_environment, "--init", *sizes, f"--json={file}", f"--output={output}")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 2 * 7 * 11
    check_rows(rows)
    assert {row["label"] for row in rows} == {"gru", "lstm"} | {
        f"tanh, sigma_max {s:g}" for s in (0.5, 0.9, 1, 1.1, 1.5)
    }
    assert all(row["lane"] is None for row in rows)
    last = {(row["label"], row["input_size"]): row["norm_q50"] for row in rows if row["distance"] == 11}
    assert last["tanh, sigma_max 0.5", 0.1] < 1e-3 < 1 < last["tanh, sigma_max 1.5", 0.1]
    assert last["tanh, sigma_max 1.5", 1.0] < last["tanh, sigma_max 1.5", 0.1]
    page = output.read_text()
    assert page.count('class="chart"') == 3
    assert not re.search(r"(src|href)=", page.partition("<script>")[0])
    assert str(output) in done.stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory, subprocess_environment):
    """Three recurrent cells and a Transformer, of two rates."""
    workdir = tmp_path_factory.mktemp("flow") / "study"
    knobs = ["model.d_model=7", "run.diagnose_every=0", "task.symbols=5", "task.min_length=2", "task.max_length=7"]
    knobs += ["task.valid_size=23", "task.test_size=11", "run.steps=10", "run.eval_every=5", "run.batch_size=11"]
    knobs += ["optim.warmup_steps=2", "lanes.lr=1e-3,3e-2"]
    command = [sys.executable, "-m", "train", "--config=configs/base.py", f"--workdir={workdir}"]
    command += [f"--config.{knob}" for knob in knobs] + ["--config.model.name=recurrent"]
    command += ["--sweep", "model.rnn=tanh,gru,lstm"]
    done = subprocess.run(command, cwd=ROOT, env=subprocess_environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return workdir


def names_of(workdir):
    """Names of the cells of a study by the kind of recurrent cell."""
    entries = json.loads((workdir / "config.json").read_text())["cells"]
    return {entry["settings"]["model"]["rnn"]: entry["cell"] for entry in entries}


@pytest.mark.slow
def test_trained_cells(study, tmp_path, subprocess_environment):
    file = tmp_path / "flow.jsonl"
    done = launched(subprocess_environment, study, "--sentences=13", f"--json={file}")
    assert done.returncode == 0, done.stderr
    assert (study / "gradient_flow.html").read_text().count('class="chart"') == 3
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    check_rows(rows)
    names = names_of(study)
    assert {(row["cell"], row["cell_type"]) for row in rows} == {(name, cell) for cell, name in names.items()}
    for cell, name in names.items():
        losses = {}
        for row in read_rows(study):
            if row["cell"] == name and row["split"] == "valid":
                losses[row["lane"]] = min(row["loss"], losses.get(row["lane"], np.inf))
        assert {row["lane"] for row in rows if row["cell_type"] == cell} == {min(losses, key=losses.__getitem__)}


@pytest.mark.parametrize("cell", sorted(CELLS))
def test_what_is_followed_is_the_first_layer_of_the_encoder(study, cell):
    """The state at the end that the model itself has, and its derivative by the one a few tokens before."""
    name = names_of(study)[cell]
    (one,) = of_study(read_part(study, [name]), 1, 13)
    trained = restore(study, name, 1)
    batch = trained.task.evaluation("valid").batches[0]
    assert one.names == {"cell": name, "cell_type": cell, "lane": 1}
    order_b = trained.task.evaluation("valid").order_n[: len(batch.source_bs)]
    source_bs = batch.source_bs[np.argsort(np.where(order_b < 0, 10**6, order_b))][:13]
    encoded = trained.module.apply({"params": trained.params}, source_bs, deterministic=True, method="encode")
    params = trained.params["encoder_0"]["cells_0"]
    embedded = trained.module.apply({"params": trained.params}, source_bs, method="embed_source")
    for row in (0, 12):
        length = int((source_bs[row] != 0).sum())
        assert int((~np.isnan(one.flow.log_norm_bd[row])).sum()) == length
        states = [start(cell, params)]
        for input_m in embedded[row, :length]:
            states.append(step(cell, params, states[-1], input_m))
        last_i = jnp.concatenate([leaf[row] for leaf in jax.tree.leaves(encoded.last[0][0])])
        np.testing.assert_allclose(states[-1], last_i, rtol=1e-5, atol=1e-6)

        def two_steps(state_i, inputs):
            return step(cell, params, step(cell, params, state_i, inputs[0]), inputs[1])

        two_ij = jax.jacobian(two_steps)(states[-3], embedded[row, length - 2 : length])
        assert np.exp(one.flow.log_norm_bd[row, 1]) == pytest.approx(np.linalg.norm(two_ij, 2), rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "give either the workdir of a study or --init"),
        (["STUDY", "--init"], "give either the workdir of a study or --init"),
        (["--init", "--only=rnn=gru"], "--only: it needs a workdir"),
        (["--init", "--lane=0"], "--lane: it needs a workdir"),
        (["STUDY", "--length=7"], "--length: it needs --init"),
        (["STUDY", "--seed=0"], "--seed: it needs --init"),
        (["--init", "--d_model=0"], "--d_model=0: give a whole number from 1 to 256"),
        (["--init", "--length=0"], "--length=0: give a whole number from 1 to 1000"),
        (["--init", "--sentences=0"], "--sentences=0: give a whole number from 1"),
        (["--init", "--input_size=big"], "--input_size=big: give numbers from 0"),
        (["--init", "--input_size=nan"], "--input_size=nan: give numbers from 0"),
        (["--init", "--json=nowhere/x.jsonl"], "there is no folder nowhere"),
        (["--init", "--output=."], "--output=.: is a folder"),
        (["--init", "--json=metrics.jsonl"], "--json=metrics.jsonl: studies have files of this name"),
        (["--init", "--json=x", "--output=./x"], "--json and --output name the same file"),
        (["nowhere"], "nowhere/config.json: no such file"),
        (["STUDY", "--only=rnn=lsmt"], "--only=rnn=lsmt: the study has no such cell"),
        (["STUDY", "--lane=2"], "has no lane 2; it has 0 to 1"),
        (["UNTRAINED"], "has no checkpoint of lane 0 yet"),
        (
            ["TRANSFORMERS"],
            "has no recurrent cell among {tanh}, {gru}, {lstm}: train with --config.model.name=recurrent",
        ),
        (["MIXED", "--only={gru}"], "has no recurrent cell among {gru}: train with"),
    ],
)
def test_refusals_are_one_line_and_nothing_is_written(flags, said, study, tmp_path, capsys):
    record, names = json.loads((study / "config.json").read_text()), names_of(study)
    for name, transformers in (("UNTRAINED", ()), ("TRANSFORMERS", ("tanh", "gru", "lstm")), ("MIXED", ("gru",))):
        for cell in record["cells"]:
            other = cell["settings"]["model"]["rnn"] in transformers
            cell["settings"]["model"]["name"] = "transformer" if other else "recurrent"
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(record))
        (tmp_path / name / "metrics.jsonl").touch()
    folders = {name: str(tmp_path / name) for name in ("UNTRAINED", "TRANSFORMERS", "MIXED")} | {"STUDY": str(study)}
    before = [sorted(folder.rglob("*")) for folder in (tmp_path, study)]
    assert script.main([folders.get(flag, flag.format(**names)) for flag in flags]) == 2
    error = capsys.readouterr().err.strip()
    assert said.format(**names) in error
    assert "\n" not in error
    assert [sorted(folder.rglob("*")) for folder in (tmp_path, study)] == before
