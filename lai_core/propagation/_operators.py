"""Layer Jacobians, their product from the last layer down, and what a rest beside their mean does to it."""

from collections.abc import Mapping, Sequence
from functools import partial, reduce

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import apply, check_chain, check_width
from lai_core._theory.arrays import Gains, Numbers, Operator, checked

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

    Arguments: :mod:`lai_core.propagation`.
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

    Arguments: :mod:`lai_core.propagation`.
    """
    return chain_product("jacobians", jacobians)


def chain_product(name: str, matrices: Sequence[Array]) -> Array:
    """Multiply the matrices of an argument of this name, in order."""
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

    Arguments: :mod:`lai_core.propagation`.

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

    Arguments: :mod:`lai_core.propagation`.
    """
    _check_pairs(means, deviations, "deviations")
    return _replace_one_by_one(means, deviations, means)


@checked
def telescoping_perturbation(means: Sequence[Jacobian], deviations: Sequence[Jacobian], /) -> Operator:
    r"""Compute the whole change of the product, :math:`\Delta A^{(l)} = A^{(l)} - \bar A^{(l)}`.

    Implements :eq:`telescoping`: :math:`\sum_t \bar J^{(l+1)} \cdots \bar J^{(t-1)} \Delta J^{(t)}
    J^{(t+1)} \cdots J^{(L)}`, without remainder: one factor after the other is replaced.

    Arguments: :mod:`lai_core.propagation`.
    """
    return product_change(means, deviations)


def product_change(means: Sequence[Array], deviations: Sequence[Array], name: str = "deviations") -> Array:
    """Return the change of the product, of rests in an argument of this name."""
    _check_pairs(means, deviations, name)
    jacobians = [mean + rest for mean, rest in zip(means, deviations, strict=True)]
    return _replace_one_by_one(means, deviations, jacobians)


@checked
def gain_product(gains: Gains, /, *, first: int, last: int) -> Numbers:
    r"""Multiply the gains of consecutive layers, :math:`\rho_{u \to v} = \prod_{t=u}^v \rho_t`.

    Implements :eq:`gain-products`. The paper leaves :math:`\rho_t` undefined; here it is an upper
    bound on :math:`\|\bar J^{(t)}\|_2` (unrelated to the decay rate of assumption A1).

    Arguments: :mod:`lai_core.propagation`.

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

    Arguments: :mod:`lai_core.propagation`.
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

    Arguments: :mod:`lai_core.propagation`.
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
