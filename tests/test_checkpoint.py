import errno
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
from conftest import ROOT

from train.checkpoint import Checkpoints
from train.errors import UserError

STATE = {"weights": np.arange(35, dtype=np.float32).reshape(5, 7), "step": np.array([3, 3], np.int32)}
LIKE = jax.tree.map(np.zeros_like, STATE)


def state(number: int):
    return jax.tree.map(lambda x: (x + number).astype(x.dtype), STATE)


def written(folder, *steps: int):
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(step, state(step))
    checkpoints.close()
    return folder


def newest(folder):
    checkpoints = Checkpoints(folder)
    try:
        return checkpoints.newest(LIKE)
    finally:
        checkpoints.close()


def same(one, other) -> bool:
    return all(np.array_equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in STATE)


def test_nothing_saved_is_none(tmp_path):
    assert newest(tmp_path / "none") is None


def test_the_newest_comes_back_bit_for_bit_and_only_two_are_kept(tmp_path):
    restored = newest(written(tmp_path, 5, 10, 13))
    assert restored.step == 13
    assert same(restored.state, state(13))
    assert restored.damaged == ()
    assert sorted(int(entry.name) for entry in tmp_path.iterdir()) == [10, 13]


def test_a_finished_run_keeps_one(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, state(5))
    checkpoints.save(10, state(10))
    checkpoints.keep_only(10)
    checkpoints.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["10"]
    assert same(newest(tmp_path).state, state(10))


def test_a_folder_left_by_a_kill_during_a_save_is_ignored(tmp_path):
    written(tmp_path, 5)
    left = tmp_path / "10.orbax-checkpoint-tmp-0"
    left.mkdir()
    (left / "half").write_bytes(b"x")
    assert newest(tmp_path).step == 5
    assert newest(written(tmp_path, 10)).step == 10


@pytest.mark.parametrize("fault", ["emptied", "cut", "removed"])
def test_a_damaged_checkpoint_is_passed_over_and_can_be_saved_again(tmp_path, fault):
    written(tmp_path, 5)
    shutil.copytree(tmp_path / "5", tmp_path / "10")
    files = sorted(
        (path for path in (tmp_path / "10").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    for path in files:
        if fault == "emptied":
            path.write_bytes(b"")
        elif fault == "cut":
            os.truncate(path, path.stat().st_size // 2)
    if fault == "removed":
        shutil.rmtree(tmp_path / "10" / "default")
        (tmp_path / "10" / "default").mkdir()
    restored = newest(tmp_path)
    assert restored.step == 5
    assert same(restored.state, state(5))
    assert restored.damaged == (10,)
    assert newest(written(tmp_path, 10)).step == 10
    assert same(newest(tmp_path).state, state(10))


def test_any_single_file_missing_costs_the_checkpoint_or_nothing_but_never_gives_other_numbers(tmp_path):
    written(tmp_path / "whole", 5, 10)
    files = [path.relative_to(tmp_path) for path in (tmp_path / "whole" / "10").rglob("*") if path.is_file()]
    assert len(files) > 5
    for number, file in enumerate(files):
        shutil.copytree(tmp_path / "whole", tmp_path / str(number))
        (tmp_path / str(number) / file.relative_to("whole")).unlink()
        restored = newest(tmp_path / str(number))
        assert same(restored.state, state(restored.step))
        assert (restored.step, restored.damaged) in ((10, ()), (5, (10,)))


def test_a_draft_that_a_kill_left_is_named(tmp_path):
    written(tmp_path, 5)
    (tmp_path / "10.orbax-checkpoint-tmp-0").mkdir()
    assert newest(tmp_path).unfinished == (10,)
    assert newest(tmp_path).unfinished == ()


def test_damage_is_told_in_one_line_and_not_by_the_libraries(tmp_path):
    """Reads that Orbax still had under way complain of a closed loop, later and elsewhere."""
    many = {f"w{number}": np.arange(35 * (number + 1), dtype=np.float32) for number in range(60)}
    checkpoints = Checkpoints(tmp_path)
    for step in (5, 10):
        checkpoints.save(step, many)
    checkpoints.close()
    for path in (tmp_path / "10").rglob("d/*"):
        path.write_bytes(b"")
    program = (
        "import pathlib, sys, time; from train.checkpoint import Checkpoints\n"
        "print(Checkpoints(pathlib.Path(sys.argv[1])).newest().step); time.sleep(0.5)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "5\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("fault", [MemoryError(), OSError(24, "Too many open files")])
def test_what_cannot_be_read_just_now_is_not_removed(tmp_path, monkeypatch, fault):
    def fail(*arguments, **keywords):
        raise fault

    written(tmp_path, 5, 10)
    with monkeypatch.context() as patch:
        patch.setattr("orbax.checkpoint.CheckpointManager.restore", fail)
        with pytest.raises(type(fault)):
            newest(tmp_path)
    assert newest(tmp_path).step == 10


def test_without_any_good_checkpoint_there_is_a_clear_error_and_no_fresh_start(tmp_path):
    written(tmp_path, 5)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(UserError, match=r"none of the checkpoints in .* can be read \(steps \[5\]\)"):
        newest(tmp_path)


# As orbax-checkpoint 0.11 and 0.12 raise them.
TENSORSTORE = (
    'RESOURCE_EXHAUSTED: Error writing "w0/0.0" in OCDBT database at local file "{folder}/5.tmp/": Failed to write'
    " 70429 bytes to file 4: {words} [tensorstore_spec='{{\\\"context\\\":{{}}}}'] [os_error_code='{number}']"
)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_checkpoint_that_cannot_be_written_is_one_line_with_folder_reason_and_remedy(
    tmp_path, monkeypatch, number, wrapped
):
    words = os.strerror(number)

    def fail(*arguments, **keywords):
        if wrapped:
            raise ValueError(TENSORSTORE.format(folder=tmp_path, words=words, number=number))
        raise OSError(number, words, str(tmp_path / "5.tmp"))

    monkeypatch.setattr("orbax.checkpoint.CheckpointManager.wait_until_finished", fail)
    checkpoints = Checkpoints(tmp_path)
    remedy = "make room there" if number in (errno.ENOSPC, errno.EDQUOT) else "mend that"
    for action in (lambda: checkpoints.keep_only(5), checkpoints.close):
        with pytest.raises(UserError) as raised:
            action()
        assert str(raised.value) == (
            f"cannot write a checkpoint to {tmp_path}: {words}; {remedy}, and the same command goes on from the"
            " checkpoint before"
        )


def test_a_limit_on_the_size_of_files_ends_a_save_with_one_line_and_nothing_of_the_libraries(tmp_path):
    program = (
        "import pathlib, resource, sys, time, numpy\n"
        "from train.checkpoint import Checkpoints\n"
        "from train.errors import exit_status\n"
        "def command():\n"
        "    checkpoints = Checkpoints(pathlib.Path(sys.argv[1]))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "    random = numpy.random.default_rng(7)\n"
        "    checkpoints.save(5, {f'w{n}': random.normal(size=2000) for n in range(30)})\n"
        "    checkpoints.close()\n"
        "status = exit_status(command); time.sleep(0.5); sys.exit(status)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "here")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"error: cannot write a checkpoint to {tmp_path}/here: File too large; mend that, and"
    )
    assert done.stderr.count("\n") == 1
