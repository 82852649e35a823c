"""The log: strict JSON, whole lines whatever is killed, faults of the disk named, each evaluation once."""

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import train.jsonl
from tests.synthetic_study import study_rows
from train.errors import UserError
from train.jsonl import read_lines, to_json
from train.log import (
    axis_names,
    metric_names,
    metrics_log,
    metrics_path,
    read_config,
    read_rows,
    write_config,
)


def evaluation(step: int, *, lane: int = 0, cell: str = "d_k=7", split: str = "valid", **fields: Any) -> dict[str, Any]:
    return {"cell": cell, "lane": lane, "step": step, "split": split, **fields}


def strict(line: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in {line}")

    return json.loads(line, parse_constant=refuse)


def test_every_line_is_strict_json_and_numbers_that_do_not_exist_are_null(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "loss": np.float32("nan"),
        "big": float("-inf"),
        "jax": jnp.float32(0.5),
        "half": jnp.bfloat16(1.5),
        "count": np.int64(13),
        "flag": np.bool_(True),
        "many": np.array([1.0, np.inf]),
        "inner": {"a": (math.nan, 2)},
        "text": "今日 \u2028 \ud800 </script>",
        "path": tmp_path,
    }
    with metrics_log(tmp_path) as log:
        log.append([evaluation(11, **values)])
    lines = metrics_path(tmp_path).read_text("utf-8").splitlines()
    row = strict(lines[0])
    assert len(lines) == 1
    assert (row["loss"], row["big"], row["inner"]) == (None, None, {"a": [None, 2]})
    assert (row["jax"], row["half"], row["count"], row["flag"], row["many"]) == (0.5, 1.5, 13, True, [1.0, None])
    assert row["text"] == values["text"]
    assert "今日" in lines[0]
    assert list(row) == ["cell", "lane", "step", "split", *values]


def test_a_whole_study_reads_back_through_a_strict_parser(tmp_path: Path) -> None:
    rows = study_rows()
    with metrics_log(tmp_path) as log:
        log.append(rows)
    assert [strict(line) for line in metrics_path(tmp_path).read_text("utf-8").split("\n")[:-1]] == rows
    assert read_rows(tmp_path) == rows


def test_a_value_without_a_form_in_json_writes_nothing(tmp_path: Path) -> None:
    with metrics_log(tmp_path) as log, pytest.raises(TypeError, match="object"):
        log.append([evaluation(1), evaluation(2, loss=object())])
    assert not metrics_path(tmp_path).exists()


ROW = (to_json(evaluation(3, cell="d_k=7,task=今日", loss=0.5)) + "\n").encode()
# What an append of two rows leaves that ends after any byte, and after a power cut.
TORN = [*(ROW[:length] for length in range(len(ROW))), b"\x00" * 4096, ROW[:17] + b"\x00" * 3, ROW[:-1] + b"\x00"]


def test_a_torn_end_is_left_out_by_readers_and_cut_off_before_the_next_row(tmp_path: Path) -> None:
    with metrics_log(tmp_path) as log:
        log.append([evaluation(1), evaluation(2)])
    path = metrics_path(tmp_path)
    whole = path.read_bytes()
    for torn in TORN:
        path.write_bytes(whole + torn)
        assert [row["step"] for row in read_rows(tmp_path)] == [1, 2]
        with metrics_log(tmp_path) as log:
            assert path.read_bytes() == whole + torn
            log.append([evaluation(3)])
        assert [row["step"] for row in read_rows(tmp_path)] == [1, 2, 3]
        path.write_bytes(whole + torn)
        with metrics_log(tmp_path) as log:
            assert log.truncate("d_k=7", [0], 2) == 0
            assert path.read_bytes() == whole + torn
            assert log.truncate("d_k=7", [0], 1) == 1
            assert path.read_bytes() == whole[: whole.index(b"\n") + 1]


@pytest.mark.parametrize("before", [b"", ROW, b"\n" + ROW + ROW], ids=["alone", "after a row", "after three lines"])
@pytest.mark.parametrize(
    "bad",
    [
        b"rubbish",
        b"\x80\x00\xff",
        b"\x00\x00x",
        ROW[:-1].replace(b'"d_k', b'"\x01'),
        ROW[:17] + b"\x00" + ROW[17:-1],
        ROW[:17] + b"\xff\xfe",
        b'{"loss": 1.0}',
        b'{"loss": 1.0}\n',
        b"[1]\n",
        b"{]\n",
        b"\x00\n",
        b'{"cell": "d_k=7", "la\n',
        b'{"cell": "d_k=7", "lane": null, "split": "valid", "step": 1}\n',
        ROW[:-2] + b', "loss": NaN}\n',
    ],
)
def test_what_no_append_can_leave_is_named_by_its_line_and_not_touched(
    tmp_path: Path, before: bytes, bad: bytes
) -> None:
    path = metrics_path(tmp_path)
    path.write_bytes(before + bad)
    number = before.count(b"\n") + 1
    log = metrics_log(tmp_path)
    attempts = [lambda: read_rows(tmp_path), lambda: log.truncate("d_k=7", [0], 0)]
    attempts += [] if bad.endswith(b"\n") else [lambda: log.append([evaluation(1)])]
    for attempt in attempts:
        with pytest.raises(UserError, match=rf"metrics\.jsonl, line {number}: not a row .*; mend or delete that line"):
            attempt()
        assert path.read_bytes() == before + bad


def test_a_log_that_nobody_writes_to_is_not_made(tmp_path: Path) -> None:
    with metrics_log(tmp_path):
        pass
    assert read_rows(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_process_killed_while_it_writes_leaves_whole_lines(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from train.log import metrics_log\n"
        "log = metrics_log(sys.argv[1])\n"
        "for step in range(1, 8): log.append([{'cell': 'c', 'lane': 0, 'split': 'valid', 'step': step}])\n"
        'os.write(log._open(), b\'{"cell": "c", "lane"\'); os.kill(os.getpid(), signal.SIGKILL)\n'
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parent.parent, timeout=60)
    assert done.returncode == -9
    with metrics_log(tmp_path):
        assert [row["step"] for row in read_rows(tmp_path)] == [1, 2, 3, 4, 5, 6, 7]


def test_garbage_before_the_last_line_is_named_with_its_line(tmp_path: Path) -> None:
    good = (to_json(evaluation(1)) + "\n").encode()
    metrics_path(tmp_path).write_bytes(good + b'{"loss": NaN}\n' + good)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: not a row"):
        read_rows(tmp_path)


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    metrics_path(tmp_path).write_text(f"\n{to_json(evaluation(1))}\n\n")
    assert read_rows(tmp_path) == [evaluation(1)]


def test_truncate_drops_later_rows_of_these_lanes_of_this_cell_only(tmp_path: Path) -> None:
    rows = [
        evaluation(step, lane=lane, cell=cell)
        for cell in ("d_k=7", "d_k=11")
        for lane in (0, 1, 2)
        for step in (5, 10, 15)
    ]
    with metrics_log(tmp_path) as log:
        log.append(rows)
        assert log.truncate("d_k=7", {0, 2}, 5) == 4
        assert log.truncate("d_k=7", {0, 2}, 5) == 0
        kept = [row for row in rows if row["cell"] != "d_k=7" or row["lane"] == 1 or row["step"] <= 5]
        assert read_rows(tmp_path) == kept
        log.append([evaluation(10)])
    assert read_rows(tmp_path) == [*kept, evaluation(10)]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_truncate_reads_the_file_once_for_all_lanes_that_have_no_rows(tmp_path: Path, monkeypatch) -> None:
    """A study begins dozens of cells, and the diagnostics of those before are a hundred megabytes."""
    with metrics_log(tmp_path) as log:
        log.append([evaluation(5, cell="d_k=11")])
    read = []

    def watched(path, identity):
        read.append(path)
        return read_lines(path, identity)

    monkeypatch.setattr(train.jsonl, "read_lines", watched)
    with metrics_log(tmp_path) as log:
        for cell in ("d_k=7", "d_k=13", "d_k=17"):
            assert log.truncate(cell, [0, 1], 0) == 0
            log.append([evaluation(step, cell=cell) for step in (5, 10)])
            assert log.truncate(cell, [1, 2], 0) == 0
        assert len(read) == 1
        assert log.truncate("d_k=13", [0], 5) == 1  # its own rows it knows
    assert len(read) == 2


def test_resuming_after_a_kill_shows_each_step_once(tmp_path: Path) -> None:
    with metrics_log(tmp_path) as log:
        log.append([evaluation(step, loss=1.0) for step in range(1, 10)])
    with metrics_log(tmp_path) as log:
        log.truncate("d_k=7", [0], 5)
        log.append([evaluation(step, loss=2.0) for step in range(6, 13)])
    rows = read_rows(tmp_path)
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert [row["loss"] for row in rows] == [1.0] * 5 + [2.0] * 7


def test_of_two_rows_of_one_evaluation_the_later_counts(tmp_path: Path) -> None:
    with metrics_log(tmp_path) as log:
        log.append([evaluation(5, loss=1.0), evaluation(5, split="train"), evaluation(5, loss=3.0)])
    assert read_rows(tmp_path) == [evaluation(5, split="train"), evaluation(5, loss=3.0)]


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_no_part_of_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:-50])

    with metrics_log(tmp_path) as log:
        log.append([evaluation(1)])
        whole, write = metrics_path(tmp_path).read_bytes(), os.write
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(UserError, match=r"metrics\.jsonl: No space left on device"):
                log.append([evaluation(2), evaluation(3)])
        assert metrics_path(tmp_path).read_bytes() == whole
        log.append([evaluation(2)])
    assert [row["step"] for row in read_rows(tmp_path)] == [1, 2]


