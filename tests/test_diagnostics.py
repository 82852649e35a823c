"""Diagnostics of an attention against slow loops, known values, and what may not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from model.attention import Attention, Seen, causal_mask, padding_mask
from model.diagnostics import effective_rank, of_attention, of_groups
from model.scores import SCORES, Lengths

BATCH, LENGTH, HEADS = 3, 7, 2
REAL = np.arange(LENGTH) < np.array([7, 4, 2])[:, None]


def seen_by(name="scaled_dot", mask=None, seed=0, state=None):
    attention = Attention(11, HEADS, 5, 3, name, Lengths(5.0, 7.0))
    if state is None:
        state = jnp.asarray(np.random.default_rng(seed).normal(size=(BATCH, LENGTH, 11)), jnp.float32)
    variables = attention.init(jax.random.key(0), state, None, None, deterministic=True)
    _, sown = attention.apply(variables, state, None, mask, deterministic=True, mutable=["attention"])
    return sown["attention"]["seen"][0]


def slow(seen, real_bq, to_itself):
    """The same quantities, row after row and pair after pair, in float64."""
    rows = {head: [] for head in range(HEADS)}
    apart, diagonal, cosines, keys = ({head: [] for head in range(HEADS)} for _ in range(4))
    ranks = {head: [] for head in range(HEADS)}
    mask = np.asarray(seen.visible_bhqk)
    for b, h in np.ndindex(BATCH, HEADS):
        counting, used = [], set()
        for q in range(LENGTH):
            visible = np.flatnonzero(mask[b, h, q])
            if not real_bq[b, q] or len(visible) < 2:
                continue
            p = np.float64(seen.weight_bhqk[b, h, q])
            effective = np.float64(seen.effective_bhqk[b, h, q, visible])
            query = np.float64(seen.query_bqhd[b, q, h])
            some = p[p > 0]
            rows[h].append(
                {
                    "entropy": -(some * np.log(some)).sum() / np.log(len(visible)),
                    "max_weight": p.max(),
                    "one_minus_sum_p2": 1 - (p**2).sum(),
                    "share_saturated": p.max() > 0.99,
                    "variance_within": effective.var(ddof=1),
                    "norm": float(seen.norm_bhq[b, h, q]),
                    "query": (query**2).sum(),
                }
            )
            counting.append(p)
            for k in visible:
                used.add(k)
                key = np.float64(seen.key_bkhd[b, k, h])
                pair = float(seen.raw_bhqk[b, h, q, k]), float(seen.effective_bhqk[b, h, q, k])
                (diagonal if to_itself and q == k else apart)[h].append(pair)
                if not (to_itself and q == k):
                    cosines[h].append(query @ key / np.linalg.norm(query) / np.linalg.norm(key))
        keys[h] += [(np.float64(seen.key_bkhd[b, k, h]) ** 2).sum() for k in used]
        if counting:
            square = np.linalg.svd(np.array(counting), compute_uv=False) ** 2
            ranks[h].append(square.sum() ** 2 / (square**2).sum())

    def moments(name, pairs):
        values = {h: np.array(pairs[h]).reshape(-1, 2) for h in range(HEADS)}
        return {
            f"{part}{name}_{what}": [of(values[h][:, i]) if len(values[h]) else np.nan for h in range(HEADS)]
            for i, part in enumerate(("raw", "effective"))
            for what, of in (("mean", np.mean), ("variance", np.var))
        }

    same = ("entropy", "max_weight", "one_minus_sum_p2", "share_saturated", "variance_within")
    norms = {h: [row["norm"] for row in rows[h]] for h in range(HEADS)}
    return {
        **moments("", apart),
        **moments("_diagonal", diagonal),
        **{name: [np.mean([row[name] for row in rows[h]]) for h in range(HEADS)] for name in same},
        "jacobian_mean": [np.mean(norms[h]) for h in range(HEADS)],
        **{f"jacobian_q{q}": [np.quantile(norms[h], q / 100) for h in range(HEADS)] for q in (10, 50, 90)},
        "query_norm": [np.sqrt(np.mean([row["query"] for row in rows[h]])) for h in range(HEADS)],
        "key_norm": [np.sqrt(np.mean(keys[h])) for h in range(HEADS)],
        "alignment": [np.sqrt(np.mean(np.square(cosines[h]))) for h in range(HEADS)],
        "effective_rank": [np.mean(ranks[h]) for h in range(HEADS)],
    }


@pytest.mark.parametrize("name", ["additive", "dot", "cosine"])
@pytest.mark.parametrize("kind", ["padding", "causal", "open"])
def test_equals_the_loops(name, kind):
    mask = {"padding": padding_mask(jnp.asarray(REAL)), "causal": causal_mask(LENGTH), "open": None}[kind]
    seen = seen_by(name, mask)
    found = jax.jit(of_attention)(seen, jnp.asarray(REAL), kind != "open")
    expected = slow(seen, REAL, kind != "open")
    assert found.keys() == expected.keys()
    for quantity, values in expected.items():
        np.testing.assert_allclose(found[quantity], values, rtol=2e-4, atol=2e-5, err_msg=quantity)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_what_stands_at_padding_does_not_count(name):
    state = np.random.default_rng(0).normal(size=(BATCH, LENGTH, 11)).astype(np.float32)
    other = np.where(REAL[..., None], state, 9.0 * state[:, ::-1]).astype(np.float32)
    mask = padding_mask(jnp.asarray(REAL))
    one, two = (
        of_attention(seen_by(name, mask, state=jnp.asarray(x)), jnp.asarray(REAL), to_itself=True)
        for x in (state, other)
    )
    for quantity, values in one.items():
        np.testing.assert_allclose(two[quantity], values, rtol=1e-4, atol=1e-5, err_msg=quantity)


def test_nothing_that_counts_gives_nan():
    found = of_attention(seen_by(), jnp.zeros((BATCH, LENGTH), bool), to_itself=True)
    assert all(np.isnan(values).all() for values in found.values())


def test_rank_of_known_matrices():
    one_hot, uniform = np.eye(5, dtype=np.float32), np.full((5, 5), 0.2, np.float32)
    half = np.kron(np.eye(2), np.full((2, 2), 0.5)).astype(np.float32)
    assert float(effective_rank(one_hot[None, None])[0, 0]) == pytest.approx(5.0, rel=1e-5)
    assert float(effective_rank(uniform[None, None])[0, 0]) == pytest.approx(1.0, rel=1e-3)
    assert float(effective_rank(half[None, None])[0, 0]) == pytest.approx(2.0, rel=1e-3)
    assert float(effective_rank(jnp.zeros((1, 1, 3, 3)))[0, 0]) == 0.0


def test_saturation_counts_rows_above_the_threshold():
    weight = jnp.asarray([[0.991, 0.009, 0.0], [0.99, 0.01, 0.0], [0.5, 0.5, 0.0]])[None, None]
    seen = seen_by()
    one = Seen(
        seen.query_bqhd[:1, :3, :1],
        seen.key_bkhd[:1, :3, :1],
        *(seen.raw_bhqk[:1, :1, :3, :3],) * 2,
        weight,
        jnp.ones(weight.shape, bool),
        seen.norm_bhq[:1, :1, :3],
    )
    found = of_attention(one, jnp.ones((1, 3), bool), to_itself=False)
    assert float(found["share_saturated"][0]) == pytest.approx(1 / 3)


def test_groups_are_modules_and_their_norms_add_up():
    tree = {"a": {"b": {"kernel": jnp.full((2, 3), 2.0), "bias": jnp.ones((5,))}}, "output_mn": jnp.full((7,), -3.0)}
    found = of_groups(parameter=tree, gradient=jax.tree.map(lambda x: 2 * x, tree))
    assert set(found) == {"a/b", "output_mn"}
    assert float(found["a/b"]["parameter_norm"]) == pytest.approx(29**0.5)
    assert float(found["output_mn"]["gradient_norm"]) == pytest.approx(2 * 63**0.5)
