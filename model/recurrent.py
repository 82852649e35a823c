"""The recurrent encoder-decoder, without attention and with it (Sutskever et al. 2014; Bahdanau et al. 2014; Luong et
al. 2015).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.attention import Attention, KeyValue, Place, padding_mask
from model.cells import CELLS, INITIALS, Layer, make_cell, run_cell
from model.contract import EncoderDecoder
from model.products import dense_product
from model.recurrence import Carry, Rows, hidden

# How the decoder comes to know the source; g is the state h of its top layer (luong: with the layer's input where it is
# added), c the context, of projected states as in the Transformer, h~ what is projected to the vocabulary.
DECODERS = {
    "luong": "c_t is attended to from g_t, h~_t = tanh(W [g_t; c_t]) (Luong et al. 2015, equation 5)",
    "bahdanau": "c_t is attended to from g_(t-1) and enters g_t (Bahdanau et al. 2014, A.2.2); h~_t as with luong",
    "none_state": "no attention: from the state that the decoder starts with (Sutskever et al. 2014)",
    "none_input": "no attention: likewise, and the encoder's last state enters each step (Cho et al. 2014)",
}
ATTENDING = ("luong", "bahdanau")

# What the decoder starts from.
BRIDGES = {
    "zero": "zeros",
    "last": "the last state of the encoder's layer beside it, that of the direction forwards",
    "learned": "tanh of a projection of the last states of that layer, both directions and of an LSTM h and c; after "
    "Bahdanau et al. 2014, A.2.2, who project that of the direction backwards, of a GRU",
}


class Encoded(NamedTuple):
    """What the decoder sees of the source.

    state_bsw: the top layer's states, [b, s, width]. mask_bs: True at real tokens. last: of each layer, of each
    direction the state after its last token.
    """

    state_bsw: jax.Array
    mask_bs: jax.Array
    last: tuple[tuple[Carry, ...], ...]


class Cache(NamedTuple):
    """State of decoding. All leaves start with the batch axis. What the decoder has no use for is None.

    source, mask_bs: what is attended to. fixed_bw: what enters every step. carries: of each layer.
    fed_bm: h~ of the step before.
    """

    source: KeyValue | None
    mask_bs: jax.Array
    fixed_bw: jax.Array | None
    carries: tuple[Carry, ...]
    fed_bm: jax.Array | None


class Recurrent(EncoderDecoder):
    """Layers of width d_model on both sides; the encoder's are twice as wide where it is bidirectional.

    rnn: an entry of CELLS. decoder, bridge: of DECODERS, BRIDGES. residual: from the second layer on, a layer's input
    is added to its output (Wu et al. 2016, section 3.1). input_feeding: h~ is an input of the next step (Luong et al.
    2015, section 3.3). initial: of embeddings and cells; "scaled": as EncoderDecoder says, recurrent matrices
    orthogonal; "uniform": within 0.04 of 0, embeddings used as they are (Britz et al. 2017). Dropout is on what enters
    a layer, on h~ and on weights, never from step to step (Zaremba et al. 2014); on the state that enters every step of
    `none_input` it is drawn once a sentence.
    """

    rnn: str
    bidirectional: bool
    decoder: str
    input_feeding: bool
    bridge: str
    residual: bool
    initial: str

    def __post_init__(self) -> None:
        """Refuse what cannot be built."""
        self._check_choices({"rnn": CELLS, "decoder": DECODERS, "bridge": BRIDGES, "initial": INITIALS})
        if self.input_feeding and self.decoder != "luong":
            raise ValueError(f"input_feeding needs the decoder luong, not {self.decoder}")
        if self.decoder == "none_state" and self.bridge == "zero":
            raise ValueError("bridge zero tells the decoder none_state nothing of the source: choose last or learned")
        super().__post_init__()

    @property
    def places(self) -> tuple[Place, ...]:
        """The attention to the source, at the top layer; none without attention."""
        return (Place(("attention",), "cross", self.num_layers - 1),) if self.decoder in ATTENDING else ()

    def setup(self) -> None:
        """Embeddings, layers, attention, output projection."""
        directions = 2 if self.bidirectional else 1
        cells = [
            [make_cell(self.rnn, self.d_model, self.initial, self.dtype) for _ in range(count)]
            for count in (directions,) * self.num_layers + (self.num_layers,)
        ]
        *encoder_cells, self.decoder_cells = cells
        self.encoder = [Layer(self.rnn, tuple(of_layer)) for of_layer in encoder_cells]
        dense = {"features": self.d_model, "dtype": self.dtype, "dot_general": dense_product}
        if self.bridge == "learned":
            parts = 2 if self.rnn == "lstm" else 1
            self.bridges = [[nn.Dense(**dense) for _ in range(parts)] for _ in range(self.num_layers)]
        if self.decoder in ATTENDING:
            self.attention = Attention(**self._attention_fields, d_source=directions * self.d_model)
        self.combine = nn.Dense(use_bias=False, **dense)
        self.drop = nn.Dropout(self.dropout)
        scaled = self.initial == "scaled"
        self._make_embeddings(self._normal_embeddings if scaled else INITIALS[self.initial]["kernel_init"])
        self.embedding_scale = math.sqrt(self.d_model) if scaled else 1.0

    def _tokens(self, embedding_nm: jax.Array, token_tb: jax.Array) -> Rows:
        """NaN from its first token on for a sentence with an id outside: states before the id would not show it."""
        outside_1b = jnp.any((token_tb < 0) | (token_tb >= len(embedding_nm)), axis=0, keepdims=True)
        scaled_nm = (embedding_nm * self.embedding_scale).astype(self.dtype)
        return Rows(scaled_nm, jnp.where(outside_1b, -1, token_tb))

    def embed_source(self, source_bs: jax.Array) -> jax.Array:
        """What the first layer of the encoder is given of the source, [b, s, m], without dropout."""
        return jnp.swapaxes(self._tokens(self.source_embedding_nm, source_bs.T).rows, 0, 1)

    def _dropped(self, input_tbi: jax.Array | Rows, *, deterministic: bool) -> jax.Array | Rows:
        """Inputs of a layer, some of their entries dropped. Rows of a table can stay such where none is."""
        if isinstance(input_tbi, jax.Array):
            return self.drop(input_tbi, deterministic=deterministic)
        if (deterministic or not self.dropout) and len(input_tbi.table_ni) < input_tbi.index_tb.size:
            return input_tbi
        return self.drop(input_tbi.rows, deterministic=deterministic)

    def encode(self, source_bs: jax.Array, *, deterministic: bool) -> Encoded:
        """Source ids [b, s], padded at the end with `pad`."""
        mask_bs = source_bs != self.pad
        tokens = self._tokens(self.source_embedding_nm, source_bs.T)
        states_sbw: list[jax.Array] = []
        last = []
        for layer in self.encoder:
            input_sbi = self._dropped(states_sbw[-1] if states_sbw else tokens, deterministic=deterministic)
            out_sbw, ends = layer(input_sbi, mask_bs.T)
            states_sbw.append(out_sbw + states_sbw[-1] if self.residual and states_sbw else out_sbw)
            last.append(ends)
        return Encoded(jnp.swapaxes(states_sbw[-1], 0, 1), mask_bs, tuple(last))

    def start(self, encoded: Encoded, max_length: int) -> Cache:
        """A cache for any number of steps. Keys and values of the source are projected here, once."""
        del max_length
        batch = len(encoded.mask_bs)
        return Cache(
            source=self.attention.project_key_value(encoded.state_bsw) if self.decoder in ATTENDING else None,
            mask_bs=encoded.mask_bs,
            fixed_bw=jnp.concatenate([hidden(end) for end in encoded.last[-1]], axis=-1)
            if self.decoder == "none_input"
            else None,
            carries=tuple(self._bridge(i, ends) for i, ends in enumerate(encoded.last)),
            fed_bm=jnp.zeros((batch, self.d_model), self.dtype) if self.input_feeding else None,
        )

    def _bridge(self, layer: int, ends: tuple[Carry, ...]) -> Carry:
        """What a layer of the decoder starts from, given the last states of the encoder's."""
        if self.bridge == "zero":
            return jax.tree.map(jnp.zeros_like, ends[0])
        if self.bridge == "last":
            return ends[0]
        parts, shape = zip(*(jax.tree.flatten(end) for end in ends), strict=True)
        both_bw = [jnp.concatenate(part, axis=-1) for part in zip(*parts, strict=True)]
        learned = [jnp.tanh(dense(x_bw)) for dense, x_bw in zip(self.bridges[layer], both_bw, strict=True)]
        return jax.tree.unflatten(shape[0], learned)

    def _advance(
        self, carries: tuple[Carry, ...], input_bi: jax.Array, *, deterministic: bool
    ) -> tuple[tuple[Carry, ...], jax.Array]:
        """One step of all layers of the decoder -> their states, and g_bm."""
        state_bm, after = input_bi, []
        for i, (cell, carry) in enumerate(zip(self.decoder_cells, carries, strict=True)):
            carry, out_bm = cell(carry, self.drop(state_bm, deterministic=deterministic))
            state_bm = out_bm + state_bm if self.residual and i else out_bm
            after.append(carry)
        return tuple(after), state_bm

    def _attend(self, cache: Cache, state_btm: jax.Array, *, deterministic: bool) -> jax.Array:
        """-> context_btm."""
        assert cache.source is not None, "decoders that attend have keys"
        query_bqhd = self.attention.project_query(state_btm)
        mask_bhqk = padding_mask(cache.mask_bs)
        return self.attention.attend(query_bqhd, cache.source, mask_bhqk, deterministic=deterministic)

    def _output(self, *parts_btm: jax.Array, deterministic: bool) -> jax.Array:
        """h~ of g and, where there is one, the context."""
        return self.drop(jnp.tanh(self.combine(jnp.concatenate(parts_btm, axis=-1))), deterministic=deterministic)

    def _turn(self, cache: Cache, embedded_bm: jax.Array, *, deterministic: bool) -> tuple[Cache, jax.Array, jax.Array]:
        """One step of the decoder, whatever it is -> the cache one token on, h~_bm, and the state that attended."""
        input_bi = jnp.concatenate([x for x in (embedded_bm, cache.fixed_bw, cache.fed_bm) if x is not None], axis=-1)
        from_bm, contexts = hidden(cache.carries[-1]), []
        if self.decoder == "bahdanau":
            contexts = [self._attend(cache, from_bm[:, None], deterministic=deterministic)[:, 0]]
            input_bi = jnp.concatenate([input_bi, *contexts], axis=-1)
        carries, state_bm = self._advance(cache.carries, input_bi, deterministic=deterministic)
        if self.decoder == "luong":
            from_bm = state_bm
            contexts = [self._attend(cache, from_bm[:, None], deterministic=deterministic)[:, 0]]
        out_bm = self._output(state_bm, *contexts, deterministic=deterministic)
        return cache._replace(carries=carries, fed_bm=out_bm if self.input_feeding else None), out_bm, from_bm

    def decode(self, encoded: Encoded, input_bt: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [b, t, n] at once: attention is inside the loop over time only where a step needs the one before."""
        cache = self.start(encoded, input_bt.shape[1])
        tokens = self._tokens(self.target_embedding_nm, input_bt.T)
        if self.input_feeding or self.decoder == "bahdanau":
            return self._decode_in_turn(cache, jnp.swapaxes(tokens.rows, 0, 1), deterministic=deterministic)
        real_tb = jnp.ones(tokens.index_tb.shape, bool)
        fixed_bw = None if cache.fixed_bw is None else self.drop(cache.fixed_bw, deterministic=deterministic)
        states_tbm: list[jax.Array] = []
        for cell, first in zip(self.decoder_cells, cache.carries, strict=True):
            input_tbi = self._dropped(states_tbm[-1] if states_tbm else tokens, deterministic=deterministic)
            beside_bw = None if states_tbm else fixed_bw
            _, out_tbm = run_cell(self.rnn, cell, input_tbi, real_tb, first, beside_bw)
            states_tbm.append(out_tbm + states_tbm[-1] if self.residual and states_tbm else out_tbm)
        state_btm = jnp.swapaxes(states_tbm[-1], 0, 1)
        contexts = [self._attend(cache, state_btm, deterministic=deterministic)] if self.decoder == "luong" else []
        return self._project_out(self._output(state_btm, *contexts, deterministic=deterministic))

    def _decode_in_turn(self, cache: Cache, embedded_btm: jax.Array, *, deterministic: bool) -> jax.Array:
        """Logits [b, t, n], each step after the one before."""

        def turn(module: Recurrent, cache: Cache, embedded_bm: jax.Array) -> tuple[Cache, Any]:
            cache, *outs = module._turn(cache, embedded_bm, deterministic=deterministic)
            return cache, outs

        split_rngs = {"params": False, "dropout": True}
        over_time = nn.scan(turn, variable_broadcast="params", split_rngs=split_rngs, in_axes=1, out_axes=1)
        _, (out_btm, from_btm) = over_time(self, cache, embedded_btm)
        if self.is_mutable_collection("attention"):  # to be seen whole, and not step by step
            self._attend(cache, from_btm, deterministic=deterministic)
        return self._project_out(out_btm)

    def step(self, cache: Cache, token_b: jax.Array) -> tuple[jax.Array, Cache]:
        """Logits [b, n] for what follows `token_b`, and the cache one token on."""
        embedded_bm = self._tokens(self.target_embedding_nm, token_b[None]).rows[0]
        cache, out_bm, _ = self._turn(cache, embedded_bm, deterministic=True)
        return self._project_out(out_bm[:, None])[:, 0], cache
