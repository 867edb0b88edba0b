r"""Appendix A: how output gradients travel down the layers, and what noise does on the way.

Layer l has pre-activations :math:`s^{(l)}`, each sample x its gradients :math:`g^{(l)}_x`, and
:math:`J^{(l)}_x`, with one row for each unit of layer l-1 and one column for each of layer l, maps
:math:`g^{(l)}_x` to :math:`g^{(l-1)}_x`: it is the transposed Jacobian of :math:`s^{(l)}` in
:math:`s^{(l-1)}`. A list called `jacobians`, `means` or `deviations` holds the matrices of the layers l+1,
..., L, in this order, so that their product is the operator :math:`A^{(l)}_x`. Leading axes of all arrays
broadcast. Arguments are the same everywhere, where a function says nothing else, and t = l+1, ..., L:

Parameters
----------
jacobians
    The :math:`J^{(t)}`.
means, deviations
    Systematic parts :math:`\bar J^{(t)}` and rests :math:`\Delta J^{(t)}`.
validation_deviations, training_deviations
    :math:`\Delta J^{(t)}` of z and of j.
laws
    Of each :math:`J^{(t)}`, the outcomes and their probabilities.
probabilities
    Of the outcomes, summing to 1 (not checked).
operator
    :math:`M^{(l)}_{zj}`.
gain
    c.
gains, perturbations
    :math:`\rho_t \ge \|\bar J^{(t)}\|_2` and :math:`\delta_t \ge \|\Delta J^{(t)}\|_2`.
output_gradient, output_gradients
    :math:`g^{(L)}`, fixed, or its outcomes.
validation, training
    :math:`g^{(L)}` of z and of j.
validation_norm, training_norm
    :math:`\|g^{(L)}_z\|` and :math:`\|g^{(L)}_j\|`.
clean, fluctuation
    :math:`g^\star` and :math:`\xi`.
layers
    From layer l up to layer L-1: each with the weights above it.
norms, similarity
    :math:`\|g^{(L)}_z\|^2 \|g^{(L)}_j\|^2` and :math:`\beta^{(L)}`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace, matmul, xp_of
from lai_core._theory.algebra import apply, check_chain, check_width, dot, multiply_transposed
from lai_core._theory.arrays import Gains, Numbers, Operator, Vector, checked

__all__ = [
    "RandomLayer",
    "backward_operator",
    "first_order_norm_bound",
    "first_order_perturbation",
    "gain_product",
    "gradient_decomposition",
    "isotropic_gain",
    "jacobian_noise_bound",
    "jacobian_noise_variance",
    "jacobian_split",
    "layer_jacobian",
    "layer_similarities",
    "measured_gains",
    "output_fluctuation",
    "perturbation_norm_bound",
    "printed_remainder",
    "propagated_moments",
    "random_weights_moments",
    "random_weights_variance",
    "remainder_terms",
    "separating_operator",
    "shared_signal",
    "similarity_decomposition",
    "similarity_operator",
    "similarity_variance_as_printed",
    "telescoping_perturbation",
    "trace_gain",
    "vjp_recursion",
]


# Layer Jacobians, their product from the last layer down, and what a rest beside their mean does to it.


Jacobian = Float[Array, "... d_below d_above"]
"""A matrix that carries the gradient of one layer down to a lower one."""


@checked
def layer_jacobian(
    weight: Float[Array, "... d_above d_below"], derivatives: Float[Array, "... d_below"], /
) -> Jacobian:
    r"""Make one layer's backward operator, :math:`J^{(l)} = \mathrm{Diag}(\phi'(s^{(l-1)}))\,W^{(l)\top}`.

    Implements :eq:`vjp-recursion`, for a layer :math:`s^{(l)} = W^{(l)}\phi(s^{(l-1)}) + b`.

    Parameters
    ----------
    weight
        :math:`W^{(l)}`.
    derivatives
        :math:`\phi'(s^{(l-1)})` of each sample.
    """
    return derivatives[..., None] * xp_of(weight).matrix_transpose(weight)


@checked
def vjp_recursion(
    jacobians: Sequence[Jacobian], output_gradient: Float[Array, "... d_L"], /
) -> tuple[Float[Array, "... _"], ...]:
    r"""Compute the gradients of the layers l, ..., L by :math:`g^{(t-1)} = J^{(t)} g^{(t)}`.

    Implements :eq:`vjp-recursion`. It holds for t = 2, ..., L (printed from 1, where there is no
    :math:`g^{(0)}`), where :math:`s^{(t-1)}` reaches the loss through :math:`s^{(t)}` alone.
    """
    xp = xp_of(output_gradient)
    check_chain("jacobians", jacobians)
    check_width("output_gradient", output_gradient, jacobians[-1], "the last Jacobian")
    gradients = [output_gradient]
    for jacobian in reversed(jacobians):
        gradients.append(apply(xp, jacobian, gradients[-1]))
    return tuple(reversed(gradients))


@checked
def backward_operator(jacobians: Sequence[Jacobian], /) -> Float[Array, "... d_l d_L"]:
    r"""Carry the last layer's gradient to layer l: :math:`A^{(l)} = J^{(l+1)} \cdots J^{(L)}`.

    Implements :eq:`app-A-prod`, for a chain of layers; with a skip around a layer it is
    `separating_operator` that holds.
    """
    return _chain_product("jacobians", jacobians)


def _chain_product(name: str, matrices: Sequence[Array]) -> Array:
    check_chain(name, matrices)
    return reduce(partial(matmul, xp_of(matrices[0])), matrices)


@checked
def separating_operator(
    edges: Mapping[tuple[int, int], Jacobian], /, *, layer: int, last: int
) -> Float[Array, "... d_l d_L"]:
    r"""Carry the last layer's gradient to layer l along every path, skips included.

    Implements :eq:`separating-operator`: :math:`A^{(l)} = (\partial s^{(L)} / \partial s^{(l)})^\top`,
    which needs only that every path from :math:`s^{(l)}` to the loss passes through :math:`s^{(L)}`.
    It is the sum over paths of the products of their edges,
    :math:`A^{(l)} = \sum_t E^{(l,t)} A^{(t)}` with :math:`A^{(L)} = I`.

    Parameters
    ----------
    edges
        For the layers k < t between which there is one, the direct derivative
        :math:`E^{(k,t)} = (\partial s^{(t)} / \partial s^{(k)})^\top`, every other layer's
        pre-activations held fixed, under the key `(k, t)`.
    layer, last
        The numbers l and L of the first and the last layer.

    Raises
    ------
    ValueError
        If an edge does not lead upward, or no path leads from `layer` to `last`.
    """
    xp = xp_of(next(iter(edges.values())))
    _check_edges(edges)
    # From the top down: A^(L) = I, and A^(k) is the sum of E^(k,t) A^(t) over the edges that leave k.
    reached: dict[int, Array] = {}
    for start in range(last - 1, layer - 1, -1):
        total: Array = edges.get((start, last))
        for stop in range(start + 1, last):
            if (start, stop) in edges and stop in reached:
                path = matmul(xp, edges[start, stop], reached[stop])
                total = path if total is None else total + path
        if total is not None:
            reached[start] = total
    if layer not in reached:
        msg = f"edges: expected a path from layer {layer} to layer {last}, got the edges {sorted(edges)}"
        raise ValueError(msg)
    return reached[layer]


def _check_edges(edges: Mapping[tuple[int, int], Array]) -> None:
    widths: dict[int, int] = {}
    for (start, stop), matrix in edges.items():
        if start >= stop:
            msg = f"edges: expected keys (k, t) with k < t, got {(start, stop)}"
            raise ValueError(msg)
        shape = tuple(matrix.shape)
        expected = (widths.setdefault(start, shape[-2]), widths.setdefault(stop, shape[-1]))
        if shape[-2:] != expected:
            msg = f"edges[{(start, stop)}]: expected shape (..., {expected[0]}, {expected[1]}), got {shape}"
            raise ValueError(msg)


@checked
def jacobian_split(
    jacobians: Float[Array, "outcomes d_below d_above"], probabilities: Float[Array, " outcomes"], /
) -> tuple[Float[Array, "d_below d_above"], Float[Array, "outcomes d_below d_above"]]:
    r"""Split a random Jacobian into its mean and its centred rest, :math:`J = \bar J + \Delta J`.

    Implements :eq:`jacobian-split`, with :math:`\bar J := E[J]`: of all systematic parts it is the
    only one for which :math:`E[\Delta J] = 0`, which the variances below need.

    Parameters
    ----------
    jacobians
        The outcomes.
    """
    mean = xp_of(jacobians).sum(jacobians * probabilities[:, None, None], axis=0)
    return mean, jacobians - mean


@checked
def first_order_perturbation(means: Sequence[Jacobian], deviations: Sequence[Jacobian], /) -> Operator:
    r"""Add up the terms of :math:`\Delta A^{(l)}` with one rest, as printed.

    Implements :eq:`app-DeltaA`: :math:`\sum_t \bar J^{(l+1)} \cdots \bar J^{(t-1)} \Delta J^{(t)}
    \bar J^{(t+1)} \cdots \bar J^{(L)}`. With n layers it leaves out the :math:`2^n - 1 - n` terms with
    two rests and more; `telescoping_perturbation` has them all.
    """
    _check_pairs(means, deviations, "deviations")
    return _replace_one_by_one(means, deviations, means)


@checked
def telescoping_perturbation(means: Sequence[Jacobian], deviations: Sequence[Jacobian], /) -> Operator:
    r"""Compute the whole change of the product, :math:`\Delta A^{(l)} = A^{(l)} - \bar A^{(l)}`.

    Implements :eq:`telescoping`: :math:`\sum_t \bar J^{(l+1)} \cdots \bar J^{(t-1)} \Delta J^{(t)}
    J^{(t+1)} \cdots J^{(L)}`, without remainder: one factor after the other is replaced.
    """
    return _product_change(means, deviations)


def _product_change(means: Sequence[Array], deviations: Sequence[Array], name: str = "deviations") -> Array:
    """Return the change of the product, of rests in an argument of this name."""
    _check_pairs(means, deviations, name)
    jacobians = [mean + rest for mean, rest in zip(means, deviations, strict=True)]
    return _replace_one_by_one(means, deviations, jacobians)


@checked
def gain_product(gains: Gains, /, *, first: int, last: int) -> Numbers:
    r"""Multiply the gains of consecutive layers, :math:`\rho_{u \to v} = \prod_{t=u}^v \rho_t`.

    Implements :eq:`gain-products`. The paper leaves :math:`\rho_t` undefined; here it is an upper
    bound on :math:`\|\bar J^{(t)}\|_2` (unrelated to the decay rate of assumption A1).

    Parameters
    ----------
    first, last
        Places in `gains` of the first and the last factor, from 0.

    Returns
    -------
    array
        1 if `first > last`.
    """
    count = gains.shape[-1]
    check_number("first", first, at_least=0, at_most=count)
    check_number("last", last, at_least=-1, at_most=count - 1)
    return xp_of(gains).prod(gains[..., first : max(first, last + 1)], axis=-1)


@checked
def first_order_norm_bound(gains: Gains, perturbations: Gains, /) -> Numbers:
    r"""Compute the right-hand side of the printed bound on :math:`\|\Delta A^{(l)}\|`.

    Implements :eq:`app-DeltaA-bound`: :math:`\sum_t \rho_{l+1 \to t-1}\, \delta_t\, \rho_{t+1 \to L}`.
    It bounds the norm of `first_order_perturbation`. It does not bound :math:`\|\Delta A^{(l)}\|`, not
    up to any constant: `perturbation_norm_bound` does.
    """
    xp, count = xp_of(gains), gains.shape[-1]
    total = perturbations[..., 0] * xp.prod(gains[..., 1:], axis=-1)
    for t in range(1, count):
        below, above = xp.prod(gains[..., :t], axis=-1), xp.prod(gains[..., t + 1 :], axis=-1)
        total = total + below * perturbations[..., t] * above
    return total


@checked
def perturbation_norm_bound(gains: Gains, perturbations: Gains, /) -> Numbers:
    r"""Bound :math:`\|\Delta A^{(l)}\|_2` by what holds.

    Implements :eq:`perturbation-norm`: :math:`\prod_t (\rho_t + \delta_t) - \prod_t \rho_t`, attained by
    non-negative scalars.
    """
    # With P = prod rho and D = prod (rho + delta) - P so far, one layer more gives
    # D' = (D + P) (rho + delta) - P rho = D (rho + delta) + P delta: no difference, hence no cancellation.
    bound, product = perturbations[..., 0], gains[..., 0]
    for t in range(1, gains.shape[-1]):
        gain, perturbation = gains[..., t], perturbations[..., t]
        bound = bound * (gain + perturbation) + product * perturbation
        product = product * gain
    return bound


def _check_pairs(means: Sequence[Array], deviations: Sequence[Array], name: str) -> None:
    """Raise unless the means multiply, and there is one rest of the same shape for each."""
    if len(deviations) != len(means):
        msg = f"{name}: expected {len(means)} matrices as means has, got {len(deviations)}"
        raise ValueError(msg)
    check_chain("means", means)
    for index, (mean, rest) in enumerate(zip(means, deviations, strict=True)):
        if rest.shape[-2:] != mean.shape[-2:]:
            rows, columns = mean.shape[-2:]
            msg = (
                f"{name}[{index}]: expected shape (..., {rows}, {columns}) as means[{index}] has, "
                f"got {tuple(rest.shape)}"
            )
            raise ValueError(msg)


def _replace_one_by_one(before: Sequence[Array], changed: Sequence[Array], after: Sequence[Array]) -> Array:
    """Return the sum over t of `before[:t] changed[t] after[t + 1:]`, by one sweep from below."""
    xp = xp_of(before[0])
    # With P = before[:t] and S the sum so far, one matrix more gives S' = S after[t] + P changed[t].
    total, product = changed[0], before[0]
    for left, middle, right in zip(before[1:], changed[1:], after[1:], strict=True):
        total = matmul(xp, total, right) + matmul(xp, product, middle)
        product = matmul(xp, product, left)
    return total


# Random weights, shared by both samples: how a layer's similarity spreads with depth and width.


@dataclass(frozen=True)
class RandomLayer:
    r"""One layer of independent normal weights, and how many of its units pass gradients.

    Parameters
    ----------
    variance
        Variance v of each weight between this layer and the one above.
    active_pairs
        :math:`E[n_z n_j]`, the units active for z times those active for j.
    both_active
        :math:`E[n_{zj}]`, the units active for both.
    both_active_squared
        :math:`E[n_{zj}^2]`.
    """

    variance: float
    active_pairs: float
    both_active: float
    both_active_squared: float

    @classmethod
    def linear(cls, *, width: int, variance: float) -> "RandomLayer":
        """Make a layer whose every unit passes gradients."""
        return cls(variance, width**2, width, width**2)

    @classmethod
    def gated(cls, *, width: int, variance: float, each: float, both: float) -> "RandomLayer":
        """Make a layer whose units are active independently of each other.

        Parameters
        ----------
        width
            Number of units.
        variance
            Variance of each weight.
        each
            Probability that a unit is active for one sample.
        both
            Probability that it is active for both.
        """
        check_number("each", each, at_least=0.0, at_most=1.0)
        check_number("both", both, at_least=0.0, at_most=each)
        others = width * (width - 1)
        return cls(variance, width * both + others * each**2, width * both, width * both + others * both**2)


@checked
def random_weights_moments(
    layers: Sequence[RandomLayer], norms: Numbers, squares: Numbers, /
) -> tuple[Numbers, Numbers]:
    r"""Carry :math:`P = E\|g_z\|^2\|g_j\|^2` and :math:`Q = E\beta^2` down through random layers.

    Implements :eq:`random-weights-variance`, its recursion:
    :math:`P' = v^2 (E[n_z n_j] P + 2 E[n_{zj}] Q)` and
    :math:`Q' = v^2 (E[n_{zj}] P + (E[n_{zj}] + E[n_{zj}^2]) Q)`, exact for normal weights that are
    independent of the gates and of what comes from above.

    Parameters
    ----------
    norms, squares
        P and Q of the last layer.
    """
    for layer in reversed(layers):
        v2, both = layer.variance**2, layer.both_active
        norms, squares = (
            v2 * (layer.active_pairs * norms + 2 * both * squares),
            v2 * (both * norms + (both + layer.both_active_squared) * squares),
        )
    return norms, squares


@checked
def random_weights_variance(layers: Sequence[RandomLayer], norms: Numbers, similarity: Numbers, /) -> Numbers:
    r"""Compute the variance of a layer's similarity over random weights, given the last layer's gradients.

    Implements :eq:`random-weights-variance`: :math:`Q_l - (\prod_t v_t E[n_{zj,t}])^2 \beta^{(L)2}`. In
    one layer with fixed gates, the variance relative to the squared mean is
    :math:`(1 + 1/\cos^2) / n_{zj}`.
    """
    _, squares = random_weights_moments(layers, norms, similarity * similarity)
    mean: Any = similarity
    for layer in layers:
        mean = mean * (layer.variance * layer.both_active)
    return squares - mean * mean


# From vectors to scalars: a layer's similarity, its operator, its gain, and the remainder.


@checked
def layer_similarities(
    validation: Sequence[Float[Array, "... d_l"]], training: Sequence[Float[Array, "... d_l"]], /
) -> Float[Array, "L ..."]:
    r"""Compute the similarity of two samples' gradients in each layer.

    Implements :eq:`layer-gradients`: :math:`\beta^{(l)}_{zj} = g^{(l)\top}_z g^{(l)}_j`, with
    :math:`g^{(l)}` the gradient of the one loss in the pre-activations :math:`s^{(l)}`.

    Parameters
    ----------
    validation, training
        :math:`g^{(1)}, \dots, g^{(L)}` of z and of j.
    """
    if len(training) != len(validation):
        msg = f"training: expected {len(validation)} layers as validation has, got {len(training)}"
        raise ValueError(msg)
    pairs = list(zip(validation, training, strict=True))
    for index, (g_z, g_j) in enumerate(pairs):
        check_width(f"training[{index}]", g_j, g_z, f"validation[{index}]")
    xp = xp_of(validation[0])
    return xp.stack([dot(xp, g_z, g_j) for g_z, g_j in pairs])


@checked
def shared_signal(validation: Vector, training: Vector, /) -> Numbers:
    r"""Compute the similarity of the last layer's gradients, :math:`\beta^\star = g^{(L)\top}_z g^{(L)}_j`.

    Implements :eq:`shared-signal` and :eq:`app-beta-L`: it is :math:`\beta^{(L)}` by definition. For
    noisy :math:`g^{(L)} = g^\star + \xi` it contains the noise of the output layer:
    :math:`E\beta^\star = g^\star_z \cdot g^\star_j + E[\xi_z \cdot \xi_j]`.
    """
    return dot(xp_of(validation), validation, training)


@checked
def output_fluctuation(
    output_gradients: Float[Array, "outcomes d_L"], probabilities: Float[Array, " outcomes"], /
) -> tuple[Float[Array, " d_L"], Float[Array, "outcomes d_L"]]:
    r"""Split a random output gradient into mean and fluctuation, :math:`g^{(L)} = g^\star + \xi`.

    Implements :eq:`output-fluctuation`; :math:`E\xi = 0` leaves no choice but
    :math:`g^\star = E[g^{(L)}]`.
    """
    mean = xp_of(output_gradients).sum(output_gradients * probabilities[:, None], axis=0)
    return mean, output_gradients - mean


@checked
def gradient_decomposition(
    means: Sequence[Jacobian], deviations: Sequence[Jacobian], clean: Vector, fluctuation: Vector, /
) -> tuple[Float[Array, "... d_l"], ...]:
    r"""Split layer l's gradient in four: signal and noise, through mean and rest of the operator.

    Implements :eq:`app-g-l-decomp`: :math:`\bar A g^\star,\ \bar A \xi,\ \Delta A g^\star,\ \Delta A \xi`
    with the exact :math:`\Delta A` of `telescoping_perturbation`; they add up to
    :math:`A^{(l)} g^{(L)}`, which the printed first-order :math:`\Delta A` misses.
    """
    mean, rest = _chain_product("means", means), _product_change(means, deviations)
    check_width("clean", clean, mean, "the last Jacobian")
    xp = xp_of(mean)
    return tuple(apply(xp, operator, vector) for operator in (mean, rest) for vector in (clean, fluctuation))


@checked
def similarity_operator(
    validation: Sequence[Jacobian], training: Sequence[Jacobian], /
) -> Float[Array, "... d_L d_L"]:
    r"""Turn layer l's similarity into a bilinear form of the last layer's gradients.

    Implements :eq:`app-M-def`: :math:`M^{(l)}_{zj} = A^{(l)\top}_z A^{(l)}_j`, so that
    :math:`\beta^{(l)}_{zj} = g^{(L)\top}_z M^{(l)}_{zj} g^{(L)}_j`.

    Parameters
    ----------
    validation, training
        :math:`J^{(l+1)}, \dots, J^{(L)}` of z and of j.
    """
    return _product(_chain_product("validation", validation), _chain_product("training", training))


@checked
def _product(validation: Operator, training: Operator, /) -> Float[Array, "... d_L d_L"]:
    return multiply_transposed(xp_of(validation), validation, training)


@checked
def isotropic_gain(means: Sequence[Jacobian], /) -> Numbers:
    r"""Compute layer l's gain with the printed dimension, :math:`\mathrm{tr}(\bar M^{(l)}) / d_l`.

    Implements :eq:`isotropic-gain`. :math:`\bar M^{(l)}` is :math:`d_L \times d_L`, so that this is
    :math:`d_L / d_l` times `trace_gain`, the multiple of the identity nearest to it.
    """
    operator = _chain_product("means", means)
    return _trace(operator) / operator.shape[-2]


@checked
def trace_gain(means: Sequence[Jacobian], /) -> Numbers:
    r"""Compute layer l's gain, :math:`c_l = \mathrm{tr}(\bar M^{(l)}) / d_L`.

    Implements :eq:`trace-gain`: of all c it minimises :math:`\|\bar M^{(l)} - cI\|_F`, leaves a
    traceless rest, and is 1 where :math:`\bar A^{(l)}` keeps lengths.
    """
    operator = _chain_product("means", means)
    return _trace(operator) / operator.shape[-1]


def _trace(operator: Array) -> Array:
    return xp_of(operator).sum(operator * operator, axis=(-2, -1))  # tr(A'A)


@checked
def similarity_decomposition(
    operator: Float[Array, "... d_L d_L"], gain: Numbers, validation: Vector, training: Vector, /
) -> tuple[Numbers, Numbers]:
    r"""Split :math:`\beta^{(l)} = c_l \beta^\star + \varepsilon^{(l)}` into its two terms.

    Implements :eq:`app-beta-decomp`. True of every number c, since
    :math:`\varepsilon^{(l)} = g^{(L)\top}_z (M^{(l)} - cI) g^{(L)}_j` is whatever remains: it says
    something only once c is fixed (`trace_gain`).
    """
    xp = xp_of(operator)
    signal = gain * dot(xp, validation, training)
    return signal, dot(xp, validation, apply(xp, operator, training) - gain[..., None] * training)


@checked
def remainder_terms(
    means: Sequence[Jacobian],
    validation_deviations: Sequence[Jacobian],
    training_deviations: Sequence[Jacobian],
    gain: Numbers,
    validation: Vector,
    training: Vector,
    /,
) -> Float[Array, "4 ..."]:
    r"""Write the remainder :math:`\varepsilon^{(l)}` out: anisotropy of the mean, and the rests' three terms.

    Implements :eq:`remainder`: :math:`g_z^\top \bar E g_j,\ g_z^\top \bar A^\top \Delta A_j g_j,\
    g_z^\top \Delta A_z^\top \bar A g_j,\ g_z^\top \Delta A_z^\top \Delta A_j g_j` with
    :math:`\bar E = \bar M - c I` and g the last layer's gradients, noise included. They add up to
    :math:`\varepsilon^{(l)}`; nothing in :math:`\xi` is left to add.
    """
    operators = _operators(means, validation_deviations, training_deviations)
    return _four_terms(*operators, gain, validation, training)


@checked
def printed_remainder(
    means: Sequence[Jacobian],
    validation_deviations: Sequence[Jacobian],
    training_deviations: Sequence[Jacobian],
    gain: Numbers,
    validation_parts: tuple[Vector, Vector],
    training_parts: tuple[Vector, Vector],
    /,
) -> Numbers:
    r"""Compute the printed remainder: the four terms, and then the terms in :math:`\xi` once more.

    Implements :eq:`app-eps-explicit`. The four terms contain :math:`\xi` already, since they are
    written with the noisy :math:`g^{(L)}`; the terms "involving :math:`\xi`" of the product of the two
    decompositions, :math:`g_z^\top M g_j - g^{\star\top}_z M g^\star_j`, are counted twice.

    Parameters
    ----------
    validation_parts, training_parts
        :math:`(g^\star, \xi)` of z and of j.
    """
    operators = _operators(means, validation_deviations, training_deviations)
    clean, noisy = zip(*((star, star + xi) for star, xi in (validation_parts, training_parts)), strict=True)
    nothing = gain * 0.0  # without a gain the four terms are the whole form g_z' M g_j
    remainder = _four_terms(*operators, gain, *noisy)
    twice = _four_terms(*operators, nothing, *noisy) - _four_terms(*operators, nothing, *clean)
    return xp_of(remainder).sum(remainder + twice, axis=0)


def _operators(
    means: Sequence[Array], validation_deviations: Sequence[Array], training_deviations: Sequence[Array]
) -> tuple[Array, Array, Array]:
    """Return the mean operator, and the rests of z and of j."""
    sides = {"validation": validation_deviations, "training": training_deviations}
    mean = _chain_product("means", means)
    return mean, *(_product_change(means, rests, f"{side}_deviations") for side, rests in sides.items())


@checked
def _four_terms(
    mean: Operator,
    validation_rest: Operator,
    training_rest: Operator,
    gain: Numbers,
    validation: Vector,
    training: Vector,
    /,
) -> Float[Array, "4 ..."]:
    xp = xp_of(mean)
    # beta^(l) = (A g_z + D_z g_z)' (A g_j + D_j g_j) with A the mean operator and D the rest:
    mean_z, mean_j = apply(xp, mean, validation), apply(xp, mean, training)
    noise_z, noise_j = apply(xp, validation_rest, validation), apply(xp, training_rest, training)
    terms = [
        dot(xp, mean_z, mean_j) - gain * dot(xp, validation, training),  # g_z' (A'A - cI) g_j
        dot(xp, mean_z, noise_j),  # g_z' A' D_j g_j
        dot(xp, noise_z, mean_j),  # g_z' D_z' A g_j
        dot(xp, noise_z, noise_j),  # g_z' D_z' D_j g_j
    ]
    return xp.stack(list(xp.broadcast_arrays(*terms)))


# Independent noise in the Jacobians: the exact variance of a similarity, and its bound.


Law = tuple[Float[Array, "outcomes d_below d_above"], Float[Array, " outcomes"]]
"""A random Jacobian: its outcomes and their probabilities."""


@checked
def propagated_moments(
    laws: Sequence[Law], output_gradient: Float[Array, " d_L"], /
) -> tuple[Float[Array, " d_l"], Float[Array, "d_l d_l"]]:
    r"""Compute mean and covariance of :math:`g^{(l)} = A^{(l)} g^{(L)}` for independent random Jacobians.

    Implements :eq:`jacobian-noise-variance`, the moments it needs, layer by layer from above:
    :math:`E[h'] = E[J]\,E[h]` and :math:`E[h'h'^\top] = E[J\,E[hh^\top]\,J^\top]`.
    """
    xp = xp_of(output_gradient)
    outcomes = [matrices for matrices, _ in laws]
    check_chain("laws", outcomes)
    check_width("output_gradient", output_gradient, outcomes[-1], "the last Jacobian")
    mean = output_gradient
    covariance = mean[:, None] * mean[None, :] * 0.0
    for matrices, probabilities in reversed(laws):
        # h' = J h with J = M + D independent of h:  Cov h' = M Cov(h) M' + E[D E[h h'] D']
        average, rests = _centre(xp, matrices, probabilities)
        second = covariance + mean[:, None] * mean[None, :]
        carried = matmul(xp, average, matmul(xp, covariance, xp.matrix_transpose(average)))
        added = matmul(xp, rests, matmul(xp, second, xp.matrix_transpose(rests)))
        covariance = carried + xp.sum(probabilities[:, None, None] * added, axis=0)
        mean = apply(xp, average, mean)
    return mean, covariance


@checked
def jacobian_noise_variance(
    validation_mean: Float[Array, "... d_l"],
    validation_covariance: Float[Array, "... d_l d_l"],
    training_mean: Float[Array, "... d_l"],
    training_covariance: Float[Array, "... d_l d_l"],
    /,
) -> Numbers:
    r"""Compute the exact variance of a layer's similarity, given both output gradients.

    Implements :eq:`jacobian-noise-variance`: :math:`\mathrm{Var}[\beta^{(l)}|g] = u^\top S_j u +
    w^\top S_z w + \mathrm{tr}(S_z S_j)`, where u, w are the means and :math:`S_z, S_j` the
    covariances of :math:`A_z g_z` and :math:`A_j g_j`, the noise of z independent of that of j. No
    other assumption: any number of layers, any dependence between them.

    Parameters
    ----------
    validation_mean, validation_covariance
        u and :math:`S_z`, as `propagated_moments` gives them.
    training_mean, training_covariance
        w and :math:`S_j`.
    """
    xp = xp_of(validation_mean)
    noise_j = dot(xp, validation_mean, apply(xp, training_covariance, validation_mean))  # u' S_j u
    noise_z = dot(xp, training_mean, apply(xp, validation_covariance, training_mean))  # w' S_z w
    both = validation_covariance * training_covariance  # of which the sum is tr(S_z S_j), S_j being symmetric
    return noise_j + noise_z + xp.sum(both, axis=(-2, -1))


@checked
def measured_gains(laws: Sequence[Law], /) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Compute gain and noise gain of each random Jacobian, in the sense of the bound.

    Implements :eq:`jacobian-noise-bound`, its constants: :math:`\rho_t = \|\bar J^{(t)}\|_2` and
    :math:`\sigma_t = \|E[\Delta J^{(t)\top}\Delta J^{(t)}]\|_2^{1/2}`.
    """
    xp = xp_of(laws[0][0])
    check_chain("laws", [matrices for matrices, _ in laws])
    gains, noise = [], []
    for matrices, probabilities in laws:
        average, rests = _centre(xp, matrices, probabilities)
        energy = xp.sum(probabilities[:, None, None] * multiply_transposed(xp, rests, rests), axis=0)
        gains.append(xp.linalg.matrix_norm(average, ord=2))
        noise.append(xp.sqrt(xp.linalg.matrix_norm(energy, ord=2)))
    return xp.stack(gains), xp.stack(noise)


