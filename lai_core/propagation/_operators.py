r"""Layer Jacobians, and the operator that carries the last layer's gradient down to layer l."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float

from lai_core._engine.namespace import Array
from lai_core._theory.prepared import apply, check_chain, check_shape, check_width, numbered, prepared


def layer_jacobian(weight: Array, derivatives: Array, /) -> Float[Array, "... d_below d_out"]:
    r"""One layer's backward operator, :math:`J^{(l)} = \mathrm{Diag}(\phi'(s^{(l-1)}))\,W^{(l)\top}`.

    Implements :eq:`vjp-recursion`, for a layer :math:`s^{(l)} = W^{(l)}\phi(s^{(l-1)}) + b`.

    Parameters
    ----------
    weight
        :math:`W^{(l)}`, `(d_l, d_(l-1))`.
    derivatives
        :math:`\phi'(s^{(l-1)})` of each sample, `(..., d_(l-1))`.

    Returns
    -------
    array
        `(..., d_(l-1), d_l)`.

    Raises
    ------
    ValueError
        If the widths do not fit.
    TypeError
        If an argument is no array of real floats.
    """
    xp, (weight, derivatives) = prepared({"weight": weight, "derivatives": derivatives})
    check_chain("weight", [weight])
    check_width("derivatives", derivatives, weight.shape[-1], "weight")
    return derivatives[..., None] * xp.matrix_transpose(weight)


def vjp_recursion(jacobians: Sequence[Array], output_gradient: Array, /) -> tuple[Float[Array, "... _"], ...]:
    r"""Gradients of the layers l, ..., L by :math:`g^{(t-1)} = J^{(t)} g^{(t)}`.

    Implements :eq:`vjp-recursion`. It holds for t = 2, ..., L (printed from 1, where there is no
    :math:`g^{(0)}`), where :math:`s^{(t-1)}` reaches the loss through :math:`s^{(t)}` alone.

    Parameters
    ----------
    jacobians
        :math:`J^{(l+1)}, \dots, J^{(L)}`, each `(..., d_(t-1), d_t)`.
    output_gradient
        :math:`g^{(L)}`, `(..., d_L)`.

    Returns
    -------
    tuple of array
        :math:`g^{(l)}, \dots, g^{(L)}`.

    Raises
    ------
    ValueError
        If the shapes do not chain.
    TypeError
        If an argument is no array of real floats.
    """
    named = numbered("jacobians", jacobians) | {"output_gradient": output_gradient}
    xp, (*matrices, gradient) = prepared(named)
    check_chain("jacobians", matrices)
    check_width("output_gradient", gradient, matrices[-1].shape[-1], "the last Jacobian")
    found = [gradient]
    for matrix in reversed(matrices):
        found.append(apply(xp, matrix, found[-1]))
    return tuple(reversed(found))


def backward_operator(jacobians: Sequence[Array], /) -> Float[Array, "... d_l d_L"]:
    r"""Carry the last layer's gradient to layer l: :math:`A^{(l)} = J^{(l+1)} \cdots J^{(L)}`.

    Implements :eq:`app-A-prod`, for a chain of layers; with a skip around a layer it is
    `separating_operator` that holds.

    Parameters
    ----------
    jacobians
        :math:`J^{(l+1)}, \dots, J^{(L)}`, each `(..., d_(t-1), d_t)`.

    Returns
    -------
    array
        `(..., d_l, d_L)`.

    Raises
    ------
    ValueError
        If there is no matrix, or the shapes do not chain.
    TypeError
        If an argument is no array of real floats.
    """
    xp, matrices = prepared(numbered("jacobians", jacobians))
    check_chain("jacobians", matrices)
    product = matrices[0]
    for matrix in matrices[1:]:
        product = xp.matmul(product, matrix)
    return product


def separating_operator(
    edges: Mapping[tuple[int, int], Array], layer: int, last: int, /
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
        pre-activations held fixed: `(..., d_k, d_t)` under the key `(k, t)`.
    layer, last
        The numbers l and L of the first and the last layer.

    Returns
    -------
    array
        `(..., d_l, d_L)`.

    Raises
    ------
    ValueError
        If an edge does not lead upward, shapes do not fit, or no path leads from `layer` to `last`.
    TypeError
        If an edge is no array of real floats.
    """
    if not edges:
        msg = "edges: expected at least one, got none"
        raise ValueError(msg)
    xp, matrices = prepared({f"edges[{key}]": matrix for key, matrix in edges.items()})
    read = dict(zip(edges, matrices, strict=True))
    _check_edges(read)
    reached: dict[int, Array] = {}
    for start in range(last - 1, layer - 1, -1):
        total: Array = read.get((start, last))
        for stop in range(start + 1, last):
            if (start, stop) in read and stop in reached:
                path = xp.matmul(read[start, stop], reached[stop])
                total = path if total is None else total + path
        if total is not None:
            reached[start] = total
    if layer not in reached:
        msg = f"edges: expected a path from layer {layer} to layer {last}, got the edges {sorted(read)}"
        raise ValueError(msg)
    return reached[layer]


def _check_edges(edges: Mapping[tuple[int, int], Array]) -> None:
    widths: dict[int, int] = {}
    for (start, stop), matrix in edges.items():
        if start >= stop:
            msg = f"edges: expected keys (k, t) with k < t, got {(start, stop)}"
            raise ValueError(msg)
        check_chain(f"edges[{(start, stop)}]", [matrix])
        for end, width in ((start, matrix.shape[-2]), (stop, matrix.shape[-1])):
            widths.setdefault(end, width)
        expected = (widths[start], widths[stop])
        check_shape(f"edges[{(start, stop)}]", matrix, (*matrix.shape[:-2], *expected))
