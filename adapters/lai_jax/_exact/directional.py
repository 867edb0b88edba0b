"""Derivatives of every sample's loss along one direction of the parameters.

A score is the inner product of a sample's gradient with a direction, and the gradient is what reverse mode
says it is: a function's own rule may make it differ from what forward mode finds. So reverse mode is
transposed wherever there is such a rule, and any method must satisfy the adjoint identity

    sum_j w_j s_j = <grad sum_j w_j loss_j, direction>    for all weights w,

whose right side is one plain reverse pass.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lai_core._adapters import tolerance
from lai_jax._exact.coupling import check_uncoupled
from lai_jax._exact.methods import (
    Batch,
    Leaves,
    Losses,
    Method,
    forward_mode,
    sample_by_sample,
    transposed_reverse_mode,
)
from lai_jax._program.errors import UnexplainedError
from lai_jax._program.program import coarsest, programs_of
from lai_jax._program.rules.primitives import names

_OWN_REVERSE = names("custom_vjp_call custom_vjp_call_jaxpr custom_transpose_call linear_call custom_lin")


def directional_derivatives(
    losses: Losses, at: Leaves, batch: Batch, direction: Leaves
) -> tuple[jax.Array, jax.Array]:
    """Return every loss, and its derivative along a direction of the parameters: of samples, or of positions.

    Where values are concrete the adjoint identity is checked, and a method that fails it gives way to one
    gradient a sample. It is an error if samples are coupled, or if no method meets the identity.
    """
    method = method_for(losses, at, batch)

    def of_samples(values: Leaves, batch: Batch) -> jax.Array:
        found = losses(values, batch)
        return found if found.ndim == 1 else found.sum(1)

    check_uncoupled(method, of_samples, at, batch, direction)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((at, batch))):
        errors = {}
        for chosen in dict.fromkeys((method, sample_by_sample)):
            errors[chosen], within = _adjoint_error(chosen, losses, at, batch)
            if errors[chosen] <= within:
                return chosen(losses, at, batch, direction)
        msg = (
            "apply, loss: the gradients of single samples and the gradient of their losses' sum contradict "
            f"each other (by {errors[sample_by_sample]:.1e} of its size), so that no score is right: a "
            "derivative rule depends on other samples of the batch, or a function is not the same for one "
            "sample as for many"
        )
        raise UnexplainedError(msg)
    return method(losses, at, batch, direction)


def method_for(losses: Losses, at: Leaves, batch: Batch) -> Method:
    """Choose by the operations alone: nothing is run.

    Forward mode; the transpose of reverse mode where a function brings a reverse rule of its own; one
    gradient a sample where such a rule is not linear, as one that clips is not, and has no transpose.
    """
    if not _has_reverse_rule(jax.make_jaxpr(lambda values: losses(values, batch))(at).jaxpr):
        return forward_mode
    return transposed_reverse_mode if _is_linear(losses, at, batch) else sample_by_sample


def _adjoint_error(method: Method, losses: Losses, at: Leaves, batch: Batch) -> tuple[float, float]:
    """Return by how much a method misses the adjoint identity, over the size of its terms, and what it may.

    The direction is the gradient itself, each leaf of it of norm 1, so that nothing cancels on the right:
    sum_j w_j s_j = sum_leaf ||grad_leaf||. Weights have random signs, for the gradient of the losses' sum
    nearly vanishes where a model is trained. They are powers of two, with which a sample's own gradient takes
    the roundings that it takes in the sum. A rule that is not linear keeps the identity for weight 1 at most,
    with which a sample's own gradient is taken: where signs are too much for it, all weights are 1.
    """
    found = 0.0, 0.0
    for ones in (False, True):
        found = _adjoint_error_at(method, losses, at, batch, ones=ones)
        if method is not sample_by_sample or found[0] <= found[1]:
            break
    return found


def _adjoint_error_at(
    method: Method, losses: Losses, at: Leaves, batch: Batch, *, ones: bool
) -> tuple[float, float]:
    values, vjp = jax.vjp(lambda values: losses(values, batch), at)
    if isinstance(values, jax.core.Tracer):  # apply or loss hold what is traced
        return 0.0, 0.0
    draw = np.random.default_rng(0)  # the check's own weights: nothing that is computed depends on them
    sizes = draw.choice([0.5, 1.0, 2.0], values.shape) * draw.choice([-1.0, 1.0], values.shape)
    if method is not sample_by_sample:  # its roundings are others anyway, and no two weights are the same
        sizes *= draw.uniform(0.75, 1.25, values.shape)
    weights = jnp.where(
        jnp.isfinite(values), jnp.ones_like(values) if ones else sizes.astype(values.dtype), 0
    )
    (gradient,) = vjp(weights)
    norms = [jnp.linalg.norm(leaf) for leaf in gradient]
    expected = float(sum(norms))
    if not 0 < expected < float("inf"):  # a sample that is not finite has no derivative to check
        return 0.0, 0.0
    direction = [leaf / jnp.where(norm > 0, norm, 1) for leaf, norm in zip(gradient, norms, strict=True)]
    _, scores = method(losses, at, batch, direction)
    # sums, which every process has: an array over several processes is on none of them as a whole
    terms = jnp.where(weights != 0, weights * scores, 0)
    size, count = float(jnp.linalg.norm(terms)), float(jnp.sum(weights * weights))
    eps = coarsest(jax.make_jaxpr(lambda values: losses(values, batch))(at).jaxpr)
    within = tolerance(eps, size, count, magnitude=expected)
    scale = max(expected, size)
    return abs(float(jnp.sum(terms)) - expected) / scale, within / scale


def _has_reverse_rule(jaxpr: Any) -> bool:
    """Whether a function inside brings a reverse rule of its own."""
    return any(
        eqn.primitive.name in _OWN_REVERSE or any(map(_has_reverse_rule, programs_of(eqn)))
        for eqn in jaxpr.eqns
    )


def _is_linear(losses: Losses, at: Leaves, batch: Batch) -> bool:
    """Whether reverse mode is linear in the weights of the losses, by its operations; nothing is run."""
    try:
        jax.eval_shape(lambda point: transposed_reverse_mode(losses, point, batch, point)[1], at)
    except (NotImplementedError, RuntimeError, TypeError, AssertionError):  # as jax says it of an operation
        return False
    return True
