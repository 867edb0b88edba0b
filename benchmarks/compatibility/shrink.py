"""A transformers configuration with every width divided by one number, so that what agreed still agrees.

Widths of a configuration are sums and products of others: a hidden size is heads times a head's width, a
position's embedding is as wide as its coordinates' together. All of them divided by one number still agree,
whatever the fields are called. What counts things (heads, groups, kernels) stays; layers, experts and entries
of vocabularies become few.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import Any

VOCABULARY, SIDE = 48, 64
"""Of images of 64 rows, every stage of a network that halves them five times has two left."""
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
DIVISORS = (16, 8, 32, 64, 4)
LARGEST_COUNT = 256
"""A larger number is a width: divided, and rounded down, even where the divisor does not divide it."""
MOST_PARAMETERS = 6_000_000
_COUNTS = re.compile(
    r"(^|_)num_|^n_(?!embd|inner|ctx)|head_num|heads|layers|groups|kernel|stride|expand|patch|_id$"
)


def shrink(kind: type) -> Iterator[Any]:
    """Yield small configurations of a kind, a dataclass of transformers, from its own defaults."""
    for layers, divisor in itertools.product((2, 4), DIVISORS):
        try:
            yield _divide(kind, divisor, layers)
        except Exception:  # what a configuration says of sizes that it checks
            continue


def _divide(kind: type, divisor: int, layers: int) -> Any:
    default = kind()
    lengths = {getattr(default, name, None) for name in LAYERS} - {None}
    given: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        name, value = each.name, getattr(default, each.name, None)
        if name in IDS:
            given[name] = IDS[name]
        elif hasattr(value, "to_dict") and hasattr(value, "model_type"):  # the configuration of a part
            given[name] = _divide(type(value), divisor, layers)
        elif isinstance(value, list | tuple) and len(value) in lengths and len(value) > layers:
            given[name] = [_divide_value(name, v, divisor) for v in _take_of_each_kind(value, layers)]
        elif each.default is not None and value is not None:  # None: derived of the others
            given[name] = _reduce(name, value, divisor, layers)
    configuration = kind(**given)
    # products that a loop over experts and heads makes
    configuration._attn_implementation = configuration._experts_implementation = "eager"
    configuration.use_cache = False
    if not hasattr(configuration, "decoder_start_token_id"):
        configuration.decoder_start_token_id = 0  # only checkpoints say where a decoder begins
    return configuration


def _reduce(name: str, value: Any, divisor: int, layers: int) -> Any:
    if name in LAYERS:
        return layers
    if type(value) is int and ("expert" in name or "topk" in name or name.endswith("_token_id")):
        return min(value, 4)
    if type(value) is int and "vocab" in name:
        return VOCABULARY
    if name == "image_size":
        return [SIDE] * len(value) if isinstance(value, list | tuple) else SIDE
    if name == "depths" and isinstance(value, list | tuple):
        return [1] * len(value)
    return _divide_value(name, value, divisor)


def _divide_value(name: str, value: Any, divisor: int) -> Any:
    if isinstance(value, list | tuple):
        return [_divide_value(name, each, divisor) for each in value]
    width = type(value) is int and value >= divisor and not _COUNTS.search(name)
    return value // divisor if width and (value % divisor == 0 or value > LARGEST_COUNT) else value


def _take_of_each_kind(values: Any, length: int) -> list[Any]:
    """Return one entry a layer, of as many kinds as there are layers, in turn."""
    first = {str(value): value for value in reversed(values)}
    kinds = [first[kind] for kind in dict.fromkeys(map(str, values))]
    return list(itertools.islice(itertools.cycle(kinds), length))
