"""How often a step starts a kernel, and how often the host waits for a number: a count, on any device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
READS = {
    aten._local_scalar_dense,
    aten.bincount,
    aten.equal,
    aten.is_nonzero,
    aten.item,
    aten.masked_select,
    aten.nonzero,
    aten.nonzero_numpy,
    aten.unique_consecutive,
    aten.unique_dim,
    aten._unique,
    aten._unique2,
}
"""Operations whose result, or its shape, is a number that the host has to have."""
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
"""Operations that look for the true entries of a mask among their indices."""
LISTS = ("tolist", "numpy")
"""Methods that do the same without being operations."""
NO_KERNEL = {aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided}
"""Operations that make memory and fill it with nothing."""


@dataclass(frozen=True)
class Counts:
    """What a call did.

    Attributes
    ----------
    launches
        Operations that compute: all but views and empty memory.
    waits
        Operations that bring a number to the host: of a model on a GPU, it would wait for each.
    """

    launches: int
    waits: int


class Launches(TorchDispatchMode):
    """Counts launches and waits while it is the active mode."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.waits = 0

    def __enter__(self) -> "Launches":
        """Count `tolist` and `numpy` too, which read a tensor on the host without an operation."""
        for name in LISTS:
            setattr(Tensor, name, self._counting(getattr(torch._C.TensorBase, name)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop counting."""
        super().__exit__(*error)
        for name in LISTS:
            delattr(Tensor, name)

    def _counting(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tensor: Tensor, *args: Any, **options: Any) -> Any:
            self.waits += tensor.dtype != torch.uint8  # random states live on the host
            return read(tensor, *args, **options)

        return counted

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let captured graphs run under it: it changes nothing."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` and count."""
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        self.launches += not (func.is_view or packet in NO_KERNEL)
        self.waits += _waits(packet, args) or _comes_to_host(out, args)
        return out


def _waits(packet: Any, args: Any) -> bool:
    """Whether an operation needs a number on the host; those on random states, which live there, do not."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if packet in READS:
        return not (packet is aten.equal and tensors[0].dtype == torch.uint8)
    return packet in INDEXED and any(
        isinstance(one, Tensor) and one.dtype in {torch.bool, torch.uint8} for one in args[1]
    )


def _comes_to_host(out: Any, args: Any) -> bool:
    """Whether a tensor of another device is copied to the host."""
    here = isinstance(out, Tensor) and out.device.type == "cpu"
    return here and any(isinstance(one, Tensor) and one.device.type not in {"cpu", "meta"} for one in args)


def counted(run: Callable[[], Any]) -> Counts:
    """Return the launches and waits of a call."""
    with Launches() as counter:
        run()
    return Counts(counter.launches, counter.waits)
