"""Multi-head attention, one implementation for every architecture: project, score, mask, softmax, weighted sum.

A mask is boolean, broadcasts against score_bhqk, and True means "may attend". It is applied to keys, never to queries.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from model.products import dense_product, mix, project
from model.scores import SCORES, Lengths, Scored, Sizes, scores


class KeyValue(NamedTuple):
    """Projected keys [b, k, h, d] and values [b, k, h, v] of one attention: what decoding keeps."""

    key_bkhd: jax.Array
    value_bkhv: jax.Array


class Place(NamedTuple):
    """Where an attention of an architecture stands, for those who look at what it does.

    path: in the tree of modules. attention: a key of ATTENTIONS. layer: from 0, at the side of its queries.
    """

    path: tuple[str, ...]
    attention: str
    layer: int


# What attends to what: (side of the queries, side of the keys).
ATTENTIONS = {
    "encoder_self": ("source", "source"),
    "decoder_self": ("target", "target"),
    "cross": ("target", "source"),
}


class Seen(NamedTuple):
    """What one attention compared, and what came of it: what diagnostics are made from. Types are float32 but dtype.

    query_bqhd, key_bkhd: projected, in the compute dtype. raw_bhqk, effective_bhqk: scores before the mask.
    weight_bhqk: before dropout. visible_bhqk: the mask, bool. norm_bhq: of d weights / d query.
    """

    query_bqhd: jax.Array
    key_bkhd: jax.Array
    raw_bhqk: jax.Array
    effective_bhqk: jax.Array
    weight_bhqk: jax.Array
    visible_bhqk: jax.Array
    norm_bhq: jax.Array


def padding_mask(real_bk: jax.Array) -> jax.Array:
    """[b, k] True at real tokens -> mask [b, 1, 1, k]: padding is hidden from every query."""
    return real_bk[:, None, None, :]


def causal_mask(length: int) -> jax.Array:
    """Mask [1, 1, q, k] under which position q sees the keys 0..q (Vaswani et al. 2017, section 3.2.3)."""
    return jnp.tril(jnp.ones((1, 1, length, length), bool))


def masked_softmax(score_bhqk: jax.Array, mask_bhqk: jax.Array | None) -> jax.Array:
    """Weights float32, exactly 0 at hidden keys. A query that sees no key gets weights 0, with gradient 0."""
    score_bhqk = score_bhqk.astype(jnp.float32)
    if mask_bhqk is None:
        return jax.nn.softmax(score_bhqk, axis=-1)
    # The float32 minimum keeps a row without keys finite (-inf alone would be NaN); the second `where` empties it.
    weight_bhqk = jax.nn.softmax(jnp.where(mask_bhqk, score_bhqk, jnp.finfo(jnp.float32).min), axis=-1)
    return jnp.where(mask_bhqk, weight_bhqk, 0.0)


class ScoreFunction(nn.Module):
    """One entry of SCORES with its trainable arrays, in its own scope: no other initial value depends on it."""

    score: str
    sizes: Sizes
    factor: jax.Array | float | None

    def setup(self) -> None:
        """The arrays of the score."""
        self.arrays = {name: self.param(name, init, self.sizes) for name, init in SCORES[self.score].parameters.items()}

    def __call__(self, query_bqhd: jax.Array, key_bkhd: jax.Array, mask_bhqk: jax.Array | None) -> Scored:
        """Scores float32, not masked yet."""
        return scores(self.score, self.arrays, query_bqhd, key_bkhd, mask_bhqk, self.factor)

    def norm(
        self, query_bqhd: jax.Array, key_bkhd: jax.Array, weight_bhqk: jax.Array, gain_bhq1: jax.Array
    ) -> jax.Array:
        """Of d weights / d query of each row -> norm_bhq float32 (model/jacobian.py)."""
        norm_bhq = SCORES[self.score].norm(self.arrays, query_bqhd, key_bkhd, weight_bhqk)
        return jnp.abs(gain_bhq1[..., 0]) * norm_bhq


class Projection(nn.Module):
    """The matrix of a projection, LeCun-normal: variance 1/m; and a bias from 0 on. Named as a Flax layer names them.

    `factor`: on the initial values of the matrix.
    """

    shape: tuple[int, int, int]
    bias: bool
    factor: float = 1.0

    @nn.compact
    def __call__(self) -> tuple[jax.Array, jax.Array | None]:
        """-> kernel_mhd, bias_hd float32; without a bias None."""
        inputs, heads, width = self.shape
        init = nn.initializers.lecun_normal()
        kernel_mhd = self.param(
            "kernel", lambda key: init(key, (inputs, heads * width), jnp.float32).reshape(self.shape) * self.factor
        )
        return kernel_mhd, self.param("bias", nn.initializers.zeros, (heads, width)) if self.bias else None


class Attention(nn.Module):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2) with any entry of SCORES.

    d_model, num_heads, d_k, d_v are free. Projections start LeCun-normal: variance 1/d_model for query, key and value,
    1/(num_heads * d_v) for the output; `bias` gives the first three one, from 0 on. `d_source`: width of the states
    that keys and values are made of, where it is not d_model. `Seen` is sown as `seen` into the collection "attention"
    where the caller made it mutable. `lengths` are those of the sentences trained on, for scores whose initial values
    depend on them. `score_factor` stands in the place of the score's own factor; None: that one.
    """

    d_model: int
    num_heads: int
    d_k: int
    d_v: int
    score: str
    lengths: Lengths
    dropout: float = 0.0
    dtype: str = "float32"
    score_factor: jax.Array | float | None = None
    bias: bool = False
    d_source: int | None = None

    def setup(self) -> None:
        """Projections, score and dropout."""
        query_init = SCORES[self.score].query_init(self.d_k)
        d_source = self.d_source or self.d_model
        self.query = Projection((self.d_model, self.num_heads, self.d_k), self.bias, query_init)
        self.key = Projection((d_source, self.num_heads, self.d_k), self.bias)
        self.value = Projection((d_source, self.num_heads, self.d_v), self.bias)
        self.out = nn.DenseGeneral(
            self.d_model, axis=(-2, -1), use_bias=False, dtype=self.dtype, dot_general=dense_product
        )
        sizes = Sizes(self.num_heads, self.d_k, self.lengths)
        self.score_function = ScoreFunction(self.score, sizes, self.score_factor)
        self.drop = nn.Dropout(self.dropout)

    def _project(self, state_btm: jax.Array, *projections: Projection) -> list[jax.Array]:
        kernels_mhd, biases_hd = zip(*(projection() for projection in projections), strict=True)
        kernels_mo = [kernel_mhd.reshape(len(kernel_mhd), -1).astype(self.dtype) for kernel_mhd in kernels_mhd]
        products_bto = project(state_btm.astype(self.dtype), kernels_mo)
        return [
            (product_bto if bias_hd is None else product_bto + bias_hd.reshape(1, 1, -1))
            .astype(self.dtype)
            .reshape(*state_btm.shape[:2], *kernel_mhd.shape[1:])
            for product_bto, kernel_mhd, bias_hd in zip(products_bto, kernels_mhd, biases_hd, strict=True)
        ]

    def project_query(self, state_bqm: jax.Array) -> jax.Array:
        """-> query_bqhd."""
        return self._project(state_bqm, self.query)[0]

    def project_key_value(self, state_bkm: jax.Array) -> KeyValue:
        """Keys and values, to be made once and used for any number of queries."""
        return KeyValue(*self._project(state_bkm, self.key, self.value))

    def project_all(self, state_btm: jax.Array) -> tuple[jax.Array, KeyValue]:
        """query_bqhd, and keys and values, of one sequence that attends to itself."""
        query_bqhd, key_bkhd, value_bkhv = self._project(state_btm, self.query, self.key, self.value)
        return query_bqhd, KeyValue(key_bkhd, value_bkhv)

    def attend(
        self, query_bqhd: jax.Array, key_value: KeyValue, mask_bhqk: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """Score, mask, softmax, weighted sum of the values, output projection -> state_bqm."""
        scored = self.score_function(query_bqhd, key_value.key_bkhd, mask_bhqk)
        weight_bhqk = masked_softmax(scored.effective_bhqk, mask_bhqk)
        if self.is_mutable_collection("attention") and not self.is_initializing():
            norm_bhq = self.score_function.norm(query_bqhd, key_value.key_bkhd, weight_bhqk, scored.gain_bhq1)
            visible_bhqk = jnp.broadcast_to(True if mask_bhqk is None else mask_bhqk, weight_bhqk.shape)
            seen = Seen(query_bqhd, key_value.key_bkhd, *scored[:2], weight_bhqk, visible_bhqk, norm_bhq)
            self.sow("attention", "seen", seen)
        weight_bhqk = self.drop(weight_bhqk, deterministic=deterministic).astype(self.dtype)
        return self.out(mix(weight_bhqk, key_value.value_bkhv))

    def __call__(
        self, state_bqm: jax.Array, state_bkm: jax.Array | None, mask_bhqk: jax.Array | None, *, deterministic: bool
    ) -> jax.Array:
        """Queries of one sequence attend to another, or where that is None to themselves -> state_bqm."""
        if state_bkm is None:
            query_bqhd, key_value = self.project_all(state_bqm)
        else:
            query_bqhd, key_value = self.project_query(state_bqm), self.project_key_value(state_bkm)
        return self.attend(query_bqhd, key_value, mask_bhqk, deterministic=deterministic)
