"""Derivatives of every sample's loss along one direction of the parameters, and what must hold of them.

A score is the inner product of a sample's gradient with a direction, and the gradient is what reverse mode
says it is: a function's own rule may make it differ from what forward mode finds. So one gradient a sample is
taken wherever there is such a rule, and any method must satisfy the adjoint identity

    sum_j w_j s_j = <grad sum_j w_j loss_j, direction>    for all weights w,

whose right side is one plain reverse pass. And samples must not see one another: then a sample's loss has no
gradient of its own, and no score. The program says so where every operation in it can be followed. Where one
cannot, samples are replaced by copies of others: nothing of those that stay may move, neither their losses
nor their derivatives. Gradients of single samples cannot move: they are of another program, which does not
see the batch. Of these the identity is tried. Under `jax.jit` there are no values to try this on, and random
ones of the same shapes stand for them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_core._adapters import tolerance
from lai_jax._exact.methods import Batch, Leaves, Losses, Method, method_for, sample_by_sample
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.losses import arrays_of, batch_size, take
from lai_jax._program.model import datum, parameter, reader_of
from lai_jax._program.program import coarsest
from lai_jax._program.sample_axis import SampleAxis
from lai_jax._program.trial import compute_now, is_traced, numeric, yield_trials

_SINGLES = 6
_SPLITS = 3
"""Samples carry a code of so many bits: of up to 8 every two are once apart, of more most are."""


def directional_derivatives(
    losses: Losses, at: Leaves, batch: Batch, direction: Leaves
) -> tuple[jax.Array, jax.Array]:
    """Return every loss, and its derivative along a direction of the parameters: of samples, or of positions.

    Where values are concrete the adjoint identity is checked, and a method that fails it gives way to one
    gradient a sample. It is an error if samples are coupled, or if no method meets the identity.
    """
    method = method_for(losses, at, batch)
    check_uncoupled(method, losses, at, batch, direction)
    if method is not sample_by_sample and not is_traced(lambda at: losses(at, batch), at):
        error, within = _AdjointIdentity(method, losses).error(at, batch)
        if error > within:
            method = sample_by_sample
            _AdjointIdentity(method, losses).check(at, batch)
    return method(losses, at, batch, direction)


def check_uncoupled(method: Method, losses: Losses, at: Leaves, batch: Batch, direction: Leaves) -> None:
    """Raise if a sample's loss, or its derivative, moves with the other samples of the batch."""
    arrays, restored = arrays_of(batch)

    def compute(at: Leaves, arrays: Any) -> jax.Array:
        return losses(at, restored(arrays))

    def total(at: Leaves, arrays: Any) -> jax.Array:
        found = compute(at, arrays)
        return found if found.ndim == 1 else found.sum(1)

    followed, single = batch_size(batch[0]) < 2 or _follow(total, at, arrays), method is sample_by_sample
    if followed and not single:
        return
    traced = is_traced(lambda at, arrays, _: total(at, arrays), at, arrays, direction)
    given: Any = numeric(total) if traced else total
    both = jax.jit(lambda at, arrays, along: (given(at, arrays), method(given, at, arrays, along)[1]))
    identity = _AdjointIdentity(sample_by_sample, numeric(compute) if traced else compute, compiled=traced)
    moved, known = None, followed or not traced
    with compute_now(traced):
        trials = yield_trials(
            lambda both, arrays: total(both[0], arrays), (at, direction), arrays, traced=traced
        )
        for (here, along), numbers in trials:
            if single:
                identity.check(here, numbers)
            if followed:
                continue
            values, moved = _find_moved(both, here, numbers, along)
            known = known or bool(np.isfinite(values).any())
            if moved is not None:
                break
    if not known:
        msg = (
            "apply, loss: no rule follows every operation, so that samples may be coupled, and of random "
            "parameters and inputs, to try it on, no loss is a number; score outside of jax.jit"
        )
        raise UnexplainedError(msg)
    if moved is not None:
        msg = (
            f"apply, loss: the loss of sample {moved}, or its derivative, moves with the other samples: "
            "samples are coupled, and none has a gradient of its own; use running statistics (evaluation "
            "mode), a loss of each sample alone, or score what is coupled as one sample"
        )
        raise UnexplainedError(msg)


def _follow(losses: Callable[[Leaves, Leaves], jax.Array], at: Leaves, arrays: Leaves) -> bool:
    """Whether the program shows that every sample's loss is its own."""
    closed = jax.make_jaxpr(losses)(at, arrays)
    own = SampleAxis(0, batch_size(arrays))
    variables = closed.jaxpr.invars
    known = [parameter(i, variable.aval, trainable=True) for i, variable in enumerate(variables[: len(at)])]
    known += [datum(variable.aval, own.samples) for variable in variables[len(at) :]]
    try:
        program = reader_of().whole(closed, known)
    except UnexplainedError:
        return False
    return program.values[program.outputs[0]].sample_axis in (None, own)


