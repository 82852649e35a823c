"""Every architecture, and enough variants of the recurrent one that each choice meets most others: what tests of the
contract run over.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import model
from model.scores import SCORES, Lengths, family

FIELDS: dict[str, Any] = {
    "source_vocab": 17,
    "target_vocab": 17,
    "d_model": 7,
    "num_heads": 2,
    "d_k": 3,
    "d_v": 5,
    "d_ff": 11,
    "num_layers": 1,
    "score": "scaled_dot",
    "position": "sinusoidal",
    "norm": "pre",
    "dropout": 0.0,
    "tie_embeddings": False,
    "dtype": "float32",
    "attention_bias": False,
    "pad": 0,
    "lengths": Lengths(5.0, 7.0),
    "rnn": "tanh",
    "bidirectional": False,
    "decoder": "luong",
    "input_feeding": False,
    "bridge": "zero",
    "residual": False,
    "initial": "scaled",
}
DEEP = {"num_layers": 2, "residual": True}
BOTH_WAYS = {"bidirectional": True, "bridge": "learned"}
FEEDING = {"decoder": "luong", "input_feeding": True}

# Each cell, decoder, bridge, depth and direction; every kind of score with a decoder that attends.
VARIANTS: dict[str, dict[str, Any]] = {
    "transformer_pre": {"norm": "pre"},
    "transformer_post": {"norm": "post"},
    "lstm_luong": {"rnn": "lstm", "score": "additive", **BOTH_WAYS},
    "gru_luong": {"rnn": "gru", "score": "scaled_dot_log_n", "bridge": "last", **DEEP},
    "gru_feeding": {"rnn": "gru", "score": "general", "attention_bias": True, **FEEDING, **BOTH_WAYS, **DEEP},
    "lstm_feeding": {"rnn": "lstm", "score": "dot", "bridge": "last", **FEEDING},
    "tanh_feeding": {"rnn": "tanh", "score": "cosine", **FEEDING},
    "gru_bahdanau": {"rnn": "gru", "score": "additive_unnormalised", "decoder": "bahdanau", **BOTH_WAYS},
    "lstm_bahdanau": {"rnn": "lstm", "score": "learned_temperature", "decoder": "bahdanau", "bridge": "last", **DEEP},
    "tanh_bahdanau": {"rnn": "tanh", "score": "additive_linear", "decoder": "bahdanau", "bidirectional": True},
    "lstm_none_state": {"rnn": "lstm", "decoder": "none_state", "bridge": "last", "num_layers": 2},
    "gru_none_state": {"rnn": "gru", "decoder": "none_state", **BOTH_WAYS},
    "tanh_none_input": {"rnn": "tanh", "decoder": "none_input", **DEEP},
    "lstm_none_input": {"rnn": "lstm", "decoder": "none_input", **BOTH_WAYS},
}
RECURRENT = [name for name in VARIANTS if not name.startswith("transformer")]
# One of each decoder, and of each cell.
FEW = ["lstm_luong", "tanh_feeding", "gru_bahdanau", "lstm_none_state", "tanh_none_input"]
# (variant, score): the Transformer with each score of which the others differ in a factor and initial values only, a
# recurrent variant with its own.
BY_SCORE = [("transformer_pre", score) for score in sorted({family(score) for score in SCORES})]
EACH = pytest.mark.parametrize("variant", ["transformer_pre", *RECURRENT])
EACH_OF_FEW = pytest.mark.parametrize("variant", ["transformer_pre", *FEW])
EACH_WITH_SCORES = pytest.mark.parametrize(("variant", "score"), [*BY_SCORE, *((name, None) for name in RECURRENT)])
FEW_WITH_SCORES = pytest.mark.parametrize(("variant", "score"), [*BY_SCORE, *((name, None) for name in FEW)])

SOURCE = np.array([[5, 6, 7, 2, 0, 0], [4, 9, 11, 12, 13, 2], [8, 2, 0, 0, 0, 0]], np.int32)
INPUT = np.array([[1, 5, 6, 7, 2], [1, 4, 4, 15, 16], [1, 10, 3, 2, 0]], np.int32)


def build(variant: str, **fields: Any) -> Any:
    """The module of a variant with some fields changed; a field of None is left as the variant has it."""
    changed = {name: value for name, value in fields.items() if value is not None}
    return model.build(variant.partition("_")[0] if "transformer" in variant else "recurrent", **of(variant) | changed)


def of(variant: str) -> dict[str, Any]:
    """All fields of a variant."""
    return FIELDS | VARIANTS[variant]


def initial(module: Any, seed: Any = 0) -> Any:
    """The initial variables."""
    return module.init(jax.random.key(seed), SOURCE[:, :2], INPUT[:, :2], deterministic=True)


def drawn(module: Any, seed: int = 0) -> Any:
    """Variables of the right shapes and types without zeros, which would hide an unused bias; made in no time."""
    shapes = jax.eval_shape(lambda: initial(module))
    rng = np.random.default_rng(seed)

    def leaf(path: Any, shape: Any) -> jax.Array:
        centre = float("scale" in jax.tree_util.keystr(path))
        width = 0.1 if len(shape.shape) == 1 else shape.shape[0] ** -0.5
        return jnp.asarray(centre + width * rng.normal(size=shape.shape), shape.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


@functools.cache
def make(variant: str, seed: int = 0, **fields: Any) -> tuple[Any, Any]:
    """A module and its variables. Those of a recurrent one are drawn: its initial values take seconds to compile."""
    module = build(variant, **fields)
    return module, initial(module, seed) if "transformer" in variant else drawn(module, seed)


def moved(variables: Any, seed: int = 1) -> Any:
    """Variables with noise on every leaf: initial zeros and ones would hide an unused bias or scale."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + jnp.asarray(0.1 * rng.normal(size=x.shape), x.dtype), variables)


@functools.partial(jax.jit, static_argnames=("module", "deterministic", "mutable"))
def _run(module, variables, source, tokens, rngs, deterministic, mutable):
    return module.apply(variables, source, tokens, deterministic=deterministic, mutable=mutable, rngs=rngs)


def run(
    module: Any,
    variables: Any,
    source: Any = SOURCE,
    tokens: Any = INPUT,
    *,
    deterministic: bool = True,
    mutable: Any = False,
    rngs: Any = None,
) -> Any:
    """What the whole pass gives."""
    return _run(module, variables, jnp.asarray(source), jnp.asarray(tokens), rngs, deterministic, mutable)


@functools.partial(jax.jit, static_argnames=("module", "max_length"))
def start(module: Any, variables: Any, source: Any, max_length: int = 64) -> Any:
    """The cache from which `step` goes on."""
    encoded = module.apply(variables, source, deterministic=True, method="encode")
    return module.apply(variables, encoded, max_length, method="start")


@functools.partial(jax.jit, static_argnames="module")
def step(module: Any, variables: Any, cache: Any, token_b: Any) -> Any:
    """One token on."""
    return module.apply(variables, cache, token_b, method="step")