def test_what_is_no_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    metrics_path(tmp_path).symlink_to("/dev/full")
    for attempt in (lambda: read_rows(tmp_path), lambda: metrics_log(tmp_path).append([evaluation(1)])):
        with pytest.raises(UserError, match=r"metrics\.jsonl: not a regular file"):
            attempt()


def test_a_limit_on_the_size_of_files_leaves_the_rows_before_it(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from train.log import metrics_log; from train.errors import UserError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); log = metrics_log(sys.argv[1])\n"
        "try:\n"
        "    for step in range(100): log.append([{'cell': 'c', 'lane': 0, 'split': 'valid', 'step': step}])\n"
        "except UserError as error: print(error, step)\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(arguments, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=60)
    assert "metrics.jsonl: File too large" in done.stdout, done.stderr
    steps = int(done.stdout.split()[-1])
    assert metrics_path(tmp_path).read_bytes().endswith(b"\n")
    assert [row["step"] for row in read_rows(tmp_path)] == list(range(steps))


def test_a_workdir_that_cannot_be_is_one_error(tmp_path: Path) -> None:
    for attempt in (
        lambda: metrics_log("/dev/null/x").append([evaluation(1)]),
        lambda: write_config("/dev/null/x", {}),
        lambda: read_rows("/dev/null/x"),
        lambda: read_config(tmp_path),
        lambda: read_rows(tmp_path / "absent"),
    ):
        with pytest.raises(UserError, match=r"/dev/null/x|config\.json|absent") as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_config_is_whole_and_reads_back(tmp_path: Path) -> None:
    folder = tmp_path / "今日 runs"
    folder.mkdir()
    write_config(folder, {"config": {"lr": (0.001, math.inf)}, "git": None})
    write_config(folder, {"config": {"lr": (0.002, 3)}, "git": "0123abc"})
    assert read_config(folder) == {"config": {"lr": [0.002, 3]}, "git": "0123abc"}
    assert os.listdir(folder) == ["config.json"]
    (folder / "config.json").write_text('{"config": ')
    with pytest.raises(UserError, match=r"config\.json: not a JSON object"):
        read_config(folder)


def test_closing_twice_is_fine_and_writing_after_it_is_not(tmp_path: Path) -> None:
    log = metrics_log(tmp_path)
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append([evaluation(1)])


def test_names_of_axes_and_metrics_come_from_the_order_of_fields() -> None:
    rows = study_rows(bleu=True, steps=200)
    assert axis_names(rows) == ("task", "model", "score", "d_k")
    always = ("loss", "token_accuracy", "sequence_accuracy")
    assert metric_names(rows) == (*always, "bleu", "chrf", "bleu_unseen", "bleu_signature")
    assert axis_names([]) == metric_names([]) == ()
