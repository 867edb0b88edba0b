"""Whether samples keep apart, tried on numbers: what no rule can tell of a program.

A batch's losses, and the gradient of their sum with random weights, must be those of its samples, each as a
batch of one. Weights have random signs, for the gradient of the losses' sum nearly vanishes where a model is
trained. Where values are traced, or held by `apply` or `loss` and traced, others stand for them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from lai_core._adapters import Block, sums_agree
from lai_jax._program.leaves import replace_leaves
from lai_jax._program.losses import is_batched
from lai_jax._program.program import coarsest, programs_of

Losses = Callable[[Sequence[Any], Sequence[Any]], jax.Array]
"""From the leaves of the parameters and the arrays of the data to one loss a sample."""

_DIGITS = 0.625  # of the type's, in which two ways to compute one number agree
_SEEN = 0.01  # of the largest loss: what a trial has to see, whatever the losses' unit is
_IN_SERIES = 16  # roundings of logits of order 1, of whose difference a fitted sample's loss is what is left
_MOVING = frozenset({"reshape", "squeeze", "broadcast_in_dim", "convert_element_type", "slice", "transpose"})
_COMPARING = {"eq": (0,), "ne": (0,), **dict.fromkeys(("lt", "le", "gt", "ge"), (-1, 0, 1))}
"""What is added to the number that a comparison is with, so that both answers come up."""
_SCALES = (1.0, 0.1, 4.0, 100.0)  # of the data in the first draws
_LARGE, _LARGEST = 3, 1e9  # which draw is of large data, and up to which loss it tells anything
_PARAMETERS = 8  # the number of the draws that are not of the data, which have those below


def _yield_trials(
    losses: Losses, parameters: list[Any], data: list[Any], *, traced: bool
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield numbers to try losses on: these, or where any is traced random ones like those that are.

    Data of several scales: what meets a threshold at one may not at another; samples that are all alike, and
    positions, which crowd together wherever they are sent; and positive parameters, for some have to be.
    Whole numbers are 0 and 1, and in every second trial what the losses compare them with, as a label that
    counts for nothing: where it is no index, losses are no numbers. At last one array after the other has
    bytes, as pixels are, in every second row. No two arrays have the same numbers, of whose difference
    nothing would be left.
    """
    if not traced:
        yield parameters, data
        return
    marks = _find_compared(jax.make_jaxpr(losses)(parameters, data).jaxpr)[len(parameters) :]

    def draw(number: int, scale: float = 1.0) -> list[Any]:
        whole = [sorted({0, 1} | own) if number % 2 else (0, 1) for own in marks]
        return [_concrete(leaf, (number, at), scale, whole[at]) for at, leaf in enumerate(data)]

    normal = [_concrete(leaf, (_PARAMETERS, at)) for at, leaf in enumerate(parameters)]
    for number, scale in enumerate(_SCALES):
        yield normal, draw(number, scale)
    yield [_positive(leaf, at) for at, leaf in enumerate(parameters)], draw(4)
    for number, own in ((5, slice(None)), (6, slice(1))):  # all positions of a sample, or the first alone
        drawn = draw(number)
        alike = [one[(slice(1), *[own] * (one.ndim - 2))] if is_batched(one) else one for one in drawn]
        yield normal, list(map(jnp.broadcast_to, alike, map(jnp.shape, drawn)))
    for at, leaf in enumerate(data):
        if isinstance(leaf, jax.core.Tracer) and jnp.issubdtype(leaf.dtype, jnp.integer) and is_batched(leaf):
            given = draw(7)
            yield normal, [*given[:at], _spread(leaf, at), *given[at + 1 :]]


def _find_compared(program: jex.Jaxpr) -> list[set[int]]:
    """Return of each input of a program the whole numbers that its entries are compared with."""
    found: list[set[int]] = [set() for _ in program.invars]
    place = {variable: index for index, variable in enumerate(program.invars)}
    for equation in program.eqns:
        of = [None if isinstance(one, jex.Literal) else place.get(one) for one in equation.invars]
        name = equation.primitive.name
        if name in _MOVING and of[0] is not None:
            place[equation.outvars[0]] = of[0]
        elif name in _COMPARING:
            for index, other in zip(of, reversed(equation.invars), strict=True):
                number = np.asarray(getattr(other, "val", None))  # that of a literal
                if index is not None and number.dtype.kind in "iu":
                    found[index] |= {int(number) + step for step in _COMPARING[name]}
        for inner in programs_of(equation):
            # of a branch the last inputs are those of its equation
            for index, own in zip(reversed(of), reversed(_find_compared(inner)), strict=False):
                if index is not None:
                    found[index] |= own
    return found


