"""What a model's wrapper means to a curator: what is scored, what trains, who adds the gradients up."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lai_torch._curation.processes.group import Group
from lai_torch._curation.processes.shards import comes_from, gather_parameters
from lai_torch._model.walk import modules_of

AVERAGING = {
    "require_backward_grad_sync": True,
    "reduce_grads": True,
    "gradient_divide_factor": None,
    "_all_reduce_hook": None,
}
"""What a wrapper that averages gradients has for attributes: the first `DistributedDataParallel`."""
HOOKS = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook")
"""torch's own communication hooks that average, in whichever precision."""

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
        Whether the parameters lie in parts on the processes: `fully_shard` put them there.
    spread
        Whether several processes take part: their batches are one, or parameters lie in parts on them.
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
        self.sharded = any(map(_is_sharded, self.model.modules()))
        # layers run whole: parameters may lie in parts, but by `fully_shard` alone
        for name, module in self.model.named_modules():
            hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
            apart = not self.sharded and any(hasattr(p, "device_mesh") for p in module._parameters.values())
            if apart or any(comes_from("torch.distributed.tensor", hook) for hook in hooks):
                msg = (
                    f"model: expected layers that run whole on each process, got {name or 'all'!r} spread "
                    "over features (tensor parallel); shard by fully_shard alone, or score a whole copy "
                    "beforehand"
                )
                raise ValueError(msg)
        self.group = _group_of(wrapper, group, sharded=self.sharded)
        self.spread = self.sharded or self.group.size > 1
        self.lockstep = self.group.size > 1 and (self.sharded or (wrapped and not own))
        self._wrapper = wrapper
        # what a process's part of the loss is multiplied by: wrappers average, and a sum is meant
        self.trained, self.factor = self.model, 1.0
        if self.lockstep:
            self.trained, self.factor = given, float(self.group.size)

    def check_averages(self) -> None:
        """Raise if the wrapper is told, now, not to average gradients over the processes."""
        wrappers: list[Any] = [self._wrapper]
        for module in filter(_is_sharded, self.model.modules()):
            state = module._get_fsdp_state()  # type: ignore[operator]
            wrappers += getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        off = [
            f"{name}={getattr(each, name)!r}"
            for each in wrappers
            for name, usual in AVERAGING.items()
            if getattr(each, name, usual) != usual
        ]
        hooks = [hook for hook, _ in getattr(self._wrapper, "_comm_hooks", ())]
        off += [f"the hook {hook!r}" for hook in hooks if getattr(hook, "__name__", "") not in HOOKS]
        if off:
            msg = (
                f"model: expected its wrapper to average gradients over the {self.group.size} processes, "
                f"got {off[0]}; leave out no_sync, divide factors, and communication hooks other than "
                f"torch's {', '.join(HOOKS)}"
            )
            raise ValueError(msg)

    def add_up(self, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients over the processes where no wrapper has: one all-reduce per type of number.

        A parameter that no process has a gradient of is left without.
        """
        # the wrapper adds them up in the backward pass
        if self.lockstep or self.group.size == 1:
            return
        held = [parameter for parameter in parameters if parameter.requires_grad]
        with self.group.raise_together():
            sparse = [p for p in held if p.grad is not None and p.grad.layout != torch.strided]
            if sparse:
                msg = (
                    "model: expected dense gradients to add up over the processes, got sparse ones; pass "
                    "sparse=False to the embedding"
                )
                raise ValueError(msg)
        own = [torch.zeros_like(p) if p.grad is None else p.grad for p in held]
        # added up with the gradients: how many processes have one of each parameter
        flags = torch.tensor([p.grad is not None for p in held], device="cpu").to(held[0])
        *sums, flags = self.group.reduce_sum([*own, flags])
        for parameter, given, total, found in zip(held, own, sums, flags.tolist(), strict=True):
            given.copy_(total)
            parameter.grad = given if found else None

    def gather(self) -> AbstractContextManager[None]:
        """Have whole parameters in the model while the body runs, in their own types, and no hook of FSDP."""
        if not self.sharded:
            return _WHOLE
        self.reset()
        # a loss may hold sharded parameters, too
        return gather_parameters(modules_of(self.model, self.loss), self.group)

    def reset(self) -> None:
        """Reshard every module: after a forward pass alone, FSDP keeps the root unsharded."""
        for module in self.model.modules():
            if _is_sharded(module):
                module.reshard()  # type: ignore[operator]


def local(tensor: Tensor) -> Tensor:
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    return tensor


def _is_sharded(module: Any) -> bool:
    """Whether `fully_shard` was called on a module. Nothing is imported for it, which takes a second."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def _group_of(model: nn.Module, given: Any, *, sharded: bool) -> Group:
    """Return the processes that share a batch: those given, else those that the wrapper is spread over."""
    device = next((local(parameter).device for parameter in model.parameters()), torch.device("cpu"))
    running = dist.is_available() and dist.is_initialized()
    wraps = isinstance(model, nn.parallel.DistributedDataParallel)
    if given is not None and given is not False:
        if not running:
            msg = "process_group: expected torch.distributed to be initialized, it is not; leave it out"
            raise ValueError(msg)
        group = given.get_group() if hasattr(given, "get_group") else given
        if not isinstance(group, dist.ProcessGroup):
            msg = f"process_group: expected one, a mesh of one dimension, False or None, got {given!r}"
            raise TypeError(msg)
        return Group(group, device)
    if wraps or sharded:
        if given is False:
            msg = "process_group: expected the processes of the model's wrapper, got False; leave it out"
            raise ValueError(msg)
        if wraps:
            return Group(model.process_group, device)
        meshes = {each.device_mesh for each in model.parameters() if hasattr(each, "device_mesh")}
        mesh: Any = next(iter(meshes))
        if len(meshes) > 1 or mesh.ndim > 1:
            msg = (
                f"process_group: the parameters lie on a mesh of {mesh.ndim} dimensions "
                f"{mesh.mesh_dim_names}; pass the processes that have different rows, for example "
                "mesh['dp'], or torch.distributed.group.WORLD if all have"
            )
            raise ValueError(msg)
        return Group(mesh.get_group(), device)
    # whether their batches are one cannot be seen
    if given is None and running and dist.get_world_size() > 1:
        msg = (
            f"process_group: torch.distributed runs {dist.get_world_size()} processes and the model has no "
            "wrapper, so that their models would drift apart; pass torch.distributed.group.WORLD (one batch, "
            "spread over them), or False (each process trains a model of its own)"
        )
        raise ValueError(msg)
    return Group()
