"""What training minimises and what is counted on the way, as sums and counts in one pass over the logits."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Sums(NamedTuple):
    """Sums over the real target tokens of some sentences (EOS counted, PAD not); divided on the host.

    loss: [] float32, nats, without label smoothing.
    correct: [] int32, tokens whose right class is more probable than any other (the target's true prefix given).
    tokens: [] int32, real target tokens.
    """

    loss: jax.Array
    correct: jax.Array
    tokens: jax.Array

    @classmethod
    def zero(cls) -> "Sums":
        """Sums over nothing."""
        return cls(jnp.float32(0), jnp.int32(0), jnp.int32(0))

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]
        """Sums over both sets of sentences."""
        return Sums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def cross_entropy(
    logits_btn: jax.Array, target_bt: jax.Array, *, pad: int, label_smoothing: float
) -> tuple[jax.Array, Sums]:
    """Label-smoothed cross-entropy, summed over real target tokens, and the plain sums beside it.

    Smoothing takes the share `label_smoothing` of each target's probability and spreads it evenly over all n classes,
    the right one and PAD included (Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4).

    Args:
      logits_btn: [b, t, n] float32.
      target_bt: [b, t] integer classes; `pad` marks what is not a token.
      pad: id of padding.
      label_smoothing: share of the probability, in [0, 1).

    Returns:
      (objective, sums): objective [] float32 in nats, summed, smoothed; `Sums` without smoothing.
    """
    real_bt = target_bt != pad
    log_normaliser_bt = jax.nn.logsumexp(logits_btn, axis=-1)
    right_logit_bt = jnp.take_along_axis(logits_btn, target_bt[..., None], axis=-1)[..., 0]
    # Classes not less probable than the right one, itself (and NaN) among them. argmax is a scalar loop on a CPU.
    rivals_bt = jnp.sum(~(logits_btn < right_logit_bt[..., None]), axis=-1, dtype=jnp.int32)
    loss_bt = jnp.where(real_bt, log_normaliser_bt - right_logit_bt, 0.0)
    sums = Sums(
        loss=loss_bt.sum(),
        correct=jnp.sum(real_bt & (rivals_bt == 1), dtype=jnp.int32),
        tokens=jnp.sum(real_bt, dtype=jnp.int32),
    )
    if not label_smoothing:
        return sums.loss, sums
    # (1 - e) * (Z - right) + e * mean over classes of (Z - logit) = (Z - right) + e * (right - mean logit)
    spread_bt = jnp.where(real_bt, right_logit_bt - logits_btn.mean(axis=-1), 0.0)
    return sums.loss + label_smoothing * spread_bt.sum(), sums
