"""Checkpoints of a cell's lanes: the ONLY file that knows Orbax."""

import errno
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from train.errors import UserError

# Faults of the machine, not of the file: what cannot be read just now is not damaged.
PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.EACCES}
FULL = {os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)}

UNFINISHED = ".orbax-checkpoint-tmp"


class Restored(NamedTuple):
    """A state as it was saved.

    step: updates made. state: pytree of NumPy arrays. damaged, unfinished: steps of newer checkpoints that could not be
    read, or that a kill interrupted.
    """

    step: int
    state: Any
    damaged: tuple[int, ...]
    unfinished: tuple[int, ...]


def _mute_late_answers() -> None:
    """Say nothing of reads and writes that end after Orbax gave a checkpoint up and closed the loop they report to."""
    before = sys.unraisablehook
    if getattr(before, "mutes_late_answers", False):
        return

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            before(unraisable)

    hook.mutes_late_answers = True  # type: ignore[attr-defined]
    sys.unraisablehook = hook


class Checkpoints:
    """The newest states of some lanes, in a folder of their own.

    Saving is asynchronous and atomic: a checkpoint exists whole or not at all. Two are kept, so that a damaged newest
    one costs an interval and not the run.

    read_only: nothing on disk is changed, so that a study that runs can be read.
    """

    def __init__(self, directory: Path, *, read_only: bool = False):
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        _mute_late_answers()
        self._directory = directory
        self._read_only = read_only
        drafts = directory.glob(f"*{UNFINISHED}*") if directory.is_dir() else ()
        names = (draft.name.partition(UNFINISHED)[0] for draft in drafts)
        self._unfinished = tuple(sorted(int(name) for name in names if name.isdigit()))  # removed by the manager
        options = (
            ocp.CheckpointManagerOptions(read_only=True)
            if read_only
            else ocp.CheckpointManagerOptions(max_to_keep=2, cleanup_tmp_directories=True, create=True)
        )
        self._manager = ocp.CheckpointManager(directory.resolve(), options=options)

    def save(self, step: int, state: Any) -> None:
        """Begin to save `state`, a pytree of NumPy arrays that nobody changes afterwards.

        Raises:
          UserError: an earlier save failed.
        """
        self._finish(lambda: self._manager.save(step, args=ocp.args.StandardSave(state), force=True))

    def newest(self, like: Any = None) -> Restored | None:
        """The newest checkpoint that can be read; None where there is none at all. Newer damaged ones are removed.

        Args:
          like: pytree of arrays of the shapes and types to expect; without it the state is nested dicts and lists.

        Raises:
          UserError: there are checkpoints and none can be read.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        damaged: list[int] = []
        for step in steps:
            try:
                state = self._manager.restore(step, args=ocp.args.StandardRestore(like))
            except MemoryError:
                raise
            except Exception as error:  # Orbax and tensorstore raise many kinds for a file that is cut or missing
                if isinstance(error, OSError) and error.errno in PASSING:
                    raise
                damaged.append(step)
                continue
            for bad in () if self._read_only else damaged:
                self._manager.delete(bad)
            return Restored(step, jax.tree.map(np.asarray, state), tuple(damaged), self._unfinished)
        if damaged:
            raise UserError(
                f"none of the checkpoints in {self._directory} can be read (steps {damaged}); remove that folder to"
                " train this cell anew"
            )
        return None

    def keep_only(self, step: int) -> None:
        """Wait until `step` is on disk and remove the others: a finished run needs one.

        Raises:
          UserError: the save failed; the others stay.
        """
        self._finish(self._manager.wait_until_finished)
        for other in self._manager.all_steps():
            if other != step:
                self._manager.delete(other)

    def close(self) -> None:
        """Wait until everything is on disk.

        Raises:
          UserError: a save failed.
        """
        self._finish(self._manager.wait_until_finished)
        self._manager.close()

    def _finish(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, ValueError) as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: Exception) -> UserError:
        reason = _reason(error)
        remedy = "make room there" if reason in FULL else "mend that"
        return UserError(
            f"cannot write a checkpoint to {self._directory}: {reason}; {remedy}, and the same command goes on from"
            " the checkpoint before"
        )


def _reason(error: Exception) -> str:
    """What went wrong, in the system's words where there are any: tensorstore wraps them in paths and settings."""
    text = str(error)
    said = [words for words in map(os.strerror, errno.errorcode) if words in text]
    return max(said, key=len) if said else text.partition("\n")[0]
