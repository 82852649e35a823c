"""What the lanes of a cell need of the devices' memory, and the groups that they train in so that it suffices.

Estimated from shapes alone: nothing is compiled or written for it. A lane's state is exact. Temporaries are counted by
the tensors of one update and of one evaluation as if most of them lay in memory at once: an upper bound, two to five
times what XLA needs where activations rule. All sizes are bytes, of all devices together; an accelerator has an equal
share of them.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from model import additive, family
from train.errors import UserError
from train.host_memory import free_memory
from train.layout import Layout
from train.plan import Cell, Plan
from train.schema import ModelSettings
from train.step import Run, State
from train.tasks import Batch, Task

GB = 1e9
FLOAT = 4  # bytes; of a 16-bit dtype too, whose sums and gradients are float32
SHARE = 0.8  # of what a device has, where no limit is given: the rest is for checkpoints on their way and for others
OVERESTIMATE = 5.0  # of an update's temporaries, beside what XLA allots: 3 for a large vocabulary, 7 for short updates
SHAPES = 1000  # updates whose batches are looked at for their shapes


class Need(NamedTuple):
    """Bytes. state: of one lane. temporary: of one lane at work. batches: of one chunk, of one seed, on one device."""

    state: int
    temporary: int
    batches: int

    def total(self, lanes: int, layout: Layout) -> int:
        """Of so many lanes that train together, on all devices that they use."""
        each = -(-lanes // layout.lane_shards)  # what does not fill the shards is made up with copies
        # Lanes taken in turn lie in memory twice: as they were, and as they come out.
        states, at_once = (2 * each, 1) if layout.order == "map" else (each, each)
        device = states * self.state + at_once * self.temporary + lanes * self.batches
        return device * layout.lane_shards * layout.data_shards


def nbytes(tree: Any) -> int:
    """Of all arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def state_of(run: Run) -> State:
    """Shapes and types of one lane's state, without asking for devices."""
    return _state_of(run.program)


@functools.cache  # of a run of every shape of a plan; it takes a tenth of a second
def _state_of(run: Run) -> State:
    return jax.eval_shape(run.init, run.knobs(0.0, 0))