@checked
def jacobian_noise_bound(
    gains: Gains, noise_gains: Gains, validation_norm: Numbers, training_norm: Numbers, /
) -> Numbers:
    r"""Bound the variance of a layer's similarity under independent Jacobian noise.

    Implements :eq:`jacobian-noise-bound`: :math:`(V^2 - R^2) \|g_z\|^2 \|g_j\|^2` with
    :math:`R = \prod_t \rho_t^2` and :math:`V = \prod_t (\rho_t^2 + \sigma_t^2)`, an equality for layers
    of one unit. Exponential in depth where :math:`\rho = 1`; decaying where
    :math:`\rho^2 + \sigma^2 < 1`.

    Parameters
    ----------
    noise_gains
        :math:`\sigma_t`, with :math:`\sigma_t^2 \ge \|E[\Delta J^{(t)\top}\Delta J^{(t)}]\|_2`.
    """
    kept, added = gains * gains, noise_gains * noise_gains
    # excess = V - R, without cancellation: V' - R' = (V - R) (rho^2 + sigma^2) + R sigma^2
    R, excess = kept[..., 0], added[..., 0]
    for t in range(1, gains.shape[-1]):
        excess = excess * (kept[..., t] + added[..., t]) + R * added[..., t]
        R = R * kept[..., t]
    scale = validation_norm * training_norm
    return excess * (excess + 2.0 * R) * scale * scale  # V^2 - R^2 = (V - R) (V - R + 2 R)


