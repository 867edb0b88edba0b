"""Which training samples help and hurt each validation sample most; from a kernel that comes in blocks.

Needs the extra `dataset`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from lai_core._adapters import Array, Namespace, device_of, namespace_of
from lai_storage._safetensors import to_numpy
from lai_storage.columns import labels_of

__all__ = ["top_samples"]

EFFECTS = {"helps": 1.0, "hurts": -1.0}


def top_samples(
    blocks: Iterable[Array],
    *,
    top: int = 10,
    ids: Sequence[Any] | None = None,
    validation_ids: Sequence[Any] | None = None,
    samples: int | None = None,
    progress: bool = False,
) -> pa.Table:
    """Keep, for each validation sample, the training samples with the largest and the smallest scores.

    Memory holds one block and twice `top` columns; the table does not depend on how the kernel is cut.

    Parameters
    ----------
    blocks
        Of a kernel, each `(n_val, n)`: the next n training samples' scores for every validation sample, as
        `lai_core.ghost_kernel` gives them; positive helps.
    top
        How many samples of either effect are kept for a validation sample.
    ids, validation_ids
        What the samples are called; None: their numbers.
    samples
        How many training samples there will be, where it is known before: ids are then checked first.
    progress
        Whether to show a bar.

    Returns
    -------
    pyarrow.Table
        `validation`; `effect`, `helps` or `hurts`; `place` from 1, the strongest; `id` and `score` of the
        training sample. Fewer than `top` rows where fewer samples have a score of that sign. Of equal
        scores the first come first.

    Examples
    --------
    >>> import numpy as np
    >>> from lai_storage.top import top_samples
    >>> kernel = np.array([[3.0, -1.0, 2.0]])
    >>> [(row["effect"], row["id"]) for row in top_samples([kernel], top=1).to_pylist()]
    [('helps', 0), ('hurts', 1)]
    """
    if not isinstance(top, int) or top < 1:
        msg = f"top: expected a whole number of at least 1, got {top!r}"
        raise ValueError(msg)
    if samples is not None:
        _labels("ids", ids, samples)
    kept: dict[str, tuple[Array, Array]] = {}
    seen, rows = 0, None
    with tqdm(total=samples, unit=" samples", disable=not progress) as bar:
        for block in blocks:
            shape = tuple(getattr(block, "shape", ()))
            if len(shape) != 2 or rows not in {None, shape[0]}:
                expected = "(n_val, n)" if rows is None else f"({rows}, n), like the one before"
                msg = f"blocks: expected an array of shape {expected}, got {shape or type(block).__name__}"
                raise ValueError(msg)
            if rows is None:
                _labels("validation_ids", validation_ids, int(shape[0]))
            rows, count = map(int, shape)
            xp = namespace_of({"blocks": block})
            numbers = xp.broadcast_to(xp.arange(seen, seen + count, device=device_of(block)), block.shape)
            for effect, sign in EFFECTS.items():
                kept[effect] = _strongest(xp, kept.get(effect), sign * block, numbers, top)
            seen += count
            bar.update(count)
    named = _labels("ids", ids, seen), _labels("validation_ids", validation_ids, rows or 0)
    lists = {effect: tuple(to_numpy(each).tolist() for each in best) for effect, best in kept.items()}
    found = [
        {
            "validation": named[1][row],
            "effect": effect,
            "place": place,
            "id": named[0][number],
            "score": EFFECTS[effect] * strength,
        }
        for row in range(rows or 0)
        for effect, (strengths, numbers) in lists.items()
        for place, (strength, number) in enumerate(zip(strengths[row], numbers[row], strict=True), start=1)
        if strength > 0.0
    ]
    return pa.Table.from_pylist(found)


def _strongest(
    xp: Namespace, kept: tuple[Array, Array] | None, strengths: Array, numbers: Array, top: int
) -> tuple[Array, Array]:
    """Return the largest strengths of what was kept and what is new, with their samples' numbers."""
    strengths = xp.where(xp.isnan(strengths), -math.inf, strengths)  # what is no number comes last
    if kept is not None:
        strengths, numbers = (
            xp.concat(pair, axis=1) for pair in zip(kept, (strengths, numbers), strict=True)
        )
    order = xp.argsort(strengths, axis=1, descending=True, stable=True)[:, : min(top, strengths.shape[1])]
    return xp.take_along_axis(strengths, order, axis=1), xp.take_along_axis(numbers, order, axis=1)


def _labels(role: str, given: Any, count: int) -> Sequence[Any]:
    return range(count) if given is None else labels_of(role, given, count)
