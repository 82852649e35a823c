"""Many runs as one compiled program: the ONLY file with vmap, lax.map, jit and sharding of training.

The runs (lanes) of a cell are the leading axis r of every array of their state. That axis is split over the devices;
the lanes of one device are taken one after another (`lax.map`) on a CPU, whose caches hold one lane but not many, and
all at once (`vmap`) on an accelerator, which one lane cannot fill. With fewer lanes than accelerators the batch is
split over those that are left; cores that are left share the work inside an operation. The layout follows from counts
alone and is recorded with the study: on one layout results are the same bit for bit.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Wrapped

from train.errors import UserError
from train.plan import Lane
from train.step import Evaluation, Knobs, Run, State
from train.tasks import Batch

# These wait for ever on a CPU in batched QR (initial values of recurrent cells) under jit(vmap(...)).
HANGING_JAX = ("0.10.0", "0.10.1", "0.10.2", "0.11.0")


class Layout(NamedTuple):
    """How lanes and batch lie on the devices.

    lane_shards x data_shards devices are used; each runs its lanes by `order` ("map": in turn, "vmap": at once).
    """

    platform: str
    lane_shards: int
    data_shards: int
    order: str


def start_backend(devices: int) -> list[jax.Device]:
    """Choose the devices of this process; on a CPU its cores. Must come before anything else asks JAX for devices.

    Args:
      devices: how many; 0 = all.

    Raises:
      UserError: a jax that is known to hang, or fewer devices than asked for.
    """
    if jax.__version__ in HANGING_JAX:
        raise UserError(
            f"jax {jax.__version__} can hang on a CPU; install another: pip install 'jax==0.9.2' or 'jax>=0.11.1'"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = min(devices, cores) or cores
    if jax.config.values["jax_num_cpu_devices"] != wanted:
        jax.config.update("jax_num_cpu_devices", wanted)
    found = jax.devices()
    if devices > len(found):
        raise UserError(f"run.devices={devices}, but there are {len(found)} ({found[0].platform}); give 0 for all")
    return found[: devices or None]


def choose_layout(lanes: int, batch_size: int, devices: int, platform: str) -> Layout:
    """The rule: lanes over as many devices as there are lanes for, the batch over accelerators that are left.

    Of accelerators the number of lane shards divides that of the devices, that of the data shards divides the batch.
    The batch is not split over cores: XLA's collectives between them take threads of the pool that the operations run
    in, and can wait for each other until XLA aborts the process (seen once in 1,500 updates on two cores).
    """
    if platform == "cpu":
        in_turn = -(-lanes // min(lanes, devices))
        return Layout(platform, lane_shards=-(-lanes // in_turn), data_shards=1, order="map")
    lane_shards = max(count for count in range(1, devices + 1) if devices % count == 0 and count <= lanes)
    data_shards = max(count for count in range(1, devices // lane_shards + 1) if batch_size % count == 0)
    return Layout(platform, lane_shards, data_shards, "vmap")


class Lanes:
    """The lanes of one cell that train together, and their compiled programs.

    Lanes that do not fill the shards are made up with copies of the first; these never reach the caller.
    """

    def __init__(self, run: Run, lanes: Sequence[Lane], devices: Sequence[jax.Device]):
        self.lanes = tuple(lanes)
        self.layout = choose_layout(len(lanes), run.run.batch_size, len(devices), devices[0].platform)
        shards = (self.layout.lane_shards, self.layout.data_shards)
        self._mesh = Mesh(
            np.array(devices[: shards[0] * shards[1]]).reshape(shards),
            ("lane", "data"),
            axis_types=(AxisType.Auto, AxisType.Auto),
        )
        self.seeds = tuple(dict.fromkeys(lane.seed for lane in lanes))
        padded = self.lanes + self.lanes[:1] * (-len(lanes) % shards[0])
        self._knobs_r = self._put(
            Knobs(
                learning_rate=np.array([lane.lr for lane in padded], np.float32),
                seed=np.array([lane.seed for lane in padded], np.uint32),
            )
        )
        self._row_r = self._put(np.array([self.seeds.index(lane.seed) for lane in padded], np.int32))
        self._run = run
        self._compiled: dict[tuple[tuple[int, ...], tuple[int, ...]], Compiled] = {}
        order = self.layout.order
        self._updates = self._program(self._some_updates, "rrr--", order, donate=0)
        self._evaluate = self._program(run.evaluate, "r-", order)
        # Selects, entry by entry: nothing to gain from taking lanes in turn, and quicker to compile.
        self._after_evaluation = self._program(run.after_evaluation, "rr", "vmap", donate=0)

    def _put(self, tree: Any) -> Any:
        return jax.device_put(tree, NamedSharding(self._mesh, PartitionSpec("lane")))

    def _batch_sharding(self, batch: Batch, row_axis: int) -> NamedSharding:
        """How a batch lies on the devices: its rows split over the "data" axis where that has several."""
        split = batch.source_bs.shape[row_axis] % self.layout.data_shards == 0
        return NamedSharding(self._mesh, PartitionSpec(*(None,) * row_axis, "data") if split else PartitionSpec())

    def _put_batch(self, batch: Batch, row_axis: int) -> Batch:
        return jax.device_put(batch, self._batch_sharding(batch, row_axis))

    def _program(self, one: Callable, axes: str, order: str, donate: int | None = None) -> Wrapped:
        """Compile `one`, a function of one lane, for all: arguments marked r have the lane axis, - are shared."""

        def local(*args: Any) -> Any:
            carried = [arg for arg, axis in zip(args, axes, strict=True) if axis == "r"]
            shared = [arg for arg, axis in zip(args, axes, strict=True) if axis == "-"]
            if order == "map" and len(jax.tree.leaves(carried)[0]) == 1:
                # Without the loop the state is updated in place; with it, a copy goes in and one comes out.
                alone = one(*jax.tree.map(lambda x: x[0], carried), *shared)
                return jax.tree.map(lambda x: x[None], alone)
            if order == "map":
                return jax.lax.map(lambda mine: one(*mine, *shared), tuple(carried))
            return jax.vmap(lambda *mine: one(*mine, *shared))(*carried)

        specs = tuple(PartitionSpec("lane") if axis == "r" else PartitionSpec() for axis in axes)
        sharded = jax.shard_map(
            local,
            mesh=self._mesh,
            in_specs=specs,
            out_specs=PartitionSpec("lane"),
            axis_names={"lane"},
            check_vma=False,
        )
        return jax.jit(sharded, donate_argnums=() if donate is None else (donate,))

    def _some_updates(self, state: State, knobs: Knobs, row: jax.Array, batches: Batch, count: jax.Array) -> State:
        """`count` updates of one lane from its seed's row of the batches [seeds, chunk, b, ...]."""

        def body(index: jax.Array, state: State) -> State:
            return self._run.update(state, jax.tree.map(lambda x: x[row, index], batches), knobs)

        return jax.lax.fori_loop(0, count, body, state)

    def init(self) -> State:
        """The state of all lanes before the first update, made once a seed: lanes of a seed start from the same."""
        knobs = {lane.seed: Knobs(np.float32(lane.lr), np.uint32(lane.seed)) for lane in self.lanes}
        state_of_seed = {seed: self._run.init(knobs[seed]) for seed in self.seeds}
        states = [state_of_seed[lane.seed] for lane in self.lanes]
        return self.from_host(jax.tree.map(lambda *one: np.stack(one), *states))

    def program(self, state: State, batches: Batch) -> Compiled:
        """The program of `update` for batches of this shape, compiled when it is first asked for."""
        shape = batches.source_bs.shape, batches.target_bt.shape
        if shape not in self._compiled:
            sharding = self._batch_sharding(batches, row_axis=2)
            like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), batches)
            lowered = self._updates.lower(state, self._knobs_r, self._row_r, like, np.int32(0))
            self._compiled[shape] = lowered.compile()
        return self._compiled[shape]

    def memory(self, program: Compiled) -> int:
        """Bytes that a program takes of all devices while it runs, by XLA's account; 0 where that gives none."""
        account = program.memory_analysis()
        if account is None:
            return 0
        device = account.argument_size_in_bytes + account.output_size_in_bytes + account.temp_size_in_bytes
        return (device - account.alias_size_in_bytes) * self.layout.lane_shards * self.layout.data_shards

    def update(self, state: State, batches: Batch, count: int) -> State:
        """The state after `count` more updates. `state` is donated: its arrays are gone afterwards.

        Args:
          state: of all lanes.
          batches: [seeds, chunk, b, s] and [seeds, chunk, b, t], in the order of `self.seeds`; the first `count` of
            the chunk are used.
          count: at most chunk.
        """
        program = self.program(state, batches)
        return program(state, self._knobs_r, self._row_r, self._put_batch(batches, row_axis=2), np.int32(count))

    def evaluate(self, params: Any, batch: Batch) -> tuple[Evaluation, np.ndarray]:
        """Counts of every lane over one batch of an evaluation set, and the decoded tokens [r, b, max_target]."""
        evaluation, token_rbt = self._evaluate(params, self._put_batch(batch, row_axis=0))
        return evaluation, np.asarray(token_rbt)[: len(self.lanes)]

    def after_evaluation(self, state: State, valid: Evaluation) -> State:
        """Keep each lane's best parameters so far and start its training sums anew. `state` is donated."""
        return self._after_evaluation(state, valid)

    def to_host(self, tree: Any) -> Any:
        """A copy of the real lanes as NumPy arrays."""
        return jax.tree.map(lambda x: np.array(x)[: len(self.lanes)], tree)

    def from_host(self, tree: Any) -> Any:
        """The inverse of `to_host`."""
        missing = -len(self.lanes) % self.layout.lane_shards
        return self._put(jax.tree.map(lambda x: np.concatenate([x, *[x[:1]] * missing]), tree))

    def like(self) -> State:
        """Shapes and types of `to_host(state)`, without computing it."""
        shapes = jax.eval_shape(self._run.init, jax.tree.map(lambda knob_r: knob_r[0], self._knobs_r))
        return jax.tree.map(lambda x: np.zeros((len(self.lanes), *x.shape), x.dtype), shapes)
