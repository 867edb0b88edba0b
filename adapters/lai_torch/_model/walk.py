"""A model's modules, parameters and buffers, found in one walk: torch's generators take many times as long.

What they find is looked up anew each time, for a model may change between any two steps.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn


def modules_of(model: nn.Module, loss: Any = None) -> list[nn.Module]:
    """Return the modules of a model, and those of a loss that is one."""
    found = [module for _, module in named_modules(model)]
    if isinstance(loss, nn.Module):
        found += [module for _, module in named_modules(loss)]
    return found


def named_modules(root: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return what `root.named_modules()` yields, in its order."""
    if type(root).named_modules is not nn.Module.named_modules:
        return list(root.named_modules())
    found: list[tuple[str, nn.Module]] = []
    seen: set[nn.Module] = set()
    pending: list[tuple[str, nn.Module]] = [("", root)]
    while pending:
        name, module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        found.append((name, module))
        # a scripted module's table can only be walked by its items
        below = [(key, one) for key, one in module._modules.items() if one is not None]
        dot = name + "." if name else ""
        pending.extend((dot + key, one) for key, one in reversed(below))
    return found


def named_parameters(model: nn.Module, loss: Any = None) -> dict[str, nn.Parameter]:
    """Return the parameters by name, each once; those of a loss that is a module too: `loss.NAME`."""
    found = _held(model, "parameters")
    if isinstance(loss, nn.Module):
        known = set(map(id, found.values()))
        own = _held(loss, "parameters").items()
        found |= {f"loss.{name}": parameter for name, parameter in own if id(parameter) not in known}
    return found


def named_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the buffers by name, each once."""
    return _held(model, "buffers")


def _held(root: nn.Module, kind: str) -> dict[str, Any]:
    """Return what the modules hold of a kind, as `named_parameters()` or `named_buffers()` does."""
    if getattr(type(root), f"named_{kind}") is not getattr(nn.Module, f"named_{kind}"):
        return dict(getattr(root, f"named_{kind}")())
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for prefix, module in named_modules(root):
        for name, tensor in getattr(module, f"_{kind}").items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[f"{prefix}.{name}" if prefix else name] = tensor
    return found


def set_training(modules: Iterable[nn.Module], *, mode: bool) -> None:
    """Give modules a flag of training; `nn.Module.__setattr__` takes ten times as long."""
    for module in modules:
        own = module.__dict__
        if "training" in own and type(module).__setattr__ is nn.Module.__setattr__:
            own["training"] = mode
        else:
            module.training = mode