def _find_moved(both: Any, at: Leaves, batch: Leaves, direction: Leaves) -> tuple[Any, int | None]:
    """Return the losses, and a sample that moves with others; None if none does."""
    found = both(at, batch, direction)
    values = np.asarray(found[0], np.float64)
    for kept, index in _yield_fixed(len(values)):
        other = both(at, take(batch, jnp.asarray(index)), direction)
        for here, there in zip(found, other, strict=True):
            first, second = (np.asarray(side, np.float64) for side in (here, there))
            finite = np.isfinite(first)
            within = float(jnp.finfo(here.dtype).eps) ** 0.625
            size = np.abs(first) + np.abs(first[finite]).mean() if finite.any() else np.inf
            apart = ~(np.abs(first - second) <= within * size) & kept & finite
            if apart.any():
                return values, int(np.argmax(apart))
    return values, None


def _yield_fixed(samples: int) -> Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield which samples stay where they are, and the batch's rows with copies of these for the others."""
    codes = np.random.default_rng(0).permutation(samples)
    # All rows copies of one, which crowd together wherever they are sent: the last of them comes last.
    for only in (*codes[:_SINGLES], samples - 1):
        yield np.arange(samples) == only, np.full(samples, only)
    for bit in range(min(_SPLITS, (samples - 1).bit_length())):
        for side in (0, 1):
            kept = (codes >> bit & 1) == side
            (rows,) = np.nonzero(kept)
            places = np.arange(samples)
            yield kept, np.where(kept, places, rows[places % len(rows)])


class _AdjointIdentity:
    """The adjoint identity of a method; `compiled` once for all numbers of the same shapes, or not at all.

    The direction is the gradient itself, each leaf of it of norm 1, so that nothing cancels on the right:
    sum_j w_j s_j = sum_leaf ||grad_leaf||. Weights have random signs, for the gradient of the losses' sum
    nearly vanishes where a model is trained. They are powers of two, with which a sample's own gradient takes
    the roundings that it takes in the sum. A rule that is not linear keeps the identity for weight 1 at most,
    with which a sample's own gradient is taken: where signs are too much for it, all weights are 1.
    """

    def __init__(self, method: Method, losses: Losses, *, compiled: bool = False) -> None:
        self.method, self.losses = method, losses
        self.sides = jax.jit(self._sides) if compiled else self._sides

    def error(self, at: Leaves, batch: Any) -> tuple[float, float]:
        """Return by how much it is missed, over the size of its terms, and by how much it may be."""
        program, form = jax.make_jaxpr(lambda at: self.losses(at, batch), return_shape=True)(at)
        draw = np.random.default_rng(0)  # the check's own weights: nothing that is computed depends on them
        sizes = draw.choice([0.5, 1.0, 2.0], form.shape) * draw.choice([-1.0, 1.0], form.shape)
        if self.method is not sample_by_sample:  # whose roundings are others anyway: no two are the same
            sizes *= draw.uniform(0.75, 1.25, form.shape)
        error = within = 0.0
        for weights in (sizes, np.ones(form.shape)):
            found, expected, size, count = map(float, self.sides(at, batch, jnp.asarray(weights, form.dtype)))
            if 0 < expected < float("inf"):  # a sample that is not finite has no derivative to check
                scale = max(expected, size)
                eps = coarsest(program.jaxpr)
                within = tolerance(eps, size, count, magnitude=expected) / scale
                error = abs(found - expected) / scale
            if self.method is not sample_by_sample or error <= within:
                break
        return error, within

    def check(self, at: Leaves, batch: Any) -> None:
        """Raise where it is missed: where gradients of single samples do not add up to that of the sum."""
        error, within = self.error(at, batch)
        if error > within:
            msg = (
                "apply, loss: the gradients of single samples and the gradient of their losses' sum "
                f"contradict each other (by {error:.1e} of its size), so that no score is right: a "
                "derivative rule depends on other samples of the batch, or a function is not the same for "
                "one sample as for many"
            )
            raise UnexplainedError(msg)

    def _sides(self, at: Leaves, batch: Any, weights: jax.Array) -> tuple[jax.Array, ...]:
        """Return both sides, and the size and the number of the terms on the left."""
        values, vjp = jax.vjp(lambda values: self.losses(values, batch), at)
        weights = jnp.where(jnp.isfinite(values), weights, 0)
        (gradient,) = vjp(weights)
        norms = [jnp.linalg.norm(leaf) for leaf in gradient]
        direction = [leaf / jnp.where(norm > 0, norm, 1) for leaf, norm in zip(gradient, norms, strict=True)]
        scores = self.method(self.losses, at, batch, direction)[1]
        # sums, which every process has: an array over several processes is on none of them as a whole
        terms = jnp.where(weights != 0, weights * scores, 0)
        return jnp.sum(terms), jnp.stack(norms).sum(), jnp.linalg.norm(terms), jnp.sum(weights * weights)
