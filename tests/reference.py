"""Slow NumPy reference of the model, float64 and loops, from the papers' equations. `params` are the model's trees."""

import math
from typing import Any

import numpy as np

Array = np.ndarray


def float64(values: Any) -> Array:
    """The values, as an array in double precision."""
    return np.asarray(values, np.float64)


def score(name: str, params: dict[str, Any], query_qd: Array, key_kd: Array, head: int, mask_qk: Array) -> Array:
    """Scores [q, k] of a head: Bahdanau et al. 2014, A.1.2; Luong et al. 2015, 3.1; Vaswani et al. 2017, equation 1;
    Henry et al. 2020, 3; Nakanishi 2025.
    """
    result = np.zeros((len(query_qd), len(key_kd)))
    d_k = query_qd.shape[1]
    part = {key: float64(value) for key, value in params.items()}
    for q, query_d in enumerate(query_qd):
        for k, key_d in enumerate(key_kd):
            product = query_d @ key_d
            if name in ("additive", "additive_unnormalised"):
                result[q, k] = part["v_hd"][head] @ np.tanh(query_d + key_d + part["b_hd"][head])
            elif name == "additive_linear":
                result[q, k] = part["v_hd"][head] @ (query_d + key_d + part["b_hd"][head])
            elif name in ("dot", "dot_t5_init"):
                result[q, k] = product
            elif name == "scaled_dot":
                result[q, k] = product / math.sqrt(d_k)
            elif name == "scaled_dot_mup":
                result[q, k] = product / d_k
            elif name == "learned_temperature":
                result[q, k] = product * part["scale_h"][head]
            elif name == "scaled_dot_log_n":
                result[q, k] = product * part["scale_h"][head] * math.log(max(1, mask_qk[q].sum()))
            elif name == "cosine":
                result[q, k] = part["scale_1"][0] * product / np.linalg.norm(query_d) / np.linalg.norm(key_d)
            elif name == "general":
                result[q, k] = query_d @ part["kernel_hde"][head] @ key_d
            else:
                raise ValueError(f"no reference for the score {name!r}; write one")
    return result


def softmax(score_k: Array, visible_k: Array) -> Array:
    """Weights [k] over the visible keys; all 0 where none is visible."""
    weight_k = np.zeros(len(score_k))
    if visible_k.any():
        power_k = np.exp(score_k[visible_k] - score_k[visible_k].max())
        weight_k[visible_k] = power_k / power_k.sum()
    return weight_k


def attention(name: str, params: Any, state_qm: Array, state_km: Array, mask_qk: Array) -> Array:
    """Concatenated heads times the output matrix (Vaswani et al. 2017, section 3.2.2)."""
    kernels = {part: float64(params[part]["kernel"]) for part in ("query", "key", "value", "out")}
    result_qm = np.zeros((len(state_qm), kernels["out"].shape[-1]))
    for head in range(kernels["query"].shape[1]):
        query_qd, key_kd, value_kv = (
            state @ kernels[part][:, head] + float64(params[part].get("bias", np.zeros(head + 1)))[head]
            for part, state in (("query", state_qm), ("key", state_km), ("value", state_km))
        )
        score_qk = score(name, params.get("score_function", {}), query_qd, key_kd, head, mask_qk)
        for q in range(len(state_qm)):
            result_qm[q] += softmax(score_qk[q], mask_qk[q]) @ value_kv @ kernels["out"][head]
    return result_qm


def layer_norm(params: Any, state_tm: Array, epsilon: float = 1e-6) -> Array:
    """Ba et al. 2016, equation 3, with the population variance."""
    centred_tm = state_tm - state_tm.mean(-1, keepdims=True)
    variance_t1 = (centred_tm**2).mean(-1, keepdims=True)
    return centred_tm / np.sqrt(variance_t1 + epsilon) * float64(params["scale"]) + float64(params["bias"])


def sinusoid(position: int, d_model: int) -> Array:
    """Vaswani et al. 2017, section 3.5."""
    code_m = np.zeros(d_model)
    for slot in range(d_model):
        angle = position / 10000 ** (2 * (slot // 2) / d_model)
        code_m[slot] = math.sin(angle) if slot % 2 == 0 else math.cos(angle)
    return code_m


def feed_forward(params: Any, state_tm: Array) -> Array:
    """Vaswani et al. 2017, equation 2."""
    inner, outer = params["inner"], params["outer"]
    hidden_tf = np.maximum(0.0, state_tm @ float64(inner["kernel"]) + float64(inner["bias"]))
    return hidden_tf @ float64(outer["kernel"]) + float64(outer["bias"])


def transformer(fields: dict[str, Any], params: Any, source_s: Array, input_t: Array) -> Array:
    """Logits [t, n] of one sentence pair; `fields` are those of model.Transformer."""
    d_model, pre = fields["d_model"], fields["norm"] == "pre"
    tied = fields["tie_embeddings"]

    def embed(table: str, token_t: Array) -> Array:
        embedding_nm = float64(params["embedding_nm" if tied else table])
        codes = [sinusoid(p, d_model) * (fields["position"] == "sinusoidal") for p in range(len(token_t))]
        return embedding_nm[token_t] * math.sqrt(d_model) + np.array(codes)

    def residual(norm: Any, state_tm: Array, sublayer: Any) -> Array:
        if pre:
            return state_tm + sublayer(layer_norm(norm["normalise"], state_tm))
        return layer_norm(norm["normalise"], state_tm + sublayer(state_tm))

    visible_s = source_s != fields["pad"]
    length = len(input_t)
    self_mask_ss = np.tile(visible_s, (len(source_s), 1))
    causal_tt = np.array([[k <= q for k in range(length)] for q in range(length)])
    source_mask_ts = np.tile(visible_s, (length, 1))
    kind = fields["score"]

    source_sm = embed("source_embedding_nm", source_s)
    for i in range(fields["num_layers"]):
        layer = params[f"encoder_{i}"]
        source_sm = residual(
            layer["around_attention"],
            source_sm,
            lambda x, p=layer["attention"]: attention(kind, p, x, x, self_mask_ss),
        )
        source_sm = residual(
            layer["around_feed_forward"], source_sm, lambda x, p=layer["feed_forward"]: feed_forward(p, x)
        )
    memory_sm = layer_norm(params["encoder_norm"], source_sm) if pre else source_sm

    state_tm = embed("target_embedding_nm", input_t)
    for i in range(fields["num_layers"]):
        layer = params[f"decoder_{i}"]
        state_tm = residual(
            layer["around_self_attention"],
            state_tm,
            lambda x, p=layer["self_attention"]: attention(kind, p, x, x, causal_tt),
        )
        state_tm = residual(
            layer["around_source_attention"],
            state_tm,
            lambda x, p=layer["source_attention"]: attention(kind, p, x, memory_sm, source_mask_ts),
        )
        state_tm = residual(
            layer["around_feed_forward"], state_tm, lambda x, p=layer["feed_forward"]: feed_forward(p, x)
        )
    state_tm = layer_norm(params["decoder_norm"], state_tm) if pre else state_tm
    return state_tm @ (float64(params["embedding_nm"]).T if tied else float64(params["output_mn"]))
