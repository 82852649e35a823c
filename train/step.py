"""ONE run: its initial state, one update, one evaluation. Written as if lanes did not exist.

Everything here is a pure function of arrays. `Knobs` holds what may differ between the lanes of a cell; all else is
fixed when the program is compiled.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from model import SCORES, Lengths, family
from model.decoding import greedy
from train.metrics import METRICS
from train.objective import Sums, cross_entropy
from train.optim import make_optimizer, schedule_factor, temperature
from train.schema import OptimSettings, RunSettings
from train.tasks import BOS, EOS, PAD, Batch

NEVER = -1
ANY_LENGTHS = Lengths(0.0, 0.0)  # of a program that makes no initial values


class Knobs(NamedTuple):
    """What differs between lanes and enters the program as a number.

    learning_rate: [] float32, the peak rate.
    seed: [] uint32: the initial values, the dropout and (on the host) the data of the run.
    score_factor: [] float32, the factor on every score (model/scores.py).
    """

    learning_rate: Any
    seed: Any
    score_factor: Any


class State(NamedTuple):
    """All that a run carries from update to update; together with (seed, step) it determines the rest of the run.

    params, optimizer: pytrees.
    step: [] int32, updates made.
    diverged_at: [] int32, the update (from 1) at which the loss or the norm of the gradient was not finite, or after
        which the loss on the valid set was not; from then on the run is frozen. NEVER before.
    train: sums over the training batches since the last evaluation, dropout on.
    best_params, best_value, best_step: parameters that did best on the valid set, with its metric and their step.
    """

    params: Any
    optimizer: Any
    step: jax.Array
    diverged_at: jax.Array
    train: Sums
    best_params: Any
    best_value: jax.Array
    best_step: jax.Array


class Evaluation(NamedTuple):
    """Counts over evaluation sentences; padding rows count nowhere.

    sums: teacher-forced.
    sequences: [] int32, real sentences. sequences_correct: [] int32, of these decoded right, EOS included.
    unfinished: [] int32, of these whose decoding met no EOS within the limit.
    """

    sums: Sums
    sequences: jax.Array
    sequences_correct: jax.Array
    unfinished: jax.Array

    @classmethod
    def zero(cls) -> "Evaluation":
        """Of no sentences."""
        return cls(Sums.zero(), jnp.int32(0), jnp.int32(0), jnp.int32(0))

    def __add__(self, other: "Evaluation") -> "Evaluation":  # type: ignore[override]
        """Counts over both sets of sentences."""
        return jax.tree.map(jnp.add, self, other)

    def counts(self) -> dict[str, jax.Array]:
        """The counts by the names that METRICS uses."""
        return {**self.sums._asdict(), **{name: count for name, count in self._asdict().items() if name != "sums"}}


def shift_right(target_bt: jax.Array) -> jax.Array:
    """The decoder's input: BOS, then the target without its last column. [b, t] -> [b, t]."""
    return jnp.concatenate([jnp.full_like(target_bt[:, :1], BOS), target_bt[:, :-1]], axis=1)


