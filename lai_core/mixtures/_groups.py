"""Mean scores of groups of samples, with standard errors."""

from math import inf

from jaxtyping import Float

from lai_core._engine.axes import check_array
from lai_core._engine.checks import check_count
from lai_core._engine.namespace import Array, accumulation_dtype, cast, device_of, namespace_of
from lai_core._theory.algebra import dot, quotient


def group_scores(
    scores: Array, groups: Array, count: int, /
) -> tuple[Float[Array, " count"], Float[Array, " count"]]:
    r"""Compute each group's mean score and the standard error of that mean.

    Implements :eq:`share-derivative`: where the groups are the sources of a mixture, minus the mean score of
    source k is the derivative of the next validation loss in the source's share, per unit learning rate.

    :eq:`share-derivative`. Assume: the step is :math:`\theta^+ = \theta - \eta D \sum_k w_k g_k`;
    :math:`g_k` is the mean gradient of source :math:`k`; :math:`D` is symmetric and fixed.

    Parameters
    ----------
    scores
        `(n,)`; positive helps. A score that is not finite is left out.
    groups
        `(n,)` integers in `[0, count)`, the group of each sample. A sample with another number belongs to no
        group.
    count
        Number of groups.

    Returns
    -------
    tuple
        Means and standard errors, `(count,)` each, in the scores' units. A group of one sample has the
        standard deviation that is pooled over all groups. A group without samples has mean 0 and an infinite
        standard error, as has a group of one sample where no group has two.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_core.mixtures import group_scores
    >>> means, errors = group_scores(np.array([1.0, 3.0, -2.0, -2.0]), np.array([0, 0, 1, 1]), 3)
    >>> means
    array([ 2., -2.,  0.])
    >>> errors
    array([ 1.,  0., inf])
    """
    check_array("scores", scores, "n")
    xp = namespace_of({"scores": scores, "groups": groups})
    check_array("groups", groups, str(scores.shape[0]), kind="integral")
    check_count("count", count)
    values = cast(xp, scores, accumulation_dtype(xp, scores.dtype))
    finite = xp.isfinite(values)
    values = xp.where(finite, values, xp.zeros_like(values))
    numbers = xp.arange(count, dtype=groups.dtype, device=device_of(groups))
    # (count, n): which samples make up each group; a group's sums are products with it
    members = xp.astype((groups[None, :] == numbers[:, None]) & finite[None, :], values.dtype)
    sizes = xp.sum(members, axis=1)
    means = quotient(xp, dot(xp, members, values[None, :]), sizes, 0.0)
    deviations = (values[None, :] - means[:, None]) * members
    squares = xp.sum(deviations * deviations, axis=1)
    freedom = xp.maximum(sizes - 1, xp.zeros_like(sizes))
    pooled = quotient(xp, xp.sum(squares), xp.sum(freedom), inf)
    variances = xp.where(sizes > 1, squares / xp.maximum(freedom, xp.ones_like(freedom)), pooled)
    return means, xp.sqrt(quotient(xp, variances, sizes, inf))