@checked
def similarity_variance_as_printed(
    gain: Numbers,
    signal_variance: Numbers,
    kappa: Numbers,
    gains: Gains,
    noise_energies: Gains,
    anisotropy: Numbers,
    validation_norm: Numbers,
    training_norm: Numbers,
    /,
) -> Numbers:
    r"""Compute the printed schematic bound on a layer's similarity, without its cross terms.

    Implements :eq:`app-var-beta`: :math:`c^2\,\mathrm{Var}\,\beta^\star + \kappa \|g_z\|^2 \|g_j\|^2
    (\|\bar E\|_F^2 + \sum_t \rho_{l+1 \to t-1}^2 \rho_{t+1 \to L}^2\, E\|\Delta J^{(t)}\|_F^2)`. No
    :math:`\kappa` makes it a bound. For fixed gradients, layers of one unit and
    :math:`\kappa = 2\prod_t \rho_t^2` it has the terms of the exact variance that are of first order
    in the noise energies; `jacobian_noise_bound` holds.

    Parameters
    ----------
    gain, signal_variance, kappa
        c, :math:`\mathrm{Var}\,\beta^\star` and :math:`\kappa`.
    noise_energies
        :math:`E\|\Delta J^{(t)}\|_F^2`.
    anisotropy
        :math:`\|\bar E^{(l)}\|_F^2`.
    """
    energy = anisotropy + first_order_norm_bound(gains * gains, noise_energies)
    return gain * gain * signal_variance + kappa * (validation_norm * training_norm) ** 2 * energy


def _centre(xp: Namespace, matrices: Array, probabilities: Array) -> tuple[Array, Array]:
    average = xp.sum(probabilities[:, None, None] * matrices, axis=0)
    return average, matrices - average
