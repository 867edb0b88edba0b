"""Whether each row of a batch reaches the loss of its own sample alone."""

from jaxtyping import Float

from lai_core._engine.namespace import Array, xp_of
from lai_core._theory.arrays import checked


@checked
def ownership_residuals(
    gradient: Float[Array, "n ..."], weighted: Float[Array, "n ..."], weights: Float[Array, " n"], /
) -> Float[Array, " n"]:
    r"""Measure how far each row of a tensor is from reaching the loss of its own sample alone.

    Implements :eq:`sample-ownership`: with the gradients :math:`r` of :math:`\sum_k \ell_k` and
    :math:`r^w` of :math:`\sum_k w_k \ell_k` at a tensor of one row a sample, :math:`r^w_i - w_i r_i =
    \sum_{k \ne i} (w_k - w_i)\, \partial \ell_k / \partial x_i`. It is 0 where no other sample's loss
    depends on row i, and for almost all weights nowhere else.

    Assume: losses are differentiable in the tensor's entries.

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
