"""What a call does, counted on any device: operations, launches, waits for the device, bytes alive."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

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
PLAIN = {Tensor, nn.Parameter}


class Counts(TorchDispatchMode):
    """Counts what runs while it is the active mode.

    `flops` are those of products and convolutions, as `torch.utils.flop_counter` counts them; `launches` all
    operations but views and empty memory; `waits` those that bring a number to the host, for each of which a
    model on a GPU would wait. `peak` is the most bytes alive at once in storages that operations made
    meanwhile, at the size that they then have.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.launches = self.waits = self.peak = 0
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()

    def __enter__(self) -> "Counts":
        """Count `tolist` and `numpy` too, which read a tensor on the host without an operation."""
        for name in LISTS:
            setattr(Tensor, name, self._counting(getattr(torch._C.TensorBase, name)))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
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
        """Run `func` and count; a class of tensors runs its own operations under the mode."""
        if not PLAIN.union({FakeTensor}).issuperset(types):
            return NotImplemented
        given = {id(leaf.untyped_storage()) for leaf in _stored((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if (formula := flop_registry.get(packet)) is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=out)
        self.launches += not (func.is_view or packet in NO_KERNEL)
        self.waits += _waits(packet, args) or _comes_to_host(out, args)
        made = [leaf.untyped_storage() for leaf in _stored(out)]
        self._made.update(storage for storage in made if id(storage) not in given)
        if made:
            self.peak = max(self.peak, sum(storage.nbytes() for storage in self._made))
        return out


def counted(run: Callable[[], Any]) -> Counts:
    with Counts() as counts:
        run()
    return counts


def _stored(tree: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if type(leaf) in PLAIN and leaf.device.type != "meta"]


def _waits(packet: Any, args: Any) -> bool:
    """Whether an operation needs a number on the host; those on random states, which live there, do not."""
    tensors = [one for one in args if isinstance(one, Tensor)]
    if packet in READS:
        return not (packet is aten.equal and tensors[0].dtype == torch.uint8)
    return packet in INDEXED and any(
        isinstance(one, Tensor) and one.dtype in {torch.bool, torch.uint8} for one in args[1]
    )


def _comes_to_host(out: Any, args: Any) -> bool:
    here = isinstance(out, Tensor) and out.device.type == "cpu"
    return here and any(isinstance(one, Tensor) and one.device.type not in {"cpu", "meta"} for one in args)
