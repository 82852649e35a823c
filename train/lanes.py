"""Many runs as one compiled program: the ONLY file with vmap, lax.map, jit and sharding of training.

The runs (lanes) of a group are the leading axis r of every array of their state. That axis is split over the devices;
the lanes of one device are taken one after another (`lax.map`) on a CPU, whose caches hold one lane but not many, and
all at once (`vmap`) on an accelerator, which one lane cannot fill. With fewer lanes than accelerators the batch is
split over those that are left; cores that are left share the work inside an operation (train/layout.py). On one layout
results are the same bit for bit.
"""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled, Wrapped

from train.diagnose import Diagnosis, diagnose
from train.layout import Layout, choose_layout
from train.plan import Lane
from train.step import Evaluation, Knobs, Run, State
from train.tasks import Batch

# Compiled programs that are kept in case a later cell is the same but for a number. One takes some 4 MB and 450 of the
# 65,530 mappings that Linux gives a process; without a mapping XLA crashes.
KEPT = 64


class Programs:
    """The functions of a run compiled for so many lanes, each once for every shape of a batch, whoever asks first.

    lanes: as many as were asked for, and copies that make up what does not fill the shards of the layout.
    """

    def __init__(self, run: Run, lanes: int, devices: Sequence[jax.Device]):
        self.layout = choose_layout(lanes, run.run.batch_size, len(devices), devices[0].platform)
        shards = (self.layout.lane_shards, self.layout.data_shards)
        self.lanes = lanes + -lanes % shards[0]
        self._mesh = Mesh(
            np.array(devices[: shards[0] * shards[1]]).reshape(shards),
            ("lane", "data"),
            axis_types=(AxisType.Auto, AxisType.Auto),
        )
        self._run = run
        self._lock = threading.Lock()
        self._compiled: dict[tuple[Any, ...], Future[Compiled]] = {}
        order = self.layout.order
        self._update = self._for_all(self._some_updates, "rrr--", order, donate=0)
        self._evaluate = self._for_all(self._evaluation, "rrr-", order)
        self._diagnose = self._for_all(self._diagnosis, "rr-", order)
        # Selects, entry by entry: nothing to gain from taking lanes in turn, and quicker to compile.
        self._after_evaluation = self._for_all(run.after_evaluation, "rr", "vmap", donate=0)

    @property
    def compiled(self) -> int:
        """How many programs there are by now."""
        return len(self._compiled)

    def put(self, tree_r: Any) -> Any:
        """Lay arrays with the lane axis in front on the devices."""
        return jax.device_put(tree_r, self._lane_sharding)

    def put_batch(self, batch: Batch, row_axis: int) -> Batch:
        """Lay a batch on the devices, all or its rows split over the "data" axis."""
        return jax.device_put(batch, self._batch_sharding(batch, row_axis))

    def update(self, batches: Batch) -> Compiled:
        """(state_r, knobs_r, row_r, batches, count) -> state_r, for batches [seeds, chunk, b, ...] of this shape.

        `count` updates of every lane, each from its row of the batches. The state is donated.
        """
        return self._once(self._update, *self._of_update(batches))

    def has_update(self, batches: Batch) -> bool:
        """Whether `update` would return at once."""
        compiled = self._compiled.get(_key(self._update, self._of_update(batches)))
        return compiled is not None and compiled.done()

    def evaluate(self, batch: Batch) -> Compiled:
        """(params_r, step_r, knobs_r, batch) -> (evaluation_r, token_rbt), for a batch of this shape."""
        return self._once(
            self._evaluate, self.state.params, self.state.step, self._knobs, self._like(batch, row_axis=0)
        )

    def diagnose(self, batch: Batch) -> Compiled:
        """(state_r, knobs_r, batch) -> number_rn, for a batch of this shape: see `unpacked`."""
        return self._once(self._diagnose, self.state, self._knobs, self._like(batch, row_axis=0))

    def after_evaluation(self) -> Compiled:
        """(state_r, evaluation_r) -> state_r. The state is donated."""
        return self._once(self._after_evaluation, self.state, self._all(jax.eval_shape(Evaluation.zero)))

    @functools.cached_property
    def state(self) -> State:
        """Shapes, types and places of the state of all lanes."""
        return self._all(jax.eval_shape(self._run.init, self._run.knobs(0.0, 0)))

    @functools.cached_property
    def _knobs(self) -> Knobs:
        return self._all(self._run.knobs(0.0, 0))

    @property
    def _lane_sharding(self) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec("lane"))

    def _batch_sharding(self, batch: Batch, row_axis: int) -> NamedSharding:
        split = batch.source_bs.shape[row_axis] % self.layout.data_shards == 0
        return NamedSharding(self._mesh, PartitionSpec(*(None,) * row_axis, "data") if split else PartitionSpec())

    def _all(self, one: Any) -> Any:
        """What a lane has, as all have it: shapes, types, places."""
        sharding = self._lane_sharding
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.lanes, *x.shape), x.dtype, sharding=sharding), one)

    def _like(self, batch: Batch, row_axis: int) -> Batch:
        sharding = self._batch_sharding(batch, row_axis)
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, np.int32, sharding=sharding), batch)

    def _of_update(self, batches: Batch) -> tuple[Any, ...]:
        row = jax.ShapeDtypeStruct((), np.int32)
        return self.state, self._knobs, self._all(row), self._like(batches, row_axis=2), np.int32(0)

    def _once(self, function: Wrapped, *arguments: Any) -> Compiled:
        """Compile a function for arguments like these, or wait until whoever asked first has done so."""
        key = _key(function, arguments)
        with self._lock:
            first = key not in self._compiled
            compiled = self._compiled.setdefault(key, Future())
        if first:
            try:
                compiled.set_result(function.lower(*arguments).compile())
            except BaseException as error:
                compiled.set_exception(error)
        return compiled.result()

    def _for_all(self, one: Callable, axes: str, order: str, donate: int | None = None) -> Wrapped:
        """Make of a function of one lane one of all: arguments marked r have the lane axis, - are shared."""

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

    def _evaluation(self, params: Any, step: jax.Array, knobs: Knobs, batch: Batch) -> tuple[Evaluation, jax.Array]:
        return self._run.evaluate(params, step, batch, knobs)

    def _diagnosis(self, state: State, knobs: Knobs, batch: Batch) -> jax.Array:
        """All numbers as one array: a hundred small ones would take longer to fetch than to make."""
        numbers, self._diagnosis_tree = jax.tree.flatten(diagnose(self._run, state, batch, knobs))
        self._diagnosis_shapes = [number.shape for number in numbers]  # of every batch alike
        return jnp.concatenate([number.ravel() for number in numbers])

    def unpacked(self, number_rn: np.ndarray) -> Diagnosis:
        """What a program of `diagnose` made, with its names, as they were when it was traced."""
        ends = np.cumsum([math.prod(shape) for shape in self._diagnosis_shapes])[:-1]
        parts = zip(np.split(number_rn, ends, axis=1), self._diagnosis_shapes, strict=True)
        return jax.tree.unflatten(self._diagnosis_tree, [part.reshape(-1, *shape) for part, shape in parts])