def need(cell: Cell, run: Run, task: Task, layout: Layout) -> Need:
    """Of a cell whose batches are split as the layout says."""
    size = nbytes(state_of(run))
    shapes = {task.shape(step) for step in range(min(cell.run.steps, SHAPES))}
    part = cell.run.batch_size // cell.optim.accumulate
    update = max(_update(cell.model, part, *shape, task.target_vocab, layout) for shape in shapes)
    evaluation = max(
        _evaluation(cell.model, batch, task, layout.platform)
        for split in ("valid", "test")
        for batch in task.evaluation(split).batches
    )
    longest = min(cell.run.chunk_steps, cell.run.eval_every, cell.run.checkpoint_every, cell.run.steps)
    numbers = longest * -(-cell.run.batch_size // layout.data_shards) * max(map(sum, shapes))
    # Of an update also gradients, their direction and the state that is to come, which may lie beside the old one.
    temporary = max(2 * size + FLOAT * update, FLOAT * evaluation)
    return Need(size, temporary, numbers * np.dtype(np.int32).itemsize)


def least_block(plan: Plan, runs: Mapping[str, Run], tasks: Mapping[str, Task]) -> float:
    """Bytes, about, that XLA will allot to the temporaries of one lane's update, in the cell that wants least."""
    alone = Layout("cpu", lane_shards=1, data_shards=1, order="map")
    needs = (need(cell, runs[cell.name], tasks[cell.name], alone) for cell in plan.cells)
    return min(one.temporary for one in needs) / OVERESTIMATE


class Hidden(NamedTuple):
    """Numbers of the hidden layer of one attention's score: of all of it, and of what is made of it at a time."""

    numbers: int
    tile: int

    @property
    def whole(self) -> bool:
        """Made once, and kept until the backward pass; tiles are made again there."""
        return self.tile == self.numbers


def attentions(source: int, target: int) -> tuple[tuple[int, int], ...]:
    """Queries and keys of a layer's attentions: in the encoder, in the decoder, from the decoder to the source."""
    return (source, source), (target, target), (target, source)


def hidden_layers(
    model: ModelSettings, rows: int, lengths: Sequence[tuple[int, int]], platform: str
) -> tuple[Hidden, ...]:
    """Of attentions with these queries and keys, where the score has hidden layers.

    rows: of all devices that the batch is split over: the program is written as if there were one.
    """
    if family(model.score) != "additive":
        return ()
    tiling = additive.CPU if platform == "cpu" else additive.ACCELERATOR
    examples = rows * model.num_heads
    return tuple(
        Hidden(
            examples * queries * keys * model.d_k,
            math.prod(additive.tile_sizes(examples, queries, keys, model.d_k, tiling)) * model.d_k,
        )
        for queries, keys in lengths
    )


def _attention(model: ModelSettings, rows: int, queries: int, keys: int) -> int:
    """Numbers of one attention, forwards and backwards, but for a hidden layer of its score."""
    projected = model.num_heads * (model.d_k + model.d_v)
    return rows * (
        queries * 6 * model.d_model + (queries + keys) * 3 * projected + 8 * model.num_heads * queries * keys
    )


def _layer(model: ModelSettings, rows: int, source: int, target: int) -> int:
    """Numbers of one layer of the encoder and one of the decoder, forwards and backwards."""
    feed_forward = rows * (source + target) * (4 * model.d_model + 4 * model.d_ff)
    return feed_forward + sum(_attention(model, rows, *lengths) for lengths in attentions(source, target))


def _update(model: ModelSettings, rows: int, source: int, target: int, vocab: int, layout: Layout) -> int:
    """Of one device, for so many rows on all."""
    each = -(-rows // layout.data_shards)
    layers = model.num_layers * _layer(model, each, source, target)
    ends = each * ((source + target) * 4 * model.d_model + target * 6 * vocab)
    hidden = hidden_layers(model, rows, attentions(source, target), layout.platform)
    # Whole ones are split by rows; a tile may lie on every device.
    whole = [-(-one.numbers // layout.data_shards) for one in hidden if one.whole]
    tiles = [one.tile for one in hidden if not one.whole]
    return layers + ends + model.num_layers * sum(whole) + 4 * max([*whole, *tiles], default=0)


def _evaluation(model: ModelSettings, batch: Batch, task: Task, platform: str) -> int:
    """Forwards only: a quarter of a layer, one at a time, and the keys and values that decoding keeps of all."""
    (rows, source), target = batch.source_bs.shape, task.max_target
    kept = 4 * model.num_layers * rows * (source + target) * model.num_heads * (model.d_k + model.d_v)
    ends = rows * ((source + target) * 4 * model.d_model + target * 4 * task.target_vocab)
    # Of what is given the targets may be narrower; decoding has a query at a time.
    lengths = (*attentions(source, batch.target_bt.shape[1]), (1, target), (1, source))
    hidden = max((one.tile for one in hidden_layers(model, rows, lengths, platform)), default=0)
    return kept + _layer(model, rows, source, target) // 4 + ends + 4 * hidden


def available(memory_gb: float, devices: Sequence[jax.Device]) -> float:
    """Bytes that a launch may take of all its devices: run.memory_gb, or where that is 0 a share of what they have."""
    if memory_gb:
        return memory_gb * GB
    if devices[0].platform == "cpu":
        return SHARE * free_memory()
    limits = [(device.memory_stats() or {}).get("bytes_limit", float("inf")) for device in devices]
    return SHARE * min(limits) * len(devices)


def room(limit: float, layout: Layout, devices: int) -> float:
    """Of the limit on all devices, what those have that a layout uses; cores all share one memory."""
    return limit if layout.platform == "cpu" else limit * layout.lane_shards * layout.data_shards / devices


def even_sizes(lanes: int, groups: int, shards: int) -> list[int]:
    """Lanes of each group: the largest first, all full turns of the shards where that is possible, as even as it is."""
    turns = -(-lanes // shards)
    if groups > turns:
        return [lanes // groups + (group < lanes % groups) for group in range(groups)]
    sizes = [shards * (turns // groups + (group < turns % groups)) for group in range(groups)]
    sizes[0] -= shards * turns - lanes
    return sorted(sizes, reverse=True)


def make_split(
    plan: Plan,
    runs: Mapping[str, Run],
    tasks: Mapping[str, Task],
    layout: Callable[[int], Layout],
    devices: int,
    limit: float,
) -> Callable[[int], list[int]]:
    """A function from a number of lanes to the sizes of the fewest groups that fit into `limit` bytes, cell by cell.

    It raises UserError where one lane of a cell does not fit.
    """

    @functools.cache
    def hungriest(lanes: int) -> tuple[int, Cell]:
        """Bytes of so many lanes, and the cell that wants them."""
        lie = layout(lanes)
        needs = [need(cell, runs[cell.name], tasks[cell.name], lie) for cell in plan.cells]
        return max(((one.total(lanes, lie), cell) for one, cell in zip(needs, plan.cells, strict=True)), key=_first)

    @functools.cache
    def split(lanes: int) -> list[int]:
        for groups in range(1, lanes + 1):
            sizes = even_sizes(lanes, groups, layout(lanes).lane_shards)
            if all(hungriest(size)[0] <= room(limit, layout(size), devices) for size in set(sizes)):
                return sizes
        wanted, cell = hungriest(1)
        raise UserError(
            f"cell {cell.name} needs up to {wanted / GB:.3g} GB for one lane, more than the"
            f" {room(limit, layout(1), devices) / GB:.3g} GB of run.memory_gb ({plan.cells[0].run.memory_gb:g}): a"
            " smaller run.batch_size or run.eval_batch_size, a larger optim.accumulate, or more run.memory_gb"
        )

    return split


def _first(pair: tuple[int, Cell]) -> int:
    return pair[0]