def keep_apart(losses: Losses, moving: Sequence[int], parameters: Sequence[Any], data: Sequence[Any]) -> bool:
    """Whether a batch's losses, and their gradient, are those of its samples, each as a batch of one."""
    parameters, data = list(parameters), list(data)
    held = jax.make_jaxpr(losses)(parameters, data).consts
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in (*parameters, *data, *held))
    trial = _Trial(_hold_numbers(losses) if traced else losses, moving)
    found: list[tuple[bool | None, float]] = []
    # inside `jax.jit` in a special context, which takes no `shard_map`
    with jax.ensure_compile_time_eval() if traced else nullcontext():
        for values, arrays in _yield_trials(losses, parameters, data, traced=traced):
            try:
                found.append(trial.apart(values, arrays))
            except Exception:  # whatever is said of a batch of one, or of a gradient that there is none of
                return False
    # Of large data some losses, or gradients, may be no numbers any more; others say how large losses are.
    large = found.pop(_LARGE) if traced else (None, 0.0)
    # Of fitted samples roundings may be all that is left, beside numbers that others leave.
    least = _SEEN * max(size for _, size in found)
    told = [apart for apart, size in found if size >= least] + [large[0]] * (large[1] <= _LARGEST)
    # Of losses that are no numbers nothing can be told; where they are a batch's own, nor have they scores.
    return False not in told and (True in told or not traced)


def _hold_numbers(losses: Losses) -> Losses:
    """Return losses with numbers for all that the function holds and that is traced."""

    def call(values: Sequence[Any], arrays: Sequence[Any]) -> jax.Array:
        closed, given = jax.make_jaxpr(losses)(values, arrays), [*values, *arrays]
        held = [_positive(own, place) for place, own in enumerate(closed.consts, len(given))]
        return jax.core.eval_jaxpr(closed.jaxpr, held, *given)[0]

    return call