def _key(function: Wrapped, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """By what compiled functions are told apart; types are always the same."""
    return (function, *(leaf.shape for leaf in jax.tree.leaves(arguments)))


kept: dict[tuple[Run, int, tuple[jax.Device, ...]], Programs] = {}  # the one asked for last at the end


def programs(run: Run, lanes: int, devices: tuple[jax.Device, ...]) -> Programs:
    """The programs of a run, the same for all cells whose `Run.program` is equal."""
    key = (run, lanes, devices)
    found = kept.pop(key, None)
    kept[key] = found = found if found is not None else Programs(*key)
    for oldest in list(kept)[:-2]:  # two are at work: one group trains, the next compiles
        if sum(each.compiled for each in kept.values()) <= KEPT:
            break
        del kept[oldest]
    return found


class Lanes:
    """The lanes of a group: the runs of a cell that train together.

    Copies that make up what does not fill the shards never reach the caller.
    """

    def __init__(self, run: Run, lanes: Sequence[Lane], devices: Sequence[jax.Device]):
        self.lanes = tuple(lanes)
        self.seeds = tuple(dict.fromkeys(lane.seed for lane in lanes))
        self._run = run
        self._programs = programs(run.program, len(lanes), tuple(devices))
        padded = self.lanes + self.lanes[:1] * (self._programs.lanes - len(lanes))
        seeds = [lane.seed for lane in padded]
        self._knobs_r = self._programs.put(run.knobs([lane.lr for lane in padded], seeds))
        self._row_r = self._programs.put(np.array([self.seeds.index(seed) for seed in seeds], np.int32))

    @property
    def layout(self) -> Layout:
        """Of lanes and batches on the devices."""
        return self._programs.layout

    def init(self) -> State:
        """The state of all lanes before the first update, made once a seed: lanes of a seed start from the same."""
        state_of_seed = {seed: self._run.init(self._run.knobs(0.0, seed)) for seed in self.seeds}
        states = [state_of_seed[lane.seed] for lane in self.lanes]
        return self.from_host(jax.tree.map(lambda *one: np.stack(one), *states))

    def program(self, batches: Batch) -> Compiled:
        """The program of `update` for batches of this shape, compiled when it is first asked for."""
        return self._programs.update(batches)

    def is_compiled(self, batches: Batch) -> bool:
        """Whether `program` would return at once."""
        return self._programs.has_update(batches)

    def programs(
        self, batches: Sequence[Batch], evaluated: Sequence[Batch], diagnosed: Sequence[Batch]
    ) -> list[Callable[[], Compiled]]:
        """What compiles, in any thread, the programs that such updates, evaluations and diagnoses call: a call each.

        Of the batches only the shapes count.
        """
        return [
            *(functools.partial(self._programs.diagnose, batch) for batch in diagnosed),
            *(functools.partial(self._programs.update, batch) for batch in batches),
            *(functools.partial(self._programs.evaluate, batch) for batch in evaluated),
            self._programs.after_evaluation,
        ]

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
        batches = self._programs.put_batch(batches, row_axis=2)
        return self.program(batches)(state, self._knobs_r, self._row_r, batches, np.int32(count))

    def evaluate(self, params: Any, step_r: jax.Array, batch: Batch) -> tuple[Evaluation, np.ndarray]:
        """Counts of every lane over one batch of an evaluation set, and the decoded tokens [r, b, max_target].

        step_r: the updates after which the parameters were.
        """
        batch = self._programs.put_batch(batch, row_axis=0)
        evaluation, token_rbt = self._programs.evaluate(batch)(params, step_r, self._knobs_r, batch)
        return evaluation, np.asarray(token_rbt)[: len(self.lanes)]

    def diagnose(self, state: State, batch: Batch) -> Diagnosis:
        """What attention, gradients and updates of every lane are on one batch: NumPy arrays (train/diagnose.py)."""
        put = self._programs.put_batch(batch, row_axis=0)
        number_rn = self._programs.diagnose(put)(state, self._knobs_r, put)
        return self._programs.unpacked(np.asarray(number_rn)[: len(self.lanes)])

    def after_evaluation(self, state: State, valid: Evaluation) -> State:
        """Keep each lane's best parameters so far and start its training sums anew. `state` is donated."""
        return self._programs.after_evaluation()(state, valid)

    def to_host(self, tree: Any) -> Any:
        """A copy of the real lanes as NumPy arrays."""
        return jax.tree.map(lambda x: np.array(x)[: len(self.lanes)], tree)

    def from_host(self, tree: Any) -> Any:
        """The inverse of `to_host`."""
        missing = self._programs.lanes - len(self.lanes)
        return self._programs.put(jax.tree.map(lambda x: np.concatenate([x, *[x[:1]] * missing]), tree))

    def like(self) -> State:
        """Shapes and types of `to_host(state)`, without computing it."""
        return jax.tree.map(lambda x: np.zeros((len(self.lanes), *x.shape[1:]), x.dtype), self._programs.state)
