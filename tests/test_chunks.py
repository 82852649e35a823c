"""Which updates a chunk holds, and what is asked of a program how often."""

import contextlib
import types
from typing import Any

import numpy as np
import pytest

from train.chunks import Updates
from train.plan import Lane
from train.tasks import Batch

SHAPES = ((5, 7), (5, 7), (3, 4), (5, 7), (5, 7), (5, 7))  # of an epoch


class TwoWidths:
    """Ids of token 4; the targets of update n of seed s have (n + s) % 3 of them in a row."""

    source_vocab = target_vocab = 5
    rows = 2

    def shape(self, step: int) -> tuple[int, int]:
        return SHAPES[step % len(SHAPES)]

    def batch(self, seed: int, step: int) -> Batch:
        source, target = (np.zeros((self.rows, width), np.int32) for width in self.shape(step))
        source[:, 0] = step % 5
        target[:, : (step + seed) % 3] = 4
        return Batch(source, target)


class Recorded:
    """Every call of `update` as it came."""

    def __init__(self, seeds: tuple[int, ...]):
        self.lanes = tuple(Lane(number, 0.1, seed) for number, seed in enumerate(seeds))
        self.calls: list[tuple[Batch, int]] = []

    def program(self, batches: Batch) -> tuple[int, ...]:
        return batches.source_bs.shape

    def update(self, state, batches: Batch, count: int):
        self.calls.append((batches, count))
        return state


@pytest.fixture
def make_updates():
    def make(*, step: int = 0, seeds: tuple[int, ...] = (0,), **run: int) -> tuple[Any, Recorded]:
        knobs = {"steps": 24, "batch_size": 2, "eval_every": 10, "checkpoint_every": 8, "chunk_steps": 3} | run
        lanes: Any = Recorded(seeds)
        task: Any = TwoWidths()
        cell: Any = types.SimpleNamespace(run=types.SimpleNamespace(**knobs))
        watchdog: Any = types.SimpleNamespace(watching=contextlib.nullcontext)
        return Updates(cell, task, lanes, watchdog, step), lanes

    return make


STATE: Any = types.SimpleNamespace(step=np.int32(0))


def test_chunks_hold_every_update_once_share_a_shape_and_end_at_evaluations_and_checkpoints(make_updates):
    updates, lanes = make_updates()
    ends = []
    while updates.step < 24:
        chunk = updates.pending
        assert {TwoWidths().shape(step) for step in range(updates.step, updates.step + chunk.updates)} == {chunk.shape}
        updates.make(STATE)
        ends.append(updates.step)
    assert ends[-1] == 24
    assert {8, 10, 16, 20} <= set(ends)
    assert max(count for _, count in lanes.calls) == 3
    seen = [int(batches.source_bs[0, index, 0, 0]) for batches, count in lanes.calls for index in range(count)]
    assert seen == [step % 5 for step in range(24)]
    assert len({batches.source_bs.shape for batches, _ in lanes.calls}) == 2  # every length of chunk has one program


def test_a_program_is_looked_at_once_however_often_it_is_called(make_updates):
    updates, lanes = make_updates()
    looked = []
    while updates.step < 24:
        compiles = updates.compiles
        before = len(looked)
        updates.make(STATE, looked.append)
        assert (len(looked) > before) == compiles
    assert looked == [(1, 3, 2, 5), (1, 3, 2, 3)]
    assert len(lanes.calls) > 8


def test_updates_go_on_from_a_step_and_lanes_of_a_seed_share_its_batches(make_updates):
    updates, lanes = make_updates(step=17, seeds=(1, 0, 1))
    chunk = updates.pending
    assert chunk.updates == 1  # the pace is not known yet
    assert chunk.batches.source_bs.shape == (2, 3, 2, 5)
    assert chunk.tokens == 2 * (18 % 3 + 17 % 3 + 18 % 3)
    updates.make(STATE)
    assert updates.step == 18
    assert [count for _, count in lanes.calls] == [1]


def test_the_shapes_to_come_are_those_of_the_chunks_that_follow_each_once_in_their_order(make_updates):
    updates, lanes = make_updates(step=2, seeds=(1, 0))
    shapes = [(batch.source_bs.shape, batch.target_bt.shape) for batch in updates.shapes()]
    while updates.step < 24:
        updates.make(STATE)
    came = dict.fromkeys((batches.source_bs.shape, batches.target_bt.shape) for batches, _ in lanes.calls)
    assert shapes == list(came)
    assert make_updates(steps=3, step=2)[0].shapes()[0].source_bs.shape == (1, 3, 2, 3)
    assert len(make_updates(steps=3, step=2)[0].shapes()) == 1
