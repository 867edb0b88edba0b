"""What a model's wrapper means to a curator: what is scored, what trains, who adds the gradients up."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lai_torch._curation.processes.blocks import comes_from, gathered
from lai_torch._curation.processes.finite import all_finite
from lai_torch._curation.processes.group import Agreed, Alone, Together
from lai_torch._model.walk import forget

ALIKE = 0.05
"""How far losses may be apart: training may be in half precision."""

AVERAGING = {
    "require_backward_grad_sync": True,
    "_comm_hooks": [],
    "reduce_grads": True,
    "gradient_divide_factor": None,
    "_all_reduce_hook": None,
}
"""What a wrapper that averages gradients has for attributes: the first two `DistributedDataParallel`."""

_WHOLE = nullcontext()


class Engine:
    """A model as its user handed it over, and the processes that share its batches.

    Attributes
    ----------
    model
        What is scored.
    trained
        What runs forward in training.
    group
        The processes.
    sharded
        Whether the parameters lie in parts on the processes.
    shards
        Whether `fully_shard` put them there: it adds up no gradients of the others.
    spread
        Whether several processes take part: their batches are one, or parameters lie in parts on them.
    compared
        Whether a batch has shown that the model with whole parameters is the one that trains, if its layers
        are parallel over features.
    lockstep
        Whether the training pass communicates, so that every process has to run one.
    """

    def __init__(
        self,
        # the model: wrapped by `DistributedDataParallel`, sharded by `fully_shard`, or neither
        given: nn.Module,
        loss: Any,  # which may be a module with parameters that are sharded, too
        group: Any,  # what the user said of the processes; see `Curator`
        *,
        # whether gradients are added up here whatever the wrapper does: the pass goes around it, or
        # they accumulate first
        own: bool,
    ) -> None:
        wrapper: Any = getattr(given, "_orig_mod", given)  # torch.compile of a wrapper
        wrapped = isinstance(wrapper, nn.parallel.DistributedDataParallel)
        self.model: nn.Module = wrapper.module if wrapped else given
        self.loss = loss
        self.shards = shards = any(map(_is_sharded, self.model.modules()))
        meshes = {p.device_mesh for p in self.model.parameters() if hasattr(p, "device_mesh")}
        self.sharded = shards or bool(meshes)
        self.compared = shards and not any(map(_is_parallel, self.model.modules()))
        self.compared = self.compared or not meshes
        features = () if self.compared else _features(meshes, shards=shards)
        self.group = group_of(wrapper, group, meshes, features, shards=shards)
        self.spread = self.sharded or self.group.size > 1
        self.lockstep = self.group.size > 1 and (shards or (wrapped and not own))
        self.trained: nn.Module = given if self.lockstep else self.model
        self._wrapper = wrapper

    @property
    def factor(self) -> float:
        """What a process's part of the loss is multiplied by: wrappers average, and a sum is meant."""
        return float(self.group.size) if self.lockstep else 1.0

    def check_averages(self) -> None:
        """Raise if the wrapper is told, now, not to average gradients over the processes."""
        wrappers: list[Any] = [self._wrapper]
        for module in filter(_is_sharded, self.model.modules()):
            state = module._get_fsdp_state()  # type: ignore[operator]
            wrappers += getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        for each in wrappers:
            for name, usual in AVERAGING.items():
                if getattr(each, name, usual) != usual:
                    msg = (
                        f"model: expected its wrapper to average gradients over the {self.group.size} "
                        f"processes, got {name}={getattr(each, name)!r}; leave out no_sync, communication "
                        "hooks and divide factors"
                    )
                    raise ValueError(msg)

    def add_up(self, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients over the processes where no wrapper has: one all-reduce per type of number.

        A parameter that no process has a gradient of is left without.
        """
        if self.lockstep or self.group.size == 1:
            return
        held = [parameter for parameter in parameters if parameter.requires_grad]
        with self.group.agreed():
            sparse = [p for p in held if p.grad is not None and p.grad.layout != torch.strided]
            if sparse:
                msg = (
                    "model: expected dense gradients to add up over the processes, got sparse ones; pass "
                    "sparse=False to the embedding"
                )
                raise ValueError(msg)
        own = [torch.zeros_like(p) if p.grad is None else _laid_out(p.grad, p) for p in held]
        flags = torch.tensor([p.grad is not None for p in held], device="cpu").to(local(held[0]))
        *sums, flags = self.group.summed([*map(local, own), flags])
        for parameter, given, total, found in zip(held, own, sums, flags.tolist(), strict=True):
            local(given).copy_(total)
            parameter.grad = given if found else None

    def finite(self, gradients: Sequence[Tensor], seen: bool | None = None) -> bool:
        """Say whether every gradient is finite, on every process where each holds its own part.

        `seen` is what their witness said, if it was asked.
        """
        own = all_finite([local(gradient) for gradient in gradients], seen)
        return not self.group.most(not own) if self.sharded else own

    def compare(self, losses: Tensor, scored: Tensor) -> None:
        """Raise unless the model that trains finds the losses with which the whole one was scored.

        Code that divides, say, its heads by the number of processes is another function there.
        """
        self.reset()
        found = self.group.whole(losses)
        scored = scored[: len(found)]
        known = torch.isfinite(found) & torch.isfinite(scored)
        off = float(((found - scored).abs()[known].max() / scored.abs()[known].max()) if known.any() else 0.0)
        self.compared = True
        with self.group.agreed():
            if off > ALIKE:
                msg = (
                    "model: expected one that finds the same losses with its layers parallel and with whole "
                    f"parameters, as it is scored, got losses {off:.1g} apart; have its code read sizes off "
                    "tensors, not off the number of processes"
                )
                raise ValueError(msg)

    def gathered(self, *, by_block: bool = True) -> AbstractContextManager[None]:
        """Have whole parameters in the model while the body runs, each in its own type, and no hooks of FSDP.

        They are gathered when an operation reads them, those of one `fully_shard` at a time; where not
        `by_block`, all of them beforehand.
        """
        if not self.sharded:
            return _WHOLE
        self.reset()
        forget()
        modules = [*self.model.modules(), *(self.loss.modules() if isinstance(self.loss, nn.Module) else ())]
        return gathered(modules, _is_sharded, self.group, by_block=by_block)

    def reset(self) -> None:
        """Reshard every module: after a forward pass alone, FSDP keeps the root unsharded."""
        for module in self.model.modules():
            if _is_sharded(module):
                module.reshard()  # type: ignore[operator]


def _laid_out(gradient: Tensor, parameter: Tensor) -> Tensor:
    """Return a gradient in parts as its parameter lies, if it is in parts at all."""
    placed: Any = parameter
    given: Any = gradient
    found: Tensor = (
        given.redistribute(placements=placed.placements) if hasattr(given, "placements") else given
    )
    return found


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def _is_sharded(module: Any) -> bool:
    """Whether `fully_shard` was called on a module. Nothing is imported for it, which takes a second."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def _is_parallel(module: nn.Module) -> bool:
    """Whether `parallelize_module` was called on a module."""
    hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
    return any(map(partial(comes_from, "torch.distributed.tensor"), hooks))


def group_of(
    model: nn.Module, given: Any, meshes: set[Any], features: Sequence[Any], *, shards: bool
) -> Alone:
    """Return the processes that share a batch: those given, else those that the wrapper is spread over.

    Those of `features` have the same rows; without others they are all that there are.
    """
    device = next((local(parameter).device for parameter in model.parameters()), torch.device("cpu"))
    running = dist.is_available() and dist.is_initialized()
    if given is not None and given is not False:
        if not running:
            msg = "group: expected torch.distributed to be initialized, it is not; leave it out"
            raise ValueError(msg)
        group = given.get_group() if hasattr(given, "get_group") else given
        if not isinstance(group, dist.ProcessGroup):
            msg = f"group: expected a process group, a mesh of one dimension, False or None, got {given!r}"
            raise TypeError(msg)
        _check_rows_differ(group, features)
        return Together(group, device, features)
    if isinstance(model, nn.parallel.DistributedDataParallel) or shards:
        if given is False:
            msg = "group: expected the processes of the model's wrapper, got False; leave it out"
            raise ValueError(msg)
        return Together(_wrapper_group(model, meshes), device, features)
    if features:
        if given is None and prod(group.size() for group in features) < dist.get_world_size():
            msg = (
                "group: some of the processes share the layers' features; pass the group of those that have "
                "different rows, for example group=mesh['dp'], or group=False if none have"
            )
            raise ValueError(msg)
        return Agreed(features, device)
    if given is None and running and dist.get_world_size() > 1:
        msg = (
            f"group: torch.distributed runs {dist.get_world_size()} processes and the model has no wrapper, "
            "so that their models would drift apart; pass group=torch.distributed.group.WORLD (one batch, "
            "spread over them), or group=False (each process trains a model of its own)"
        )
        raise ValueError(msg)
    return Alone()


def _features(meshes: set[Any], *, shards: bool) -> list[Any]:
    """Return the groups of the processes that share the features of layers.

    On a mesh of shards and features the last dimension is that of features, as torch has it.
    """
    mesh, *others = sorted(meshes, key=lambda each: -each.ndim)
    if others and not shards:  # beside shards, layers that are not parallel lie on the first dimension alone
        msg = f"model: expected the layers' features to lie on one mesh, got {len(meshes)} meshes"
        raise ValueError(msg)
    groups = list(mesh.get_all_groups())
    return groups[-1:] if shards else groups


def _check_rows_differ(group: Any, features: Sequence[Any]) -> None:
    """Raise if processes that share the features of layers are said to have different rows."""
    rows = set(dist.get_process_group_ranks(group))
    if any(len(rows & set(dist.get_process_group_ranks(each))) > 1 for each in features):
        msg = (
            "group: expected processes that have different rows, got some that share the layers' features; "
            "pass the mesh's other dimension, for example group=mesh['dp'], or leave it out if there is none"
        )
        raise ValueError(msg)


def _wrapper_group(model: nn.Module, meshes: set[Any]) -> Any:
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return model.process_group
    mesh = next(iter(meshes))
    if len(meshes) > 1 or mesh.ndim > 1:
        msg = (
            f"group: the parameters lie on a mesh of {mesh.ndim} dimensions {mesh.mesh_dim_names}; pass the "
            "group of the processes that have different rows, for example group=mesh['dp'], or "
            "torch.distributed.group.WORLD if all have"
        )
        raise ValueError(msg)
    return mesh.get_group()
