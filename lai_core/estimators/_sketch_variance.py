r"""How much random signs make a sketched score vary.

A score is :math:`\sum_t \langle u_t, g_t \rangle`, where :math:`u_t` is the summed validation gradient
times the columns at position t. Signs s add :math:`s_i s_k M_{ik}` for every two outputs of one group,
:math:`M = \sum_t u_t g_t^\top`, and the variance is :math:`\sum_{i \ne k} (M_{ik}^2 + M_{ik} M_{ki})`.
"""

from dataclasses import replace

from jaxtyping import Float

from lai_core._engine.factors import by_group
from lai_core._engine.gradients import Workspace, spans
from lai_core._engine.namespace import Array, Namespace, cast, itemsize
from lai_core._engine.outer import OuterGradient


def chance_of_a_shared_group(outputs: int, width: int) -> float:
    """Return how likely two outputs, permuted at random, fall into one of `width` groups."""
    size = -(-outputs // width)
    full, rest = divmod(outputs, size)
    return (full * size * (size - 1) + rest * (rest - 1)) / max(outputs * (outputs - 1), 1)


def grouped(xp: Namespace, array: Array, permutation: Array | None, width: int) -> Float[Array, "..."]:
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
    most = max(work.fit(4 * -(-outputs // width) * width, count, "one position's outputs"), 1)
    parts = [
        xp.sum(grouped(xp, cast(xp, rows[part, ...], work.dtype) * signs, permutation, width), axis=-1)
        for part in spans(count, most)
    ]
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def spread(
    theirs: OuterGradient | tuple[Array, ...],
    ours: OuterGradient,
    outputs: int,
    permutation: Array | None,
    width: int,
    work: Workspace,
) -> Float[Array, " n"]:
    """Return the sum over pairs of outputs of one group, per sample of `ours`.

    `theirs` is the validation side or its `total`. Where the rows are flattened positions of `outputs`
    numbers each, the positions share the signs.
    """
    xp, t, size = work.xp, ours.positions * ours.height // outputs, -(-outputs // width)
    half = replace(work, memory_budget=max(work.memory_budget // 2, 1))
    if isinstance(theirs, OuterGradient) and _is_summed(theirs, ours, work):
        theirs = theirs.total(half)
    few = min(t, size)
    samples, slab = half.fit_both(
        lambda n, rows: n * (6 * t * width * size + ours._factor_entries() + 4 * width * few * rows),
        ours.samples,
        few,
        "one sample's positions",
    )
    parts = []
    for chunk in spans(ours.samples, samples):
        n = chunk.stop - chunk.start
        pulled = (
            _pulled_by_pairs(theirs, ours, chunk, half)
            if isinstance(theirs, OuterGradient)
            else ours.pulled(theirs, chunk, half)
        )
        sides = (
            grouped(xp, xp.reshape(side, (n, t, outputs)), permutation, width)
            for side in (pulled, by_group(ours.rows, chunk, 1, work))
        )
        u, g = (xp.reshape(xp.permute_dims(side, (0, 2, 1, 3)), (n * width, t, size)) for side in sides)
        found = xp.sum(xp.reshape(_off_diagonal(xp, u, g, slab), (n, width)), axis=1)
        parts.append(xp.maximum(found, xp.zeros_like(found)))  # rounding may leave less than nothing
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _is_summed(theirs: OuterGradient, ours: OuterGradient, work: Workspace) -> bool:
    """Whether the summed validation gradient fits and is the cheaper way."""
    fits = 4 * ours.total_entries() * itemsize(work.xp, work.dtype) <= work.memory_budget
    return fits and theirs.total_cost() + ours.total_cost() <= theirs.pairwise_cost(ours)


def _pulled_by_pairs(
    theirs: OuterGradient, ours: OuterGradient, chunk: slice, work: Workspace
) -> Float[Array, "nt d"]:
    """Return the summed validation gradient times our columns, without the former."""
    xp = work.xp
    pair = 3 * theirs.positions * ours.positions
    validation, training = work.fit_both(
        lambda n, m: n * m * pair + n * theirs._factor_entries() + m * ours._factor_entries(),
        theirs.samples,
        chunk.stop - chunk.start,
        "one pair of samples",
    )
    parts = []
    for start in range(chunk.start, chunk.stop, training):
        part = slice(start, min(start + training, chunk.stop))
        pulled: Array = None
        for span in spans(theirs.samples, validation):
            product = _pulled_by(theirs, span, ours, part, work)
            pulled = product if pulled is None else pulled + product
        parts.append(pulled)
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)


def _pulled_by(
    theirs: OuterGradient, span: slice, ours: OuterGradient, part: slice, work: Workspace
) -> Float[Array, "nt d"]:
    xp = work.xp

    def products(left: Array, right: Array) -> Array:
        return xp.matmul(by_group(right, part, 1, work), xp.matrix_transpose(by_group(left, span, 1, work)))

    alpha = theirs._alpha(products, ours)
    return xp.matmul(alpha, by_group(theirs.rows, span, 1, work))[0, ...]


def _off_diagonal(
    xp: Namespace, u: Float[Array, "b t m"], g: Float[Array, "b t m"], slab: int
) -> Float[Array, " b"]:
    """Return sum_{i != k} (M_ik^2 + M_ik M_ki) for M = u^T g, a few rows of pairs at a time.

    By pairs of positions, `sum_ik M_ik M_ki = sum_tt' <u_t, g_t'> <g_t, u_t'>`, or by pairs of outputs,
    whichever are fewer.
    """
    t, size = u.shape[1:]
    if t <= size:
        factors = ((u, u, g, g), (u, g, g, u))
    else:
        v, h = xp.matrix_transpose(u), xp.matrix_transpose(g)
        factors = ((v, h, v, h), (v, h, h, v))
    diagonal = xp.sum(u * g, axis=1)
    found = -2.0 * xp.sum(diagonal * diagonal, axis=-1)
    for a, b, c, d in factors:
        for rows in spans(min(t, size), slab):
            left = xp.matmul(a[:, rows, :], xp.matrix_transpose(b))
            right = xp.matmul(c[:, rows, :], xp.matrix_transpose(d))
            found = found + xp.sum(left * right, axis=(1, 2))
    return found
