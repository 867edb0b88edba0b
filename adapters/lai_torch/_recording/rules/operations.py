"""Any other function of a parameter and the batch: its output gradient, pulled back sample by sample.

Whatever a function does, the gradient of one sample's loss for its parameter is the function's pullback
of that sample's part of the output gradient. So the function runs on a copy of the parameter, its output
gets a probe, and the pullback waits until a record asks for it.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.overrides import resolve_name

from lai_torch._model.batch import mapped, tensors
from lai_torch._recording.watching.recorder import Recorder
from lai_torch._recording.watching.uses import Source, Use


def operation(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `func` on copies of its trainable parameters, and note a use of each one an output."""
    given = tensors((args, kwargs))
    sources: dict[int, Source] = {}
    for value in given:
        source = recorder.source(value)
        if source is not None and recorder.trains(source):
            sources[id(value)] = source
    if not sources or not any(map(recorder.is_batched, given)) or _writes(func, kwargs):
        return NotImplemented
    copies = {key: source.tensor.detach().requires_grad_() for key, source in sources.items()}
    out = func(*mapped(args, _replacing(copies)), **mapped(kwargs, _replacing(copies)))
    probed: dict[int, Tensor] = {}
    for result in tensors(out):
        if not result.requires_grad or id(result) in probed:
            continue
        probed[id(result)], probe = recorder.probe(result.clone())
        for key, source in sources.items():
            use = Use("operation", source, probe, result, batch_axis=recorder.batch_axis)
            use.options.update(leaf=copies[key], function=resolve_name(func) or str(func))
            recorder.note(use)
    return mapped(out, _replacing(probed)) if probed else out


def _replacing(copies: dict[int, Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda tensor: copies.get(id(tensor), tensor)


def _writes(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a function writes to what it is given: then it is left alone."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name in {"__setitem__", "__set__"} or (name.startswith("__i") and name != "__invert__")
    return name.endswith("_") or "out" in kwargs
