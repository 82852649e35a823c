"""Decoding over an architecture's `step`, of which nothing else is known."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Step = Callable[[Any, jax.Array], tuple[jax.Array, Any]]


class Decoded(NamedTuple):
    """Tokens int32 [b, max_length]: at most one EOS, and only PAD after it. `finished_b`: EOS was reached."""

    tokens_bt: jax.Array
    finished_b: jax.Array


def greedy(step: Step, cache: Any, *, batch_size: int, bos: int, eos: int, pad: int, max_length: int) -> Decoded:
    """The likeliest token at every step, for at most `max_length` steps (EOS counted), until every row has ended.

    `step`: (cache, token_b) -> (logits_bn, cache). PAD and BOS are never chosen.
    A row's tokens do not depend on other rows.
    """

    def is_running(carry: tuple[jax.Array, Any, jax.Array, Decoded]) -> jax.Array:
        index, _, _, decoded = carry
        return (index < max_length) & ~jnp.all(decoded.finished_b)

    def advance(carry: tuple[jax.Array, Any, jax.Array, Decoded]) -> tuple[jax.Array, Any, jax.Array, Decoded]:
        index, cache, token_b, (tokens_bt, finished_b) = carry
        logits_bn, cache = step(cache, token_b)
        logits_bn = logits_bn.at[:, jnp.array([bos, pad])].set(-jnp.inf)
        token_b = jnp.where(finished_b, pad, jnp.argmax(logits_bn, axis=-1).astype(jnp.int32))
        decoded = Decoded(tokens_bt.at[:, index].set(token_b), finished_b | (token_b == eos))
        return index + 1, cache, token_b, decoded

    nothing = Decoded(jnp.full((batch_size, max_length), pad, jnp.int32), jnp.zeros(batch_size, bool))
    first_b = jnp.full(batch_size, bos, jnp.int32)
    _, _, _, decoded = jax.lax.while_loop(is_running, advance, (jnp.zeros((), jnp.int32), cache, first_b, nothing))
    return decoded
