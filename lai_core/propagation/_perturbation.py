r"""Jacobians as a systematic part and a rest, and what the rest does to their product."""

from collections.abc import Sequence

from jaxtyping import Float

from lai_core._engine.checks import check_number
from lai_core._engine.namespace import Array, Namespace
from lai_core._theory.prepared import check_chain, check_shape, check_width, numbered, prepared


def jacobian_split(
    jacobians: Array, probabilities: Array, /
) -> tuple[Float[Array, "d_below d_out"], Float[Array, "outcomes d_below d_out"]]:
    r"""Split a random Jacobian into its mean and its centred rest, :math:`J = \bar J + \Delta J`.

    Implements :eq:`jacobian-split`, with :math:`\bar J := E[J]`: of all systematic parts it is the
    only one for which :math:`E[\Delta J] = 0`, which the variances below need.

    Parameters
    ----------
    jacobians
        The outcomes, `(m, d_(l-1), d_l)`.
    probabilities
        `(m,)`, summing to 1 (not looked at).

    Returns
    -------
    tuple of array
        The mean, `(d_(l-1), d_l)`, and the rest of each outcome, `(m, d_(l-1), d_l)`.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (jacobians, probabilities) = prepared({"jacobians": jacobians, "probabilities": probabilities})
    if jacobians.ndim != 3:
        msg = f"jacobians: expected shape (m, d_(l-1), d_l), got {tuple(jacobians.shape)}"
        raise ValueError(msg)
    check_shape("probabilities", probabilities, (jacobians.shape[0],))
    mean = xp.sum(jacobians * probabilities[:, None, None], axis=0)
    return mean, jacobians - mean


def first_order_perturbation(
    means: Sequence[Array], deviations: Sequence[Array], /
) -> Float[Array, "... d_l d_L"]:
    r"""Terms of :math:`\Delta A^{(l)}` with one rest, as printed.

    Implements :eq:`app-DeltaA`: :math:`\sum_t \bar J^{(l+1)} \cdots \bar J^{(t-1)} \Delta J^{(t)}
    \bar J^{(t+1)} \cdots \bar J^{(L)}`. With n layers it leaves out the :math:`2^n - 1 - n` terms with
    two rests and more; `telescoping_perturbation` has them all.

    Parameters
    ----------
    means
        :math:`\bar J^{(l+1)}, \dots, \bar J^{(L)}`.
    deviations
        :math:`\Delta J^{(l+1)}, \dots, \Delta J^{(L)}`.

    Returns
    -------
    array
        `(..., d_l, d_L)`.

    Raises
    ------
    ValueError
        If the shapes do not chain.
    TypeError
        If an argument is no array of real floats.
    """
    xp, below, above = _pairs(means, deviations)
    return _replaced_one_by_one(xp, below, above, below)


def telescoping_perturbation(
    means: Sequence[Array], deviations: Sequence[Array], /
) -> Float[Array, "... d_l d_L"]:
    r"""Perturb the product one layer after the other: :math:`\Delta A^{(l)} = A^{(l)} - \bar A^{(l)}`, whole.

    Implements :eq:`telescoping`: :math:`\sum_t \bar J^{(l+1)} \cdots \bar J^{(t-1)} \Delta J^{(t)}
    J^{(t+1)} \cdots J^{(L)}`, without remainder.

    Parameters
    ----------
    means
        :math:`\bar J^{(l+1)}, \dots, \bar J^{(L)}`.
    deviations
        :math:`\Delta J^{(l+1)}, \dots, \Delta J^{(L)}`.

    Returns
    -------
    array
        `(..., d_l, d_L)`.

    Raises
    ------
    ValueError
        If the shapes do not chain.
    TypeError
        If an argument is no array of real floats.
    """
    xp, below, above = _pairs(means, deviations)
    whole = [mean + rest for mean, rest in zip(below, above, strict=True)]
    return _replaced_one_by_one(xp, below, above, whole)


def gain_product(gains: Array, first: int, last: int, /) -> Float[Array, "..."]:
    r"""Multiply the gains of consecutive layers, :math:`\rho_{u \to v} = \prod_{t=u}^v \rho_t`.

    Implements :eq:`gain-products`. The paper leaves :math:`\rho_t` undefined; here it is an upper
    bound on :math:`\|\bar J^{(t)}\|_2` (unrelated to the decay rate of assumption A1).

    Parameters
    ----------
    gains
        :math:`\rho_{l+1}, \dots, \rho_L` along the last axis, `(..., n)`.
    first, last
        Places in `gains` of the first and the last factor, from 0.

    Returns
    -------
    array
        `(...)`; 1 if `first > last`.

    Raises
    ------
    ValueError
        If a place lies outside.
    TypeError
        If `gains` is no array of real floats.
    """
    xp, (gains,) = prepared({"gains": gains})
    count = gains.shape[-1]
    check_number("first", first, at_least=0, at_most=count)
    check_number("last", last, at_least=-1, at_most=count - 1)
    return xp.prod(gains[..., first : max(first, last + 1)], axis=-1)


def first_order_norm_bound(gains: Array, perturbations: Array, /) -> Float[Array, "..."]:
    r"""Right-hand side of the printed bound on :math:`\|\Delta A^{(l)}\|`.

    Implements :eq:`app-DeltaA-bound`: :math:`\sum_t \rho_{l+1 \to t-1}\, \delta_t\, \rho_{t+1 \to L}`.
    It bounds the norm of `first_order_perturbation`. It does not bound :math:`\|\Delta A^{(l)}\|`, not
    up to any constant: `perturbation_norm_bound` does.

    Parameters
    ----------
    gains
        :math:`\rho_t \ge \|\bar J^{(t)}\|_2` for t = l+1, ..., L, `(..., n)`.
    perturbations
        :math:`\delta_t \ge \|\Delta J^{(t)}\|_2`, `(..., n)`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If there are not as many perturbations as gains.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (gains, perturbations) = prepared({"gains": gains, "perturbations": perturbations})
    check_width("perturbations", perturbations, gains.shape[-1], "gains")
    count = gains.shape[-1]
    total = perturbations[..., 0] * xp.prod(gains[..., 1:], axis=-1)
    for t in range(1, count):
        below, above = xp.prod(gains[..., :t], axis=-1), xp.prod(gains[..., t + 1 :], axis=-1)
        total = total + below * perturbations[..., t] * above
    return total


