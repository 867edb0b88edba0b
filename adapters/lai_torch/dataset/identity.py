"""What torch's tensors, modules and estimators are made of, for fingerprints of runs."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from lai_storage.identity import is_installed, parts_of
from torch import Tensor, nn

_OF_EVERY_MODULE = {
    *vars(nn.Module()), "_compiled_call_impl", "_is_torch_compile", "_flat_weights", "_flat_weight_refs",
}  # fmt: skip
"""Attributes that hold flags, hooks and what has a name of its own; the last two are lists of parameters."""
_WRAPPERS = "torch.nn.parallel", "torch.distributed"


def code_of(model: nn.Module) -> Iterator[Any]:
    """Yield each module's name, class, attributes and forward hooks: all but parameters and buffers."""
    for name, module in getattr(model, "_orig_mod", model).named_modules(remove_duplicate=False):
        yield name
        yield type(module)
        # a package's private attributes are its caches; those of wrappers are sockets, buckets and counters
        private = () if not is_installed(type(module).__module__) else ("_", "name_or_path")
        if not type(module).__module__.startswith(_WRAPPERS):
            held = {key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}
            yield {key: value for key, value in held.items() if not key.startswith(private)}
        with suppress(Exception):  # a scripted module's code has no forward pass, say
            yield getattr(module, "code", None)  # of a graph or a script
        yield [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name, those that no state dict has, too."""
    model = getattr(model, "_orig_mod", model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters | dict(model.named_buffers(remove_duplicate=False))


@parts_of.register
def _(tensor: Tensor) -> Iterator[Any]:
    yield f"{tensor.dtype}{tuple(tensor.shape)}"
    if isinstance(tensor, nn.Parameter):
        yield tensor.requires_grad  # frozen layers have no score
    if hasattr(tensor, "__tensor_flatten__"):  # sharded, quantised: tensors within
        yield {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}
        return
    dense = tensor.detach()
    if tensor.layout is not torch.strided:
        dense = dense.to_dense()
    yield memoryview(dense.cpu().contiguous().flatten().view(torch.uint8).numpy().data)


@parts_of.register
def _(module: nn.Module) -> Iterator[Any]:
    yield list(code_of(module))
    yield tensors_of(module)


@parts_of.register
def _(function: torch.jit.ScriptFunction) -> Iterator[Any]:
    yield function.code
