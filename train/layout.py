"""The devices of a process, and how lanes and their batches lie on them: a rule from counts alone, recorded."""

import os
from typing import NamedTuple

import jax

from train.allocator import keep_memory
from train.errors import UserError

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


def start_backend(devices: int, block: float = 0.0) -> list[jax.Device]:
    """Choose the devices of this process; on a CPU its cores. Must come before anything else asks JAX for devices.

    Args:
      devices: how many; 0 = all.
      block: bytes that programs will ask the host for at every call (train/allocator.py).

    Raises:
      UserError: a jax that is known to hang, or fewer devices than asked for.
    """
    if jax.__version__ in HANGING_JAX:
        raise UserError(
            f"jax {jax.__version__} can hang on a CPU; install another: pip install 'jax==0.9.2' or 'jax>=0.11.1'"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    keep_memory(block, cores)
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
