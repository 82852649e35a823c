"""The machine's rate on the product of two square float32 matrices, through JAX on one device with all its threads."""

import time
from typing import Any

import jax
import jax.numpy as jnp
from serve import Prepared, calls_for, seconds_of

SIZES = (1024, 2048)


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat multiplies both sizes, each for half of spec["seconds"], and counts the faster one's operations."""
    started = time.perf_counter()
    squares = [jax.random.normal(jax.random.key(size), (size, size)) for size in SIZES]
    products = [jax.jit(jnp.matmul).lower(square, square).compile() for square in squares]
    compile_seconds = time.perf_counter() - started
    calls = [
        lambda product=product, square=square: jax.block_until_ready(product(square, square))
        for product, square in zip(products, squares, strict=True)
    ]
    counts = [calls_for(spec["seconds"] / 2, call) for call in calls]

    def repeat() -> dict[str, float]:
        took = [seconds_of(call, count) for call, count in zip(calls, counts, strict=True)]
        done = [2.0 * size**3 * count for size, count in zip(SIZES, counts, strict=True)]
        best = max(range(len(SIZES)), key=lambda place: done[place] / took[place])
        return {"seconds": took[best], "count": done[best]}

    return Prepared(repeat, {}, compile_seconds)