class _Trial:
    """Compares a batch with its samples, compiled once for all numbers."""

    def __init__(self, losses: Losses, moving: Sequence[int]) -> None:
        self.losses, self.moving = losses, moving
        self.together, self.alone = jax.jit(self._run_batch), jax.jit(self._run_alone)

    def apart(self, values: list[Any], arrays: list[Any]) -> tuple[bool | None, float]:
        """Whether samples keep apart on these numbers, None where no loss is one; and the largest loss."""
        draw, samples = np.random.default_rng(0), len(_numbers(arrays))
        # The check's own weights: nothing that is computed depends on them. A derivative rule that is not
        # linear, as one that clips, keeps the sum for weights of 1 alone, with which scores are taken.
        signed = draw.uniform(0.5, 1.5, samples) * draw.choice([-1.0, 1.0], samples)
        size = 0.0
        for weights in (signed, np.ones(samples)):
            losses, gradient = self.together(values, arrays, weights)
            alone, summed = self.alone(values, arrays, weights)
            rounding = max(float(jnp.finfo(one.dtype).eps) for one in (losses, *gradient))
            finite = np.isfinite(alone)
            size = float(np.abs(np.asarray(alone, np.float64)).max(initial=0, where=finite))
            if not _equal(losses, alone, rounding**_DIGITS, _IN_SERIES * rounding):
                return False, size
            if not finite.any():
                return None, size
            eps = coarsest(jax.make_jaxpr(self.losses)(values, arrays).jaxpr)
            count = float((weights**2).sum(where=finite))
            if _match_sums(gradient, summed, eps, count, _measure_scale(arrays)):
                return True, size
        return False, size

    def _run_batch(self, values: list[Any], arrays: list[Any], weights: jax.Array) -> Any:
        def total(moved: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
            losses = self._losses(values, moved, arrays)
            return jnp.sum(jnp.where(jnp.isfinite(losses), weights.astype(losses.dtype) * losses, 0)), losses

        gradient, losses = jax.grad(total, has_aux=True)(self._point(values))
        return losses, gradient

    def _run_alone(self, values: list[Any], arrays: list[Any], weights: jax.Array) -> Any:
        point = self._point(values)

        def add_row(total: list[jax.Array], index: jax.Array) -> tuple[list[jax.Array], jax.Array]:
            single = [
                lax.dynamic_slice_in_dim(array, index, 1) if is_batched(array) else array for array in arrays
            ]
            loss, each = jax.value_and_grad(lambda own: self._losses(values, own, single)[0])(point)
            kept = [jnp.where(jnp.isfinite(loss), weights[index] * one, 0).astype(one.dtype) for one in each]
            return jax.tree.map(jnp.add, total, kept), loss

        summed, losses = lax.scan(add_row, jax.tree.map(jnp.zeros_like, point), _numbers(arrays))
        return losses, summed

    def _losses(self, values: list[Any], moved: list[jax.Array], arrays: list[Any]) -> jax.Array:
        return self.losses(replace_leaves(values, self.moving, moved), arrays)

    def _point(self, values: list[Any]) -> list[jax.Array]:
        return [jnp.asarray(values[leaf]) for leaf in self.moving]


def _numbers(arrays: list[Any]) -> jax.Array:
    return jnp.arange(next(len(array) for array in arrays if is_batched(array)))


def _equal(first: Any, second: Any, within: float, beside: float) -> bool:
    """Whether two arrays agree, beside the sizes of each entry and the largest; and on what is not finite."""
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    finite = np.isfinite(one)
    largest = np.abs(one).max(initial=0, where=finite)
    with np.errstate(invalid="ignore"):  # of two infinite losses
        near = np.abs(one - other) <= within * (np.abs(one) + largest) + min(beside, _SEEN * largest)
    return bool(np.where(finite, near, ~np.isfinite(other)).all())


def _match_sums(first: list[Any], second: list[Any], eps: float, count: float, scale: float) -> bool:
    """Whether two gradients agree but for the roundings of a sum; and on what is not finite."""
    blocks, norm = [], np.linalg.norm
    for pair in zip(first, second, strict=True):
        one, other = (np.asarray(each, np.float64) for each in pair)
        finite = np.isfinite(one)
        if np.isfinite(other[~finite]).any():
            return False
        blocks.append(Block(float(norm((one - other)[finite])), float(norm(one[finite])), eps))
    # a product with data of this scale, of which little is left where a unit saturates
    return all(sums_agree(blocks, count, scale * float(norm([block.size for block in blocks]))))


def _measure_scale(arrays: list[Any]) -> float:
    """Return how large numbers are at least 1, and at most those of the largest trial."""
    real = [one for one in arrays if jnp.issubdtype(one.dtype, jnp.floating)]
    sizes = [float(jnp.sqrt(jnp.square(one.astype(float)).mean(where=jnp.isfinite(one)))) for one in real]
    return min(max([1.0, *sizes]), max(_SCALES))


def _concrete(leaf: Any, seed: tuple[int, int], scale: float = 1.0, whole: Sequence[int] = (0, 1)) -> Any:
    """Return a leaf's numbers, or of a traced one normal numbers of a scale, others for each seed."""
    if not isinstance(leaf, jax.core.Tracer):
        return leaf
    draw = np.random.default_rng([leaf.size, *seed])  # the check's own values
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        own = jax.random.key(int(draw.integers(2**31)), impl=jax.random.key_impl(leaf))
        return jax.random.split(own, leaf.size).reshape(leaf.shape)
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        return jnp.asarray(scale * draw.standard_normal(leaf.shape), leaf.dtype)
    return jnp.asarray(draw.choice(whole, leaf.shape), leaf.dtype)


def _spread(leaf: Any, place: int) -> jax.Array:
    """Return whole numbers: bytes in every second row, 0 and 1 in the others."""
    most = min(256, int(jnp.iinfo(leaf.dtype).max))
    drawn = np.random.default_rng([leaf.size, place]).integers(most, size=leaf.shape)
    drawn[::2] %= 2
    return jnp.asarray(drawn, leaf.dtype)


def _positive(leaf: Any, place: int) -> Any:
    """Return a leaf's numbers, or of a traced one numbers around 1."""
    if not isinstance(leaf, jax.core.Tracer) or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return _concrete(leaf, (_PARAMETERS, place))
    return jnp.asarray(np.random.default_rng([leaf.size, place]).uniform(0.5, 1.5, leaf.shape), leaf.dtype)
