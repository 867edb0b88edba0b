"""Exact identities about the factors of Ghost and LAI, and whose loss a row of a batch reaches."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.arrays import checked


@checked
def pre_activation_gradients(
    activation_gradients: Float[Array, "n d_out"], slopes: Float[Array, "n d_out"], /
) -> Float[Array, "n d_out"]:
    r"""Compute gradients with respect to a layer's pre-activations from those of its activations.

    Implements :eq:`ghost-pre-activation`: :math:`g = \phi'(s) \odot \partial \ell / \partial \phi(s)`, the
    gradients for which Eq. 3 is an identity; without the factor :math:`\phi'` it is not.

    Parameters
    ----------
    activation_gradients
        Gradient of each sample's loss with respect to the layer's output after its activation function.
    slopes
        The activation function's derivative at the pre-activations.

    Returns
    -------
    array
        The output gradients of a `LayerTrace`.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> influence.pre_activation_gradients(np.array([[3.0, 5.0]]), np.array([[1.0, 0.0]]))
    array([[3., 0.]])
    """
    return activation_gradients * slopes


@checked
def self_votes(kernel: Float[Array, "n n"], /) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    r"""Split each score into the sample's vote for itself and the others' votes, on one batch.

    Implements :eq:`self-exclusion`: the score is their sum, and a sample's own vote :math:`|g_j|^2` is
    never negative, so that a sample is dropped exactly if :math:`\sum_{z \ne j} \langle g_z, g_j \rangle <
    -|g_j|^2`.

    Parameters
    ----------
    kernel
        Of a batch with itself, as its own validation set.

    Returns
    -------
    tuple of arrays
        The sample's own vote, the kernel's diagonal; and the others', which is the score with
        `exclude_self=True`. Positive helps.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core import influence
    >>> influence.self_votes(np.array([[4.0, -3.0], [-3.0, 9.0]]))  # kept, though its peer opposes it
    (array([4., 9.]), array([-3., -3.]))
    """
    xp = xp_of(kernel)
    own = xp.sum(xp.triu(xp.tril(kernel)), axis=0)
    others = xp.sum(xp.triu(kernel, k=1) + xp.tril(kernel, k=-1), axis=0)
    return own, others


@checked
def ownership_residuals(
    gradient: Float[Array, "n ..."], weighted: Float[Array, "n ..."], weights: Float[Array, " n"], /
) -> Float[Array, " n"]:
    r"""Measure how far each row of a tensor is from reaching the loss of its own sample alone.

    Implements :eq:`sample-ownership`: with the gradients :math:`r` of :math:`\sum_k \ell_k` and
    :math:`r^w` of :math:`\sum_k w_k \ell_k` at a tensor of one row a sample, :math:`r^w_i - w_i r_i =
    \sum_{k \ne i} (w_k - w_i)\, \partial \ell_k / \partial x_i`. It is 0 where no other sample's loss
    depends on row i, and for almost all weights nowhere else.

    Parameters
    ----------
    gradient
        Gradient of the sum of all samples' losses, sample by sample.
    weighted
        Gradient of the weighted sum.
    weights
        The weights: all different, and drawn without looking at the model.

    Returns
    -------
    array
        The largest absolute entry of each row of :math:`r^w_i - w_i r_i`, in the gradients' units. What
        is left of rounding is of the size of the weights times the gradients.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.influence import ownership_residuals
    >>> weights = np.array([1.0, 2.0])
    >>> gradients = np.array([[[1.0], [0.0]], [[5.0], [3.0]]])  # of both losses at both rows
    >>> weighted = (weights[:, None, None] * gradients).sum(0)
    >>> ownership_residuals(gradients.sum(0), weighted, weights)  # the second loss depends on row 0
    array([5., 0.])
    """
    xp, shape = xp_of(gradient), tuple(gradient.shape)
    if tuple(weighted.shape) != shape:
        msg = f"weighted: expected the shape of gradient, (n, ...) = {shape}, got {tuple(weighted.shape)}"
        raise ValueError(msg)
    once, second = (xp.reshape(side, (shape[0], -1)) for side in (gradient, weighted))
    left = second - once * xp.expand_dims(weights, axis=1)
    return xp.max(xp.abs(left), axis=1)
