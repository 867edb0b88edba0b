r"""How much random signs make a sketched score vary.

A score is :math:`\sum_t \langle u_t, g_t \rangle`, where :math:`u_t` is the summed validation gradient
times the columns at position t. Signs s add :math:`s_i s_k M_{ik}` for every two outputs of one group,
:math:`M = \sum_t u_t g_t^\top`, and the variance is :math:`\sum_{i \ne k} (M_{ik}^2 + M_{ik} M_{ki})`.
"""

from functools import partial

from jaxtyping import Float

from lai_core._engine.factors import lay_by_group
from lai_core._engine.gradients import Workspace, spans
from lai_core._engine.namespace import Array, Namespace, cast, matmul
from lai_core._engine.outer import OuterGradient
from lai_core._engine.pairs import products_of


def chance_of_a_shared_group(outputs: int, width: int) -> float:
    """Return how likely two outputs, permuted at random, fall into one of `width` groups."""
    size = -(-outputs // width)
    full, rest = divmod(outputs, size)
    return (full * size * (size - 1) + rest * (rest - 1)) / max(outputs * (outputs - 1), 1)


def group_axis(xp: Namespace, array: Array, permutation: Array | None, width: int) -> Float[Array, "..."]:
    """Lay the last axis, permuted, out as `(width, size)`; zeros fill up the groups."""
    if permutation is not None:
        array = xp.take(array, permutation, axis=array.ndim - 1)
    missing = -array.shape[-1] % width
    if missing:
        array = xp.concat([array, xp.zeros_like(array[..., :missing])], axis=-1)
    return xp.reshape(array, (*array.shape[:-1], width, array.shape[-1] // width))


def sketch(
    rows: Float[Array, "n d"], signs: Array, permutation: Array, width: int, work: Workspace
) -> Float[Array, "n width"]:
    """Add the signed entries of every row up in `width` groups, as many rows at once as fit."""
    xp, (count, outputs) = work.xp, rows.shape
    most = work.fit(4 * -(-outputs // width) * width, count, "one position's outputs")
    parts = [
        xp.sum(group_axis(xp, cast(xp, rows[part, ...], work.dtype) * signs, permutation, width), axis=-1)
        for part in spans(count, most)
    ]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def spread(
    validation: OuterGradient | tuple[Array, ...],
    training: OuterGradient,
    outputs: int,
    permutation: Array | None,
    width: int,
    work: Workspace,
) -> Float[Array, " n"]:
    """Return the sum over pairs of outputs of one group, per training sample.

    `validation` is that side or its `total`. Where the rows are flattened positions of `outputs`
    numbers each, the positions share the signs.
    """
    xp, t, size = work.xp, training.positions * training.height // outputs, -(-outputs // width)
    half = work.half()
    fits = work.holds(4 * training.total_entries())
    if fits and isinstance(validation, OuterGradient):
        summed = validation.total_cost() + training.total_cost()
        validation = validation.total(half) if summed <= validation.pairwise_cost(training) else validation
    # Alive for each sample: u and g as they are, permuted, laid out by groups (6 t width size), its factors
    # while u is made, and of `slab` rows of pairs two products and their factors in every group.
    few = min(t, size)
    samples, slab = half.fit_both(
        lambda n, rows: n * (6 * t * width * size + training.factor_entries() + 4 * width * few * rows),
        training.samples,
        few,
        "one sample's positions",
    )
    parts = []
    for chunk in spans(training.samples, samples):
        n = chunk.stop - chunk.start
        pulled = (
            _multiply_by_pairs(validation, training, chunk, half)
            if isinstance(validation, OuterGradient)
            else training.multiply_total(validation, chunk, half)
        )
        sides = (
            group_axis(xp, xp.reshape(side, (n, t, outputs)), permutation, width)
            for side in (pulled, lay_by_group(training.rows, chunk, 1, work))
        )
        u, g = (xp.reshape(xp.permute_dims(side, (0, 2, 1, 3)), (n * width, t, size)) for side in sides)
        found = xp.sum(xp.reshape(_off_diagonal(xp, u, g, slab), (n, width)), axis=1)
        parts.append(xp.maximum(found, xp.zeros_like(found)))  # rounding may leave less than nothing
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _multiply_by_pairs(
    validation: OuterGradient, training: OuterGradient, chunk: slice, work: Workspace
) -> Float[Array, "nt d"]:
    """Return the summed validation gradient times the training columns, without the former."""
    xp = work.xp
    pair = 3 * validation.positions * training.positions
    rows, columns = work.fit_both(
        lambda n, m: n * m * pair + n * validation.factor_entries() + m * training.factor_entries(),
        validation.samples,
        chunk.stop - chunk.start,
        "one pair of samples",
    )
    parts = []
    for start in range(chunk.start, chunk.stop, columns):
        part = slice(start, min(start + columns, chunk.stop))
        pulled: Array = None
        for span in spans(validation.samples, rows):
            alpha = validation.alpha(partial(products_of, lay_by_group, (span, part), 1, work), training)
            turned = xp.matrix_transpose(alpha)
            product = matmul(xp, turned, lay_by_group(validation.rows, span, 1, work))[0, ...]
            pulled = product if pulled is None else pulled + product
        parts.append(pulled)
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _off_diagonal(
    xp: Namespace, u: Float[Array, "b t m"], g: Float[Array, "b t m"], slab: int
) -> Float[Array, " b"]:
    """Return sum_{i != k} (M_ik^2 + M_ik M_ki) for M = u^T g, a few rows of pairs at a time."""
    # All pairs of outputs, less those of an output with itself, where both terms are M_ii^2:
    #
    #   sum_{i != k} (M_ik^2 + M_ik M_ki) = tr(M M^T) + tr(M M) - 2 sum_i M_ii^2
    #
    # M = sum_t u_t g_t^T makes each trace a sum over pairs of positions,
    #
    #   tr(M M^T) = sum_tt' <u_t, u_t'> <g_t, g_t'>,    tr(M M) = sum_tt' <u_t, g_t'> <g_t, u_t'>,
    #
    # or, with M built, over pairs of outputs; whichever are fewer: t^2 or size^2.
    t, size = u.shape[1:]
    by_positions = t <= size
    left, right = (u, g) if by_positions else (xp.matrix_transpose(u), xp.matrix_transpose(g))
    square = (left, left, right, right) if by_positions else (left, right, left, right)
    crossed = (left, right, right, left)
    diagonal = xp.sum(u * g, axis=1)  # M_ii
    found = -2.0 * xp.sum(diagonal * diagonal, axis=-1)
    for a, b, c, d in (square, crossed):
        for rows in spans(min(t, size), slab):
            one = matmul(xp, a[:, rows, :], xp.matrix_transpose(b))
            other = matmul(xp, c[:, rows, :], xp.matrix_transpose(d))
            found = found + xp.sum(one * other, axis=(1, 2))
    return found