def perturbation_norm_bound(gains: Array, perturbations: Array, /) -> Float[Array, "..."]:
    r"""Bound on :math:`\|\Delta A^{(l)}\|_2` that holds.

    Implements :eq:`perturbation-norm`: :math:`\prod_t (\rho_t + \delta_t) - \prod_t \rho_t`, attained by
    non-negative scalars. Computed as a telescoping sum of non-negative terms, without cancellation.

    Parameters
    ----------
    gains
        :math:`\rho_t \ge \|\bar J^{(t)}\|_2` for t = l+1, ..., L, `(..., n)`.
    perturbations
        :math:`\delta_t \ge \|\Delta J^{(t)}\|_2`, `(..., n)`.

    Returns
    -------
    array
        `(...)`.

    Raises
    ------
    ValueError
        If there are not as many perturbations as gains.
    TypeError
        If an argument is no array of real floats.
    """
    _, (gains, perturbations) = prepared({"gains": gains, "perturbations": perturbations})
    check_width("perturbations", perturbations, gains.shape[-1], "gains")
    bound, product = perturbations[..., 0], gains[..., 0]
    for t in range(1, gains.shape[-1]):
        gain, perturbation = gains[..., t], perturbations[..., t]
        bound = bound * (gain + perturbation) + product * perturbation
        product = product * gain
    return bound


def _pairs(means: Sequence[Array], deviations: Sequence[Array]) -> tuple[Namespace, list[Array], list[Array]]:
    named = numbered("means", means) | numbered("deviations", deviations)
    xp, arrays = prepared(named)
    below, above = arrays[: len(means)], arrays[len(means) :]
    if len(above) != len(below):
        msg = f"deviations: expected {len(below)} matrices as means has, got {len(above)}"
        raise ValueError(msg)
    check_chain("means", below)
    for index, (mean, rest) in enumerate(zip(below, above, strict=True)):
        check_chain(f"deviations[{index}]", [rest])
        check_shape(f"deviations[{index}]", rest, (*rest.shape[:-2], *mean.shape[-2:]))
    return xp, below, above


def _replaced_one_by_one(
    xp: Namespace, before: Sequence[Array], changed: Sequence[Array], after: Sequence[Array]
) -> Array:
    """Return the sum over t of `before[:t] changed[t] after[t + 1:]`, by one sweep from below."""
    total, product = changed[0], before[0]
    for left, middle, right in zip(before[1:], changed[1:], after[1:], strict=True):
        total = xp.matmul(total, right) + xp.matmul(product, middle)
        product = xp.matmul(product, left)
    return total