@dataclasses.dataclass(frozen=True)
class Run:
    """The functions of one run, for a given module, optimizer and number of steps.

    max_target: limit of decoding, in tokens, EOS included.
    """

    module: nn.Module
    optim: OptimSettings
    run: RunSettings
    max_target: int

    @property
    def optimizer(self) -> optax.GradientTransformation:
        """The Optax chain without the rate, which is applied in `update`."""
        return make_optimizer(self.optim)

    @property
    def program(self) -> "Run":
        """The run whose functions but `init` are also this one's: equal runs, equal programs.

        Scores of a family differ in the factor, which is among the knobs, and in initial values; on the lengths of
        sentences nothing else depends.
        """
        return dataclasses.replace(self, module=self.module.clone(score=family(self.module.score), lengths=ANY_LENGTHS))

    def knobs(self, learning_rate: Any, seed: Any) -> Knobs:
        """Knobs of a rate and a seed; of arrays of them, those of many runs."""
        rate = np.asarray(learning_rate, np.float32)
        factor = SCORES[self.module.score].factor(self.module.d_k)
        return Knobs(rate, np.asarray(seed, np.uint32), np.full(rate.shape, factor, np.float32))

    def at(self, knobs: Knobs, step: jax.Array | int) -> nn.Module:
        """The module as the update after `step` updates uses it: the knobs' factor over the temperature then."""
        return self.module.clone(score_factor=knobs.score_factor / temperature(step, self.optim))

    def after(self, knobs: Knobs, step: jax.Array | int) -> nn.Module:
        """The module as the last of `step` updates used it; before the first as that will."""
        return self.at(knobs, jnp.maximum(jnp.asarray(step) - 1, 0))

    def init(self, knobs: Knobs) -> State:
        """The state before the first update. The same seed gives the same values wherever shapes and names agree.

        Fast outside a compiled program: only the initialisers run, and JAX compiles each once for all cells.
        """
        key_init = jax.random.fold_in(jax.random.key(knobs.seed), 0)
        token_bt = jax.ShapeDtypeStruct((1, 2), jnp.int32)
        params = self.module.lazy_init(key_init, token_bt, token_bt, deterministic=True)["params"]
        return State(
            params=params,
            optimizer=self.optimizer.init(params),
            step=jnp.int32(0),
            diverged_at=jnp.int32(NEVER),
            train=Sums.zero(),
            best_params=params,
            best_value=jnp.float32(-jnp.inf if METRICS[self.run.select].higher_is_better else jnp.inf),
            best_step=jnp.int32(0),
        )

    def _objective(
        self, params: Any, batch: Batch, module: nn.Module, key_dropout: jax.Array
    ) -> tuple[jax.Array, Sums]:
        logits_btn = module.apply(
            {"params": params},
            batch.source_bs,
            shift_right(jnp.asarray(batch.target_bt)),
            deterministic=False,
            rngs={"dropout": key_dropout},
        )
        return cross_entropy(
            logits_btn, jnp.asarray(batch.target_bt), pad=PAD, label_smoothing=self.optim.label_smoothing
        )

    def gradient(
        self, params: Any, batch: Batch, module: nn.Module, key_dropout: jax.Array
    ) -> tuple[Any, jax.Array, Sums]:
        """Gradient of the mean objective per real target token of the whole batch, that mean, and the plain sums.

        With `optim.accumulate` = a the batch is taken in a equal parts, one after another. Parts are summed and
        divided once by the tokens of all: the result is that of the whole batch at a fraction of the memory.
        """
        grad_and_sums = jax.value_and_grad(
            lambda params, batch, key: self._objective(params, batch, module, key), has_aux=True
        )
        parts = self.optim.accumulate
        if parts == 1:
            (objective, sums), grads = grad_and_sums(params, batch, key_dropout)
        else:
            parts_batch = jax.tree.map(lambda x: x.reshape(parts, x.shape[0] // parts, *x.shape[1:]), batch)

            def add_part(carry: tuple, part: tuple) -> tuple[tuple, None]:
                index, part_batch = part
                key_part = jax.random.fold_in(key_dropout, index)
                (objective, sums), grads = grad_and_sums(params, part_batch, key_part)
                return jax.tree.map(jnp.add, carry, (grads, objective, sums)), None

            zero = (jax.tree.map(jnp.zeros_like, params), jnp.float32(0), Sums.zero())
            (grads, objective, sums), _ = jax.lax.scan(add_part, zero, (jnp.arange(parts), parts_batch))
        per_token = 1.0 / jnp.maximum(sums.tokens, 1)
        return jax.tree.map(lambda grad: grad * per_token, grads), objective * per_token, sums

    def change(self, grads: Any, state: State, knobs: Knobs) -> tuple[Any, Any]:
        """What the next update takes off the parameters if this is its gradient, and the optimizer's state after it."""
        direction, optimizer = self.optimizer.update(grads, state.optimizer, state.params)
        rate = knobs.learning_rate * schedule_factor(state.step, self.optim, self.run.steps)
        return jax.tree.map(lambda change: rate * change, direction), optimizer

    def update(self, state: State, batch: Batch, knobs: Knobs) -> State:
        """The state after one more update; unchanged but for its step counter when the run has diverged.

        Args:
          state: before the update.
          batch: source_bs [b, s], target_bt [b, t].
          knobs: of this run.
        """
        key_dropout = jax.random.fold_in(jax.random.fold_in(jax.random.key(knobs.seed), 1), state.step)
        grads, objective, sums = self.gradient(state.params, batch, self.at(knobs, state.step), key_dropout)
        change, optimizer = self.change(grads, state, knobs)
        params = jax.tree.map(lambda param, change: param - change, state.params, change)

        finite = jnp.isfinite(objective) & jnp.isfinite(optax.tree.norm(grads))
        alive = finite & (state.diverged_at == NEVER)
        after = state._replace(params=params, optimizer=optimizer, train=state.train + sums)
        kept = jax.tree.map(lambda new, old: jnp.where(alive, new, old), after, state)
        first_failure = ~finite & (state.diverged_at == NEVER)
        return kept._replace(
            step=state.step + 1, diverged_at=jnp.where(first_failure, state.step + 1, state.diverged_at)
        )

    def evaluate(self, params: Any, step: jax.Array, batch: Batch, knobs: Knobs) -> tuple[Evaluation, jax.Array]:
        """Counts on some sentences, teacher-forced and by greedy decoding, and the decoded tokens.

        Args:
          params: parameters. step: the update after which they were.
          batch: source_bs [b, s], target_bt [b, t], t <= max_target.
          knobs: of this run.

        Returns:
          (evaluation, token_bt [b, max_target] int32: decoded, EOS included, PAD after it).
        """
        module, variables = self.after(knobs, step), {"params": params}
        target_bt = jnp.asarray(batch.target_bt)
        encoded = module.apply(variables, batch.source_bs, deterministic=True, method="encode")
        logits_btn = module.apply(variables, encoded, shift_right(target_bt), deterministic=True, method="decode")
        _, sums = cross_entropy(logits_btn, target_bt, pad=PAD, label_smoothing=0.0)
        decoded = greedy(
            lambda cache, token_b: module.apply(variables, cache, token_b, method="step"),
            module.apply(variables, encoded, self.max_target, method="start"),
            batch_size=target_bt.shape[0],
            bos=BOS,
            eos=EOS,
            pad=PAD,
            max_length=self.max_target,
        )
        wanted_bt = jnp.pad(target_bt, ((0, 0), (0, self.max_target - target_bt.shape[1])), constant_values=PAD)
        real_b = jnp.any(target_bt != PAD, axis=1)
        right_b = jnp.all(decoded.tokens_bt == wanted_bt, axis=1)
        evaluation = Evaluation(
            sums=sums,
            sequences=jnp.sum(real_b, dtype=jnp.int32),
            sequences_correct=jnp.sum(real_b & right_b, dtype=jnp.int32),
            unfinished=jnp.sum(real_b & ~decoded.finished_b, dtype=jnp.int32),
        )
        return evaluation, decoded.tokens_bt

    def after_evaluation(self, state: State, valid: Evaluation) -> State:
        """The state with the best parameters so far kept (by `run.select`; the earlier of equals) and `train` zeroed.

        What a diverged run has is never the best; a run whose loss on `valid` is not finite has diverged.
        """
        metric = METRICS[self.run.select]
        counts = valid.counts()
        value = counts[metric.numerator].astype(jnp.float32) / counts[metric.denominator]
        better = (value > state.best_value) if metric.higher_is_better else (value < state.best_value)
        unbroken, finite = state.diverged_at == NEVER, jnp.isfinite(valid.sums.loss)
        better &= unbroken & finite
        return state._replace(
            diverged_at=jnp.where(unbroken & ~finite, state.step, state.diverged_at),
            best_params=jax.tree.map(lambda new, old: jnp.where(better, new, old), state.params, state.best_params),
            best_value=jnp.where(better, value, state.best_value),
            best_step=jnp.where(better, state.step, state.best_step),
            train=Sums.zero(),
        )
