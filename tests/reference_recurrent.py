"""Slow NumPy reference of the recurrent model, float64 and loops, from the papers' equations. A padded token is not
looked at at all.
"""

import math
from typing import Any

import numpy as np

from tests.reference import Array, attention, float64


def sigmoid(x: Array) -> Array:
    """Of each element."""
    return 1.0 / (1.0 + np.exp(-x))


def after(name: str, params: Any, before: tuple[Array, ...], x: Array) -> tuple[Array, ...]:
    """The state of a cell one step on: (h,), of an LSTM (c, h)."""
    h = before[-1]

    def of_input(gate: str) -> Array:
        return x @ float64(params[gate]["kernel"]) + float64(params[gate].get("bias", 0.0))

    def of_state(gate: str) -> Array:
        return h @ float64(params[gate]["kernel"]) + float64(params[gate].get("bias", 0.0))

    if name == "tanh":  # Elman 1990
        return (np.tanh(of_input("i") + of_state("h")),)
    if name == "gru":  # Cho et al. 2014, with the reset gate after the product
        r, z = (sigmoid(of_input(f"i{gate}") + of_state(f"h{gate}")) for gate in "rz")
        n = np.tanh(of_input("in") + r * of_state("hn"))
        return ((1.0 - z) * n + z * h,)
    # Gers et al. 2000, section 2, without peepholes
    i, o = (sigmoid(of_input(f"i{gate}") + of_state(f"h{gate}")) for gate in "io")
    f = sigmoid(of_input("if") + of_state("hf"))
    c = f * before[0] + i * np.tanh(of_input("ig") + of_state("hg"))
    return c, o * np.tanh(c)


def along(name: str, params: Any, width: int, states: list[Array]) -> tuple[list[Array], tuple[Array, ...]]:
    """From zeros over a sequence: h after each token, and the last state."""
    now: tuple[Array, ...] = (np.zeros(width),) * (2 if name == "lstm" else 1)
    seen = []
    for x in states:
        now = after(name, params, now, x)
        seen.append(now[-1])
    return seen, now


def context(params: Any, state_sw: Array, weight_hs: Array) -> Array:
    """Of weights that are given."""
    value, out = params["value"], float64(params["out"]["kernel"])
    return sum(
        weight_s
        @ (state_sw @ float64(value["kernel"])[:, head] + float64(value.get("bias", np.zeros(head + 1)))[head])
        @ out[head]
        for head, weight_s in enumerate(float64(weight_hs))
    )


def recurrent(fields: dict[str, Any], params: Any, source_s: Array, input_t: Array, weight_hts: Any = None) -> Array:
    """Logits [t, n] of one sentence pair; `fields` are those of model.Recurrent. weight_hts: not to be computed."""
    cell, width, decoder = fields["rnn"], fields["d_model"], fields["decoder"]
    tied = fields["tie_embeddings"]
    scale = math.sqrt(width) if fields["initial"] == "scaled" else 1.0

    def embed(table: str, token: int) -> Array:
        return float64(params["embedding_nm" if tied else table])[token] * scale

    states = [embed("source_embedding_nm", token) for token in source_s if token != fields["pad"]]
    ends: list[Any] = []
    for i in range(fields["num_layers"]):
        layer = params[f"encoder_{i}"]
        out, end = along(cell, layer["cells_0"], width, states)
        ends.append([end])
        if fields["bidirectional"]:
            backwards, end = along(cell, layer["cells_1"], width, states[::-1])
            out = [np.concatenate(pair) for pair in zip(out, backwards[::-1], strict=True)]
            ends[-1].append(end)
        states = [o + x for o, x in zip(out, states, strict=True)] if fields["residual"] and i > 0 else out
    state_sw = np.array(states)

    carries = []
    for i, end in enumerate(ends):
        if fields["bridge"] == "learned":
            both = [np.concatenate(parts) for parts in zip(*end, strict=True)]
            dense = [params[f"bridges_{i}_{part}"] for part in range(len(both))]
            carries.append(
                tuple(np.tanh(x @ float64(d["kernel"]) + float64(d["bias"])) for x, d in zip(both, dense, strict=True))
            )
        else:
            carries.append(tuple(part * (fields["bridge"] == "last") for part in end[0]))

    def attend(query_m: Array, t: int) -> Array:
        if weight_hts is not None:
            return context(params["attention"], state_sw, weight_hts[:, t, : len(state_sw)])
        everything = np.ones((1, len(state_sw)), bool)
        return attention(fields["score"], params["attention"], query_m[None], state_sw, everything)[0]

    fed = np.zeros(width)
    logits = []
    for t, token in enumerate(input_t):
        entering = [embed("target_embedding_nm", token)]
        combined = []
        if decoder == "none_input":
            entering += [end[-1] for end in ends[-1]]
        if fields["input_feeding"]:
            entering.append(fed)
        if decoder == "bahdanau":
            combined = [attend(carries[-1][-1], t)]
            entering += combined
        state = np.concatenate(entering)
        for i in range(fields["num_layers"]):
            carries[i] = after(cell, params[f"decoder_cells_{i}"], carries[i], state)
            state = carries[i][-1] + state if fields["residual"] and i > 0 else carries[i][-1]
        if decoder == "luong":
            combined = [attend(state, t)]
        fed = np.tanh(np.concatenate([state, *combined]) @ float64(params["combine"]["kernel"]))
        logits.append(fed @ (float64(params["embedding_nm"]).T if tied else float64(params["output_mn"])))
    return np.array(logits)
