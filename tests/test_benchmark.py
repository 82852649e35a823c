"""The benchmark: its numbers, its tables, what its contenders compute, and one real run."""

import importlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import ROOT

import model
from tests import architectures
from train.tasks import PAD

BENCHMARK = ROOT / "scripts" / "benchmark"
sys.path.insert(0, str(BENCHMARK))  # as `python scripts/benchmark` has it
engine, length, measurement, process, scores, table = map(
    importlib.import_module, ("engine", "length", "measurement", "process", "scores", "table")
)


def command(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, str(BENCHMARK), *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=100, cwd=ROOT, **keywords)


# Numbers


@pytest.mark.parametrize(
    ("values", "spread"), [([5.0, 1.0, 3.0, 2.0, 4.0], 1.0), ([1.0, 2.0], 0.25), ([7.0, 7.0, 7.0], 0.0), ([7.0], None)]
)
def test_spread_is_half_the_distance_between_the_quartiles(values, spread):
    assert measurement.half_quartile_distance(values) == spread


def test_a_ratio_is_taken_round_by_round():
    one = measurement.ratio("engine", "a/b", "updates", [2.0, 30.0, 8.0], [1.0, 10.0, 1.0], {"d_k": 4})
    assert (one.value, one.repeats, one.unit) == (3.0, 3, "times")  # the medians alone would give 8


def test_means_over_sizes():
    rows = [measurement.row("engine", "a/b", "updates", "times", [value], {"d_k": value}) for value in (2.0, 8.0)]
    geometric, plain = measurement.mean(rows, geometric=True), measurement.mean(rows)
    assert (geometric.value, plain.value) == (pytest.approx(4.0), 5.0)
    assert (geometric.sizes, geometric.spread, geometric.repeats) == ({}, None, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "0.0123"), (12.34, "12.3"), (999.4, "999"), (999.6, "1,000"), (12345.6, "12,346"), (3.9e8, "3.9e+08")],
)
def test_digits(value, text):
    assert table.number(value) == text


def some_rows() -> list[Any]:
    return [
        measurement.row("engine", "lanes", "updates", "1/s", [900.0, 1000.0, 1100.0], {"d_model": 64, "d_k": 16}),
        measurement.row("engine", "plain_jax", "updates", "1/s", [500.0], {"d_model": 64, "d_k": 16}),
        measurement.row("engine", "lanes", "updates", "1/s", [20.0], {"d_model": 256, "d_k": 64}),
        measurement.ratio("engine", "lanes/plain_jax", "updates", [2.0], [1.0], {"d_model": 64, "d_k": 16}),
        measurement.Row("engine", "lanes/plain_jax", "updates", 2.0, "times", None, 1, {}),
    ]


def test_a_table_has_a_block_a_quantity_a_line_a_size_and_a_column_a_contender():
    assert table.to_text(some_rows()).split("\n") == [
        "updates, 1/s",
        "d_model  d_k  lanes      plain_jax",
        "64       16   1,000 ±50  500",
        "256      64   20",
        "",
        "updates, times",
        "d_model  d_k  lanes/plain_jax",
        "64       16   2",
        "all      all  2",
    ]


def test_rows_as_json_lines():
    lines = table.to_json(some_rows()).splitlines()
    assert len(lines) == 5
    assert json.loads(lines[0]) == {
        "section": "engine",
        "contender": "lanes",
        "quantity": "updates",
        "value": 1000.0,
        "unit": "1/s",
        "spread": 50.0,
        "repeats": 3,
        "d_model": 64,
        "d_k": 16,
    }
    with pytest.raises(ValueError, match="JSON"):
        table.to_json([measurement.row("engine", "lanes", "updates", "1/s", [float("nan")], {})])


def test_the_heading_says_where_and_with_what():
    lines = table.heading("engine", "/no/such/python").splitlines()
    assert lines[0].startswith("engine  ")
    assert lines[0].endswith(" cores")
    assert lines[1].startswith("python 3.")
    assert f"jax {jax.__version__}" in lines[1]
    assert len(lines) == 3


def measured(rates: dict[str, list[float]]) -> Any:
    rounds = {name: [[{"seconds": 2.0, "count": 2.0 * rate}] for rate in some] for name, some in rates.items()}
    ready = {name: [{"compile_seconds": 5.0, "facts": {"flops": 10.0}}] for name in rates}
    return process.Measured(rounds, ready, {})


def test_engine_compares_with_the_better_pytorch_and_with_the_machine():
    rates = {"lanes": [8.0, 8.0], "plain_jax": [2.0, 4.0], "matrix": [160.0, 160.0]}
    rates |= {"pytorch_threads": [1.0, 1.0], "pytorch_processes": [4.0, 4.0]}
    found = {
        (one.contender, one.quantity): one.value
        for one in engine.rows_of(measured(rates), "transformer", {"d_model": 64, "d_k": 16})
    }
    assert found["pytorch", "updates"] == 4.0
    assert found["lanes/pytorch", "updates"] == 2.0
    assert found["lanes/plain_jax", "updates"] == 3.0
    assert found["lanes", "share of the matrix rate"] == 0.5


