"""Whole parameters in the modules of a sharded model, for as long as it is scored."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from lai_torch._curation.processes.group import Group
from lai_torch._model.walk import forget

FSDP = "torch.distributed.fsdp"
"""Where the hooks of `fully_shard` are defined, which gather parameters and free them."""


class Whole(nn.Parameter):
    """A gathered parameter. Its class keeps the walks of a model from copying it: its parts are the copy."""


@contextmanager
def gather_parameters(modules: Sequence[nn.Module], group: Group) -> Iterator[None]:
    """Put whole parameters into modules, parents before their children, and take FSDP's hooks out.

    Raises
    ------
    ValueError
        If a forward pass wrote to one of them.
    """
    held: list[tuple[nn.Module, str, Any]] = [
        (module, name, part)
        for module in modules
        for name, part in module._parameters.items()
        if isinstance(part, DTensor)
    ]
    if not held:  # whole already, by a call around this one
        yield
        return
    parts = {id(part): part for _, _, part in held}  # tied ones stay one
    whole = {
        key: Whole(group.whole(part.detach()).contiguous(), part.requires_grad) for key, part in parts.items()
    }
    writes = {key: each._version for key, each in whole.items()}
    hooks: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in modules:
            for table in ("_forward_pre_hooks", "_forward_hooks"):
                own = vars(module)  # torch.compile of a module hands on what is set as an attribute
                if any(comes_from(FSDP, hook) for hook in own[table].values()):
                    hooks.append((own, table, own[table]))
                    kept = ((key, hook) for key, hook in own[table].items() if not comes_from(FSDP, hook))
                    own[table] = OrderedDict(kept)
        for module, name, part in held:
            module._parameters[name] = whole[id(part)]
        forget()
        yield
        with group.raise_together():
            for module, name, part in held:
                if whole[id(part)]._version != writes[id(part)] or _is_changed(whole[id(part)], part):
                    msg = (
                        f"model: a forward pass wrote the sharded parameter {name!r} of a "
                        f"{type(module).__name__}, which its parts do not see; keep in a buffer what forward "
                        "writes"
                    )
                    raise ValueError(msg)
    finally:
        for module, name, part in held:
            module._parameters[name] = part
        for own, table, registered in hooks:
            own[table] = registered
        forget(whole=True)


def _is_changed(whole: Tensor, part: Any) -> bool:
    """Whether this process's part has other values in the whole; writes to `.data` are not counted."""
    mesh = part.device_mesh
    now: Any = DTensor.from_local(whole.detach(), mesh, [Replicate()] * mesh.ndim, run_check=False)
    found, own = now.redistribute(placements=part.placements).to_local(), part.detach().to_local()
    return not bool(((found == own) | own.isnan()).all())


def comes_from(module: str, hook: Any) -> bool:
    """Whether a hook is defined in a module, or in one below."""
    named = getattr(hook, "__func__", hook)
    return str(getattr(named, "__module__", "")).startswith(module)
