"""Batches with other records than the summary that they are scored against, and what makes them the same.

Ghost multiplies records of one parameter with one another, and batches need not have the same: an expert that
no sample reaches has none, and a layer that runs until it is done has as many as it runs.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from lai_core.records.compatible import Layouts, layouts
from lai_torch._graph.assemble import TRANSPOSED
from lai_torch._graph.record import Reader, Recording


class UnlikeError(ValueError):
    """A batch has other records than what it is scored against; made again, both have the same.

    Who scores catches it, and makes the side again.
    """


def check_unlike(reader: Reader, summed: Layouts, found: Layouts) -> None:
    """Raise where a batch has other records than a summary, once known which are to be read otherwise."""
    before, now = _group_layouts(summed), _group_layouts(found)
    if not reader.every:
        # LAI leaves experts out: this batch, or an earlier part, has shown that a layer of the summary is one
        if reader.routed & before.keys():
            raise UnlikeError
        return
    names = {name for name in {*before, *now} if before[name] != now[name]}
    # What is left to autograd has one record of one kind in every batch, but in a side that was read before.
    kinds = [
        [[dict(one)["kind"] for one in side[name]] for side in (before, now)] for name in names & reader.left
    ]
    stale = any(now_kinds == ["GainTrace"] != before_kinds for before_kinds, now_kinds in kinds)
    unread = names - reader.left
    if unread or stale:  # what is left already would differ again, without an end
        reader.recall(reader.routed, reader.left.union(unread))
        raise UnlikeError


def record_alike(
    reader: Reader, *batches: tuple[Any, Any], before: Sequence[Recording] = ()
) -> list[Recording]:
    """Read batches, again where one has other records than the first, until all have the same.

    The first ones may have been read `before`.
    """
    found = [*before, *map(reader.record, batches[len(before) :])]
    while True:
        first, *others = (layouts(one.trace, "all" if reader.every else "output") for one in found)
        try:
            for other in others:
                if other != first:
                    check_unlike(reader, first, other)
        except UnlikeError:
            found = [reader.record(batch) for batch in batches]
        else:
            return found


def _group_layouts(found: Layouts) -> defaultdict[str, list[Any]]:
    grouped: defaultdict[str, list[Any]] = defaultdict(list)
    for layout in found:
        key = str(dict(layout)["weight key"])
        # a matrix of several is called NAME[i]
        grouped[key.removesuffix(TRANSPOSED).partition("[")[0]].append(layout)
    return grouped