def test_engine_counts_target_tokens_of_the_recurrent_model():
    rates = {"lanes": [8.0, 8.0], "pytorch_threads": [1.0, 1.0], "pytorch_processes": [4.0, 4.0]}
    rows = engine.rows_of(measured(rates), "recurrent", {"d_model": 64, "d_k": 16, "feeding": 0})
    found = {(one.contender, one.quantity): one.value for one in rows}
    assert found["lanes", "target tokens"] == 8.0 * 32 * 21
    assert found["lanes/pytorch", "target tokens"] == 2.0
    assert not any("operations" in quantity or "share" in quantity for _, quantity in found)


@pytest.mark.parametrize("lost", ["lanes", "plain_jax", "matrix", "pytorch_threads"])
def test_engine_goes_on_without_a_contender(lost):
    names = {"lanes", "plain_jax", "matrix", "pytorch_threads"} - {lost}
    rows = engine.rows_of(measured({name: [1.0] for name in names}), "transformer", {"d_model": 64, "d_k": 16})
    assert rows
    assert not any(lost in (part for part in one.contender.split("/")) for one in rows)
    engine.averages(rows)


def test_scores_pairs_what_is_compared():
    seconds = {"score blocked": 0.001, "score plain": 0.004, "attention scaled_dot": 0.002}
    fact = {"program": "score plain", "operations": 7.0, "temporary memory": 1.5}
    rounds = {
        "jax": [[seconds], [seconds]],
        "pytorch": [[{"attention pytorch": 0.001}], [{"attention pytorch": 0.004}]],
    }
    ready = {"jax": [{"facts": {"programs": [fact]}}], "pytorch": [{"facts": {"programs": []}}]}
    measured = process.Measured(rounds, ready, {})
    rows = [*scores.rows_of(measured, {"d_k": 4, "cores": 1}), *scores.facts_of(measured, {"d_k": 4})]
    found = {(one.contender, one.quantity): one.value for one in rows}
    assert found["blocked", "score"] == pytest.approx(1.0)
    assert found["blocked/plain", "time of the score"] == pytest.approx(0.25)
    assert found["scaled_dot/pytorch", "time of the attention"] == pytest.approx(1.25)
    assert found["plain", "temporary memory of the score"] == 1.5
    assert not any("keras" in one.contender for one in rows)


# What the contenders compute


