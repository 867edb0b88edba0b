"""Layer Jacobians, and the operator that carries the last layer's gradient down to layer l."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array, matmul, xp_of
from lai_core._theory.algebra import apply, check_chain, check_width
from lai_core._theory.arrays import checked

Jacobian = Float[Array, "... d_below d_above"]
"""A matrix that carries the gradient of one layer down to a lower one."""


@checked
def layer_jacobian(
    weight: Float[Array, "... d_above d_below"], derivatives: Float[Array, "... d_below"], /
) -> Jacobian:
    r"""Make one layer's backward operator, :math:`J^{(l)} = \mathrm{Diag}(\phi'(s^{(l-1)}))\,W^{(l)\top}`.

    Implements :eq:`vjp-recursion`, for a layer :math:`s^{(l)} = W^{(l)}\phi(s^{(l-1)}) + b`.

    Assume: a chain of layers; :math:`l = 2, \dots, L`.

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

    Assume: a chain of layers; :math:`l = 2, \dots, L`. Arguments: :mod:`lai_core.propagation`.
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

    Assume: a chain of layers. Arguments: :mod:`lai_core.propagation`.
    """
    xp = xp_of(jacobians[0])
    check_chain("jacobians", jacobians)
    product = jacobians[0]
    for jacobian in jacobians[1:]:
        product = matmul(xp, product, jacobian)
    return product


@checked
def separating_operator(
    edges: Mapping[tuple[int, int], Jacobian], /, *, layer: int, last: int
) -> Float[Array, "... d_l d_L"]:
    r"""Carry the last layer's gradient to layer l along every path, skips included.

    Implements :eq:`separating-operator`: :math:`A^{(l)} = (\partial s^{(L)} / \partial s^{(l)})^\top`,
    which needs only that every path from :math:`s^{(l)}` to the loss passes through :math:`s^{(L)}`.
    It is the sum over paths of the products of their edges,
    :math:`A^{(l)} = \sum_t E^{(l,t)} A^{(t)}` with :math:`A^{(L)} = I`.

    Assume: every path from layer :math:`l` to the loss passes through :math:`s^{(L)}`.

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
