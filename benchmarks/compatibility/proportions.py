"""A transformers configuration with every width divided by one number, so that what agreed still agrees.

Widths of a configuration are sums and products of others: a hidden size is heads times a head's width, a
position's embedding is as wide as its coordinates' together. All of them divided by one number still agree,
whatever the fields are called, where sizes given by name need every name. What counts things (heads, groups,
kernels) stays; layers, experts and entries of vocabularies become few.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any

from benchmarks.compatibility.shrink import (
    COUNTS,
    SIZES,
    VOCABULARY,
    by_name,
    is_configuration,
    of_each_kind,
    plainly,
)

DIVISORS = (16, 8, 32, 64, 4)
SIDE = 64
"""Of images: every stage of a network that halves them five times has two rows left."""
LARGEST_COUNT = 256
"""A larger number is a width: divided, and rounded down, even where the divisor does not divide it."""
_COUNTS = re.compile(
    r"(^|_)num_|^n_(?!embd|inner|ctx)|head_num|heads|layers|groups|kernel|stride|expand|patch|_id$"
)


def in_proportion(kind: type, divisor: int, layers: int, *, filled: bool) -> Any:
    """Build a configuration, a dataclass of transformers, from its own defaults, its widths divided.

    `filled` decides what it leaves open, which elsewhere it derives of the rest: a field that is None gets
    the size of its name, all layers are of the usual kind, and it decodes.
    """
    default = kind()
    lengths = {getattr(default, name, None) for name in COUNTS} - {None}
    decided = SIZES | {"is_decoder": True, "n_shared_experts": 1, "layer_types": ["full_attention"] * layers}
    given = {}
    for each in dataclasses.fields(kind):
        value = getattr(default, each.name, None)
        if is_configuration(value):
            given[each.name] = in_proportion(type(value), divisor, layers, filled=filled)
        elif isinstance(value, list | tuple) and len(value) in lengths and len(value) > layers:
            given[each.name] = [_divided(each.name, v, divisor) for v in of_each_kind(value, layers)]
        elif filled and (value is None or value is False) and each.name in decided:
            given[each.name] = decided[each.name]
        elif each.default is not None and value is not None:  # None: derived of the others
            given[each.name] = _reduced(each.name, value, divisor, layers)
    return plainly(kind(**given))


def _reduced(name: str, value: Any, divisor: int, layers: int) -> Any:
    if name in COUNTS:
        return layers
    if name.endswith("_token_id") or (type(value) is int and "expert" in name):
        return min(value, SIZES.get(name, 4)) if isinstance(value, int) else value
    if type(value) is int and "vocab" in name:
        return VOCABULARY
    if name == "image_size":
        return [SIDE] * len(value) if isinstance(value, list | tuple) else SIDE
    if name == "depths" and isinstance(value, list | tuple):
        return [1] * len(value)
    return _divided(name, value, divisor)


def _divided(name: str, value: Any, divisor: int) -> Any:
    if isinstance(value, list | tuple):
        return [_divided(name, each, divisor) for each in value]
    width = type(value) is int and value >= divisor and not _COUNTS.search(name)
    return value // divisor if width and (value % divisor == 0 or value > LARGEST_COUNT) else value


def variants(kind: type) -> Iterator[Any]:
    """Yield small configurations of a kind: by the names of its fields, then in proportion."""
    yield from by_name(kind)
    for filled, layers, divisor in itertools.product((False, True), (2, 4), DIVISORS):
        try:
            configuration = in_proportion(kind, divisor, layers, filled=filled)
        except Exception:  # what a configuration says of sizes that it checks
            continue
        yield configuration