def test_scores_and_attentions_that_are_compared_are_the_same_functions():
    jax_scores = importlib.import_module("contenders.jax_scores")
    data = jax_scores.arrays({"batch": 2, "heads": 1, "length": 5, "d_k": 3})
    with jax.numpy_rank_promotion("allow"):  # inside other libraries
        found = {
            name: jax.tree.leaves(function(*arguments))
            for name, (function, arguments) in jax_scores.programs(data).items()
        }
    pairs = [
        ("score blocked", "score plain"),
        ("attention scaled_dot", "attention jax_attention"),
        ("attention scaled_dot", "attention flax_attention"),
        ("attention dot", "attention jax_unscaled"),
    ]
    for one, other in pairs:
        for mine, theirs in zip(found[one], found[other], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_the_plain_model_is_the_same_function():
    widths = {"d_model": 11, "num_heads": 2, "d_k": 3, "d_v": 5, "d_ff": 13, "num_layers": 2}
    rest = {"position": "sinusoidal", "norm": "pre", "dropout": 0.0, "tie_embeddings": False, "dtype": "float32"}
    rest |= {"attention_bias": False, "lengths": model.Lengths(5.0, 7.0)}
    ours = model.build("transformer", source_vocab=17, target_vocab=19, score="scaled_dot", pad=PAD, **widths, **rest)
    plain = importlib.import_module("contenders.plain_model").PlainTransformer(17, 19, **widths, pad=PAD)
    rng = np.random.default_rng(0)
    source_bs, input_bt = rng.integers(3, 17, (3, 7)), rng.integers(3, 19, (3, 5))
    source_bs[1, 4:] = PAD
    params = ours.init(jax.random.key(0), source_bs, input_bt, deterministic=True)
    same = jax.tree.map(jnp.shape, plain.init(jax.random.key(0), source_bs, input_bt))
    assert jax.tree.map(jnp.shape, params) == same
    np.testing.assert_allclose(
        plain.apply(params, source_bs, input_bt),
        ours.apply(params, source_bs, input_bt, deterministic=True),
        atol=1e-5,
    )


@pytest.mark.parametrize("variant", ["transformer_pre", "lstm_luong", "lstm_feeding"])
def test_steps_that_are_timed_are_the_whole_pass(variant):
    steps = importlib.import_module("contenders.sentences").steps
    module, variables = architectures.make(variant)
    logits_tbn = jax.jit(lambda *each: module.apply(*each, method=steps))(
        variables, architectures.SOURCE, architectures.INPUT
    )
    expected_btn = architectures.run(module, variables)
    np.testing.assert_allclose(jnp.swapaxes(logits_tbn, 0, 1), expected_btn, atol=1e-5)


def test_times_against_length_are_of_a_sentence_and_of_a_token():
    rounds = {
        "recurrent": [[{"update": 0.32, "decoding": 0.64}]],
        "transformer": [[{"update": 0.16, "decoding": 1.28}]],
    }
    rows = length.rows_of(process.Measured(rounds, {}, {}), 9, 32, 2)
    found = {(one.contender, one.quantity): one.value for one in rows}
    assert found["recurrent", "update, a sentence"] == pytest.approx(10.0)  # ms
    assert found["transformer", "decoding, a token"] == pytest.approx(4000.0)  # us: nine symbols and the end
    assert found["recurrent/transformer", "update"] == 2.0
    assert found["recurrent/transformer", "decoding"] == 0.5


def test_engine_gives_all_contenders_the_same_sizes():
    ours, plain, threads, processes, _ = engine.contenders("transformer", {"d_model": 128, "d_k": 64}, 1.0, "python")
    assert ours.specs == plain.specs
    assert {"model.d_model=128", "model.d_k=64", "model.d_v=64", "model.d_ff=256"} <= set(ours.specs[0]["knobs"])
    assert len(processes.specs) == len(os.sched_getaffinity(0)) == len(threads.specs[0]["cores"])
    assert [one.name for one in engine.contenders("transformer", {"d_model": 64, "d_k": 64}, 1.0, "python")][2:6] == [
        "pytorch_threads",
        "pytorch_processes",
        "pytorch_nn_threads",
        "pytorch_nn_processes",
    ]
    for spec in (*threads.specs, *processes.specs):
        assert spec["sizes"] == {"d_model": 128, "d_k": 64, "d_v": 64, "d_ff": 256, "heads": 1, "layers": 1}


@pytest.mark.parametrize("feeding", [0, 1])
def test_engine_trains_the_recurrent_model_that_pytorch_has(feeding):
    size = {"d_model": 32, "d_k": 64, "feeding": feeding}
    ours, threads, processes = engine.contenders("recurrent", size, 1.0, "python")
    knobs = {"model.name=recurrent", "model.d_model=32", "model.d_k=64", f"model.input_feeding={bool(feeding)}"}
    assert knobs <= set(ours.specs[0]["knobs"])
    for spec in (*threads.specs, *processes.specs):
        assert spec["network"] == "recurrent"
        assert spec["sizes"] == {**size, "d_v": 64, "d_ff": 64, "heads": 1, "layers": 1}


# The command line


def test_an_unknown_architecture_is_one_line():
    done = command("engine", "--arch=rnn")
    assert (done.returncode, done.stderr) == (2, "error: --arch=rnn: must be one of transformer, recurrent\n")


def test_an_unknown_section_is_one_line():
    done = command("engin")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no section 'engin'; choose from diagnosis, engine, length, scores")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("flag", "section"), [("--arch=recurrent", "engine"), ("--data=shelf", "translation")])
def test_a_flag_of_another_section_is_refused(flag, section):
    done = command("scores", "--quick", flag)
    assert (done.returncode, done.stderr) == (2, f"error: {flag}: it is of the section {section}; leave it out\n")


def test_no_repeats_are_refused():
    done = command("scores", "--repeats=0")
    assert (done.returncode, done.stderr) == (2, "error: --repeats=0: must be at least 1\n")


def test_help_explains_the_sections():
    done = command("--help")
    assert done.returncode == 0
    for section in ("diagnosis", "engine", "length", "scores", "startup"):
        assert f"\n{section}\n  " in done.stdout


@pytest.mark.slow
def test_scores_measured_once(tmp_path, subprocess_environment):
    file = tmp_path / "rows.json"
    done = command("scores", "--quick", "--python=/no/such/python", f"--json={file}", env=subprocess_environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[1:] == [
        f"{name}: /no/such/python: No such file or directory; make bench-setup, or name another with --python"
        for name in ("keras", "pytorch")
    ]
    assert "length  d_k  blocked  plain" in done.stdout
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert {row["contender"] for row in rows if row["quantity"] == "score"} == {"blocked", "plain", "dot", "scaled_dot"}
    assert all(row["value"] > 0 for row in rows if row["unit"] == "ms")


@pytest.mark.slow
def test_the_first_update_is_told_and_ends_the_process(tmp_path, subprocess_environment):
    script = BENCHMARK / "contenders" / "first_update.py"
    arguments = [f"--config={ROOT / 'configs' / 'smoke.py'}", "--only=score=dot", f"--workdir={tmp_path / 'study'}"]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=subprocess_environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    (told,) = (json.loads(line) for line in done.stderr.splitlines() if line.startswith("{"))
    assert 0 < told["cpu"] < 100


@pytest.mark.slow
def test_diagnosis_measured_once(subprocess_environment):
    done = command("diagnosis", "--quick", env=subprocess_environment)
    assert done.returncode == 0, done.stderr
    assert {"diagnosis, ms", "evaluation, ms", "time, times"} <= set(done.stdout.splitlines())
