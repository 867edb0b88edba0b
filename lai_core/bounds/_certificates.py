"""Certificates of scores from the top layers: a bound on what the layers below contribute, rounded up.

Backpropagation runs from the top: stopping it early saves its cost and misses the bottom layers, whose part
is bounded by forward quantities.
"""

from math import inf

from jaxtyping import Float

from lai_core._engine.namespace import Array, Namespace, xp_of
from lai_core._theory.arrays import checked


@checked
def layer_factors(
    weight: Float[Array, "d_out d_in"], slopes: Float[Array, "n d_in"], /
) -> Float[Array, " n"]:
    r"""Bound by how much one step of backpropagation can stretch each sample's gradient.

    Implements :eq:`top-layer-certificate`: :math:`f(x) = \min(\|W\|_2 \max_i |\phi'(s_{x,i})|,\,
    (\sum_i \phi'(s_{x,i})^2 \|W_{:,i}\|^2)^{1/2})`, the smaller of two bounds on the norm of the matrix in
    :math:`g^{(t)} = \phi'(s^{(t)}) \circ W^\top g^{(t+1)}`. The slopes are the sample's own, so that it holds
    for every activation function, those with slopes above 1 (GELU, SiLU) included.

    Parameters
    ----------
    weight
        The matrix of layer t + 1.
    slopes
        Slopes of the activation function at the outputs of layer t.
    """
    xp = xp_of(weight)
    spectral = xp.max(xp.linalg.svdvals(weight)) * xp.max(xp.abs(slopes), axis=-1)
    columns = xp.sum(weight * weight, axis=0)
    frobenius = xp.sqrt(xp.sum(slopes * slopes * columns, axis=-1))
    # The sums have d_in d_out terms, one after the other at worst; a singular value is off by a few roundings
    # of the largest one for each row and column.
    entries = int(weight.shape[0]) * int(weight.shape[1])
    return _round_up(xp, xp.minimum(frobenius, spectral), 8 * entries + 8)


@checked
def top_layers_bound(
    alpha: Float[Array, "below n_val n_train"],
    validation_factors: Float[Array, "below n_val"],
    training_factors: Float[Array, "below n_train"],
    validation_norms: Float[Array, " n_val"],
    training_norms: Float[Array, " n_train"],
    /,
) -> Float[Array, " n_train"]:
    r"""Bound what the layers below k of a chain contribute to Ghost's score, rounded up.

    Implements :eq:`top-layer-certificate`: :math:`\sum_z \|g^{(k)}_z\| \|g^{(k)}_j\| \sum_{l<k}
    |\alpha^{(l)}_{zj}| \prod_{t=l}^{k-1} f_t(z) f_t(j)`. A score from layers k, ..., L that exceeds it in
    absolute value has the right sign; two that differ by more than both their bounds have the right
    order. k = L certifies LLI.

    Parameters
    ----------
    alpha
        Embedding similarities of the k - 1 layers below k, the bottom one first.
    validation_factors, training_factors
        `layer_factors` of the steps from layer t + 1 to t, t = 1, ..., k - 1.
    validation_norms, training_norms
        Norms of the output gradients of layer k.

    Returns
    -------
    array
        At least the absolute difference between Ghost's score and its top layers', of the arguments as they
        are: what is rounded here is rounded up.
    """
    xp = xp_of(alpha)
    # From the top down, the products of factors so far times the norms bound the gradients of layer l.
    below, norms = int(alpha.shape[0]), (validation_norms, training_norms)
    reached: list[tuple[Array, Array]] = []
    for layer in range(below - 1, -1, -1):
        norms = norms[0] * validation_factors[layer, ...], norms[1] * training_factors[layer, ...]
        reached.insert(0, norms)
    norms_z, norms_j = (_round_up(xp, xp.stack(side), below) for side in zip(*reached, strict=True))
    terms = xp.abs(alpha) * norms_z[:, :, None] * norms_j[:, None, :]
    return _round_up(xp, xp.sum(terms, axis=(0, 1)), 2 + below * int(alpha.shape[1]))


def _round_up(xp: Namespace, value: Array, operations: int) -> Array:
    """Return at least what so many operations on positive numbers would give without rounding."""
    # Each rounds by a factor of at least 1 - u, u = eps / 2: with k of them the exact value is at most
    # value / (1 - u)^k <= value (1 + k eps) as long as k eps < 1. The next number makes up for this product's
    # own rounding. Numbers too small to be normal are outside of what this says.
    return xp.nextafter(
        value * (1.0 + operations * float(xp.finfo(value.dtype).eps)), xp.full_like(value, inf)
    )
