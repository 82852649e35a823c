"""Whole additive attention in Keras: AdditiveAttention on the JAX backend, compiled, forward and backward."""

import os
import time
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"  # read when Keras is imported

import jax
import jax.numpy as jnp
import keras
import numpy as np
from serve import Prepared, calls_for, seconds_of


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat says seconds a call; spec: "batch", "length", "d_k", "seconds". One head: the layer knows no other."""
    batch, length, d_k = spec["batch"], spec["length"], spec["d_k"]
    random = np.random.default_rng(0)
    query_bqd, value_bkv, key_bkd, cotangent_bqv = (
        jnp.asarray(random.standard_normal((batch, length, d_k), np.float32)) for _ in range(4)
    )
    mask_bk = jnp.ones((batch, length), bool)
    layer = keras.layers.AdditiveAttention(use_scale=True)
    layer.build([query_bqd.shape, value_bkv.shape, key_bkd.shape])
    scale = [variable.value for variable in layer.trainable_variables]

    def both(scale: Any, query_bqd: Any, value_bkv: Any, key_bkd: Any, mask_bk: Any, cotangent_bqv: Any) -> Any:
        def attend(scale: Any, *inputs: Any) -> jax.Array:
            head_bqv: jax.Array = layer.stateless_call(scale, [], list(inputs), mask=[None, mask_bk])[0]
            return head_bqv

        head_bqv, pull = jax.vjp(attend, scale, query_bqd, value_bkv, key_bkd)
        return head_bqv, pull(cotangent_bqv)

    arguments = (scale, query_bqd, value_bkv, key_bkd, mask_bk, cotangent_bqv)
    started = time.perf_counter()
    program = jax.jit(both).lower(*arguments).compile()
    memory = program.memory_analysis()
    assert memory is not None
    took = time.perf_counter() - started
    fact = {
        "program": "attention keras",
        "temporary memory": memory.temp_size_in_bytes / 1e6,
        "compilation": took,
    }

    def call() -> Any:
        return jax.block_until_ready(program(*arguments))

    calls = calls_for(spec["seconds"], call)
    return Prepared(lambda: {"attention keras": seconds_of(call, calls) / calls}, {"programs": [fact]}, took)
