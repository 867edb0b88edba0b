"""Engines whose models nothing here can score: refused by name, before a pass that would fail or hang."""

from collections.abc import Iterable
from functools import lru_cache

from torch import Tensor

_BEFOREHAND = (
    "shard the model by fully_shard, or score a copy in plain torch beforehand by lai_torch.score_dataset "
    "and write its weights (lai_storage.weights)"
)
_PIPELINE = f"which runs a part of the model on each process; {_BEFOREHAND}"
REFUSED = {
    "deepspeed.runtime.pipe": _PIPELINE,
    "deepspeed.runtime.engine": (
        "which runs backward passes by itself; under ZeRO stages 1 and 2 score its module, by Curator("
        "engine.module, loss, None, validation, group=False).score(inputs, targets), and hand the weighted "
        "loss to engine.backward"
    ),
    "megatron": f"whose layers communicate in backward passes of their own; {_BEFOREHAND}",
    "torch.distributed.pipelining": _PIPELINE,
}
"""Where classes are defined that are refused, and what to do instead."""


def check_kinds_served(kinds: Iterable[type]) -> None:
    """Raise if one of the classes of a model and its modules belongs to an engine that is refused."""
    for refusal in filter(None, map(_refusal, set(kinds))):
        raise ValueError(refusal)


def check_whole(parameters: Iterable[Tensor]) -> None:
    """Raise if parameters are empty, as ZeRO stage 3 leaves them between passes."""
    if any(hasattr(parameter, "ds_id") for parameter in parameters):
        msg = f"model: expected whole parameters, got those of DeepSpeed's ZeRO stage 3; {_BEFOREHAND}"
        raise ValueError(msg)


@lru_cache(maxsize=4096)
def _refusal(kind: type) -> str | None:
    for base in kind.__mro__:
        for package, way_out in REFUSED.items():
            if f"{base.__module__}.".startswith(f"{package}."):
                name = f"{base.__module__}.{base.__name__}"
                return f"model: expected a torch.nn.Module that runs whole, got {name}, {way_out}"
    return None
