"""Scores and whole attention in JAX: this project's, the additive score as one writes it first, JAX's and Flax's."""

import functools
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from serve import Prepared, calls_for, seconds_of

from model.attention import masked_softmax
from model.products import mix
from model.scores import scores

Parameters = Mapping[str, jax.Array]
Score = Callable[[Parameters, jax.Array, jax.Array], jax.Array]
Attend = Callable[[Parameters, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def plain(params: Parameters, query_bqhd: jax.Array, key_bkhd: jax.Array) -> jax.Array:
    """v . tanh(q + k + b), the whole hidden layer at once."""
    query_bqhd = query_bqhd + params["b_hd"][None, None]
    return jnp.einsum("bqkhd,hd->bhqk", jnp.tanh(query_bqhd[:, :, None] + key_bkhd[:, None]), params["v_hd"])


def own(name: str) -> Score:
    """An entry of SCORES as the softmax gets it."""
    return lambda params, query_bqhd, key_bkhd: scores(name, params, query_bqhd, key_bkhd).effective_bhqk


def ours(score: Score) -> Attend:
    """Attention with a score, as model/attention.py does it between its projections."""

    def attend(
        params: Parameters, query_bqhd: jax.Array, key_bkhd: jax.Array, value_bkhv: jax.Array, mask_bhqk: jax.Array
    ) -> jax.Array:
        weight_bhqk = masked_softmax(score(params, query_bqhd, key_bkhd), mask_bhqk)
        return mix(weight_bhqk, value_bkhv)

    return attend


SCORE: dict[str, Score] = {
    "blocked": own("additive"),
    "plain": plain,
    "dot": own("dot"),
    "scaled_dot": own("scaled_dot"),
}
ATTENTION: dict[str, Attend] = {
    "blocked": ours(SCORE["blocked"]),
    "dot": ours(SCORE["dot"]),
    "jax_unscaled": lambda _, query, key, value, mask: jax.nn.dot_product_attention(
        query, key, value, mask=mask, scale=1.0
    ),
    "scaled_dot": ours(SCORE["scaled_dot"]),
    "jax_attention": lambda _, query, key, value, mask: jax.nn.dot_product_attention(query, key, value, mask=mask),
    "flax_attention": lambda _, query, key, value, mask: nn.dot_product_attention(query, key, value, mask=mask),
}


def arrays(spec: dict[str, Any]) -> dict[str, Any]:
    """Standard normal inputs, one set for all; cotangents of score and attention; a padding mask that hides nothing."""
    batch, heads, length, d_k = (spec[name] for name in ("batch", "heads", "length", "d_k"))
    random = np.random.default_rng(0)
    normal = [random.standard_normal((batch, length, heads, d_k), np.float32) for _ in range(4)]
    return {
        "params": {"v_hd": jnp.full((heads, d_k), d_k**-0.5), "b_hd": jnp.zeros((heads, d_k))},
        "inputs": [jnp.asarray(one) for one in normal[:3]],
        "mask": jnp.ones((batch, 1, 1, length), bool),
        "attention": jnp.asarray(normal[3]),
        "score": jnp.asarray(random.standard_normal((batch, heads, length, length), np.float32)),
    }


def programs(data: dict[str, Any]) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions to compile, with their arguments, by "quantity contender". Each gives a result and all gradients."""
    query, key, value = data["inputs"]

    def of_score(score: Score) -> Callable[..., Any]:
        def both(params: Any, query_bqhd: Any, key_bkhd: Any, cotangent_bhqk: Any) -> Any:
            # The result itself, not its product with the cotangent: XLA would multiply the score by that in one loop.
            score_bhqk, pull = jax.vjp(score, params, query_bqhd, key_bkhd)
            return score_bhqk, pull(cotangent_bhqk)

        return both

    def of_attention(attend: Attend) -> Callable[..., Any]:
        def both(params: Any, query_bqhd: Any, key_bkhd: Any, value_bkhv: Any, mask: Any, cotangent: Any) -> Any:
            head_bqhv, pull = jax.vjp(lambda *each: attend(*each, mask), params, query_bqhd, key_bkhd, value_bkhv)
            return head_bqhv, pull(cotangent)

        return both

    score = (data["params"], query, key, data["score"])
    attention = (data["params"], query, key, value, data["mask"], data["attention"])
    return {f"score {name}": (of_score(one), score) for name, one in SCORE.items()} | {
        f"attention {name}": (of_attention(one), attention) for name, one in ATTENTION.items()
    }


def compiled(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, dict[str, Any]]:
    """The program, and what is known of it without running it."""
    started = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    took = time.perf_counter() - started
    cost, memory = program.cost_analysis() or {}, program.memory_analysis()
    assert memory is not None
    return program, {
        "program": name,
        "operations": cost.get("flops"),
        "transcendentals": cost.get("transcendentals"),
        "temporary memory": memory.temp_size_in_bytes / 1e6,
        "compilation": took,
    }


def call(program: Any, arguments: tuple[Any, ...]) -> None:
    """Run it to its end."""
    jax.block_until_ready(program(*arguments))


def prepare(spec: dict[str, Any]) -> Prepared:
    """A repeat calls every function as often as lasts spec["seconds"]; it says seconds a call by their names.

    spec: "batch", "heads", "length", "d_k", "seconds".
    """
    calls: dict[str, Callable[[], Any]] = {}
    facts = []
    for name, (function, arguments) in programs(arrays(spec)).items():
        program, fact = compiled(name, function, arguments)
        calls[name] = functools.partial(call, program, arguments)
        facts.append(fact)
    counts = {name: calls_for(spec["seconds"], call) for name, call in calls.items()}
    shifts = itertools.cycle(range(len(calls)))

    def timed(name: str) -> float:
        calls[name]()  # the function before left the caches to itself
        return seconds_of(calls[name], counts[name]) / counts[name]

    def repeat() -> dict[str, float]:
        shift, names = next(shifts), list(calls)
        return {name: timed(name) for name in names[shift:] + names[:shift]}

    return Prepared(repeat, {"programs": facts}, sum(fact["compilation"] for fact in facts))
