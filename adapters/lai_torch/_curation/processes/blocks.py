"""Parameters in parts on several processes, gathered one block at a time while a model runs."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from lai_torch._curation.processes.group import Group
from lai_torch._model.walk import forget


class Stored:
    """Where the values of a gathered parameter come from: its block, or a copy once it was written to."""

    def __init__(self, whole: Callable[[], Tensor]) -> None:
        self.whole = whole
        self.copy: Tensor | None = None

    def read(self) -> Tensor:
        """Return the values."""
        return self.whole() if self.copy is None else self.copy

    def is_changed(self) -> bool:
        """Whether there are other values than those of the block."""
        return self.copy is not None and not torch.equal(self.copy, self.whole())

    def write(self) -> None:
        """Keep a copy from now on, for an operation that writes."""
        if self.copy is None:
            self.copy = self.read().clone()


class Gathered(Tensor):
    """A whole parameter, or a view of one, that has values only while an operation reads it.

    So what autograd saves for a backward pass takes no memory either: the block is gathered again there.
    """

    _stored: Stored
    _form: Tensor
    _views: tuple[Callable[[Tensor], Tensor], ...]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls, stored: Stored, form: Tensor, device: torch.device, views: Sequence[Any] = ()
    ) -> "Gathered":
        """Return a tensor of the shape and strides of `form`, a tensor on the device meta."""
        made: Gathered = Tensor._make_wrapper_subclass(
            cls,
            form.shape,
            strides=form.stride(),
            storage_offset=form.storage_offset(),
            dtype=form.dtype,
            device=device,
        )
        made._stored, made._form, made._views = stored, form, tuple(views)
        return made

    @property
    def data(self) -> Tensor:
        """The tensor without its history. What is assigned is written, for torch would drop it."""
        return Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, values: Tensor) -> None:
        self.data.copy_(values)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Say what it stands for, without a collective."""
        del tensor_contents
        return f"Gathered(shape={tuple(self.shape)}, dtype={self.dtype})"

    def read(self) -> Tensor:
        """Return the values."""
        found = self._stored.read()
        for view in self._views:
            found = view(found)
        return found

    def _view(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        def view(tensor: Tensor) -> Any:
            return func(tensor, *args, **kwargs)

        form = view(self._form)
        if isinstance(form, Tensor):
            return Gathered(self._stored, form, self.device, (*self._views, view))
        return [
            Gathered(self._stored, one, self.device, (*self._views, lambda tensor, at=at: view(tensor)[at]))
            for at, one in enumerate(form)
        ]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Return a view as one that is read later; run any other operation on values."""
        kwargs, first = kwargs or {}, args[0] if args else None
        if func.is_view and isinstance(first, Gathered):
            return first._view(func, args[1:], kwargs)
        written = [
            one
            for one, argument in zip(args, func._schema.arguments, strict=False)
            if isinstance(one, Gathered) and argument.alias_info is not None and argument.alias_info.is_write
        ]
        for one in written:
            one._stored.write()
        plain, options = tree_map_only(Gathered, Gathered.read, (args, kwargs))
        out = func(*plain, **options)
        return written[0] if written else out


class Blocks:
    """Gathers blocks of parameters for whichever process asks, and holds the block that was asked for last.

    A gather is a collective, but when a process needs one depends on its rows: how often it runs the model,
    whether it raises. So processes gather in rounds. In each round every process says which block it wants,
    if any, and all take part in gathering what anyone wants. A process that wants none, because it is about
    to enter another collective, takes part in rounds until nobody wants any.
    """

    def __init__(
        self,
        group: Group,  # the processes
        blocks: Sequence[Sequence[Tensor]],  # the parameters of each block
    ) -> None:
        self.group, self.blocks = group, blocks
        self._held: list[Tensor] = []
        self._index: int | None = None

    def read(self, index: int, place: int) -> Tensor:
        """Return a parameter of a block whole; the block before is freed first."""
        if self._index != index:
            self.free()
            self._round(index)
        return self._held[place]

    def free(self) -> None:
        """Free what is held."""
        self._held, self._index = [], None

    def settle(self) -> None:
        """Free what is held, and take part in rounds until no process wants a block."""
        self.free()
        while self._round(None):
            pass

    def _round(self, wanted: int | None) -> bool:
        """Gather what any process wants, and hold what this one does; return whether any does."""
        self.group.settles = None  # the collectives of a round begin no other one
        try:
            asked = torch.zeros(len(self.blocks), dtype=torch.uint8, device=self.group.device)
            if wanted is not None:
                asked[wanted] = 1
            found: list[int] = self.group.largest(asked).nonzero().flatten().tolist()
            for index in found:
                whole = [self.group.whole(each.detach()).contiguous() for each in self.blocks[index]]
                if index == wanted:
                    self._held, self._index = whole, index
                del whole  # a block of another process's is freed before the next one
        finally:
            self.group.settles = self.settle
        return bool(found)


@contextmanager
def gather_parameters(
    modules: Sequence[nn.Module], block_of: Callable[[nn.Module], bool], group: Group, *, by_block: bool
) -> Iterator[None]:
    """Put whole parameters into modules, and take out the hooks that communicate.

    Parameters
    ----------
    modules
        Parents before their children.
    block_of
        Whether a module's parameters, those of its children that are no blocks included, are one block.
    group
        The processes.
    by_block
        Whether a block is gathered when an operation reads it, and not all of them beforehand.
    """
    parts = _blocks(modules, block_of)
    if not parts:  # whole already, by a call around this one
        yield
        return
    blocks = Blocks(group, parts)
    whole: dict[int, nn.Parameter] = {}  # tied ones stay one
    for index, block in enumerate(parts):
        for place, part in enumerate(block):
            if by_block:
                form = torch.empty(part.shape, dtype=part.dtype, device="meta")
                stored = Stored(partial(blocks.read, index, place))
                values: Tensor = Gathered(stored, form, part.device)
            else:
                values = group.whole(part.detach()).contiguous()
            whole[id(part)] = nn.Parameter(values, part.requires_grad)
    held = [
        (module, name, parameter)
        for module in modules
        for name, parameter in module._parameters.items()
        if id(parameter) in whole
    ]
    hooks: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in modules:
            for table in ("_forward_pre_hooks", "_forward_hooks"):
                own = vars(module)  # torch.compile of a module hands on what is set as an attribute
                if any(map(_spreads, own[table].values())):
                    hooks.append((own, table, own[table]))
                    kept = ((key, hook) for key, hook in own[table].items() if not _spreads(hook))
                    own[table] = OrderedDict(kept)
        for module, name, parameter in held:
            module._parameters[name] = whole[id(parameter)]
        forget()
        if not by_block:
            yield
            return
        group.settles = blocks.settle
        yield
        with group.raise_together():
            _check_unwritten((module, name, whole[id(parameter)]) for module, name, parameter in held)
    finally:
        group.settles = None
        blocks.free()
        for module, name, parameter in held:
            module._parameters[name] = parameter
        for own, table, registered in hooks:
            own[table] = registered
        forget(whole=True)


def _check_unwritten(parameters: Iterable[tuple[nn.Module, str, Any]]) -> None:
    """Raise if a forward pass wrote to a whole parameter: its parts stay as they were, in training too."""
    for module, name, parameter in parameters:
        if parameter._version or parameter._stored.is_changed():
            msg = (
                f"model: a forward pass wrote the sharded parameter {name!r} of a {type(module).__name__}, "
                "which its parts do not see; keep in a buffer what forward writes"
            )
            raise ValueError(msg)


def _blocks(modules: Sequence[nn.Module], block_of: Callable[[nn.Module], bool]) -> list[list[nn.Parameter]]:
    """Return the parameters in parts by blocks; one of no block is with those of its own module."""
    claimed: set[int] = set()
    found = []
    # the innermost block claims a parameter, before those around it that hold it, too
    children_first = modules[::-1]
    for module, recurse in [
        *((each, True) for each in children_first if block_of(each)),
        *((each, False) for each in children_first),
    ]:
        own = [
            parameter
            for parameter in module.parameters(recurse=recurse)
            if hasattr(parameter, "full_tensor") and id(parameter) not in claimed
        ]
        claimed.update(map(id, own))
        if own:
            found.append(own)
    return found


def _spreads(hook: Any) -> bool:
    """Whether a hook of `fully_shard` gathers parameters or frees them."""
    return comes_from("torch.distributed.fsdp", hook)


def comes_from(module: str, hook: Any) -> bool:
    """Whether a hook is defined in a module, or in one below."""
    named = getattr(hook, "__func__", hook)
    return str(getattr(named, "__module__", "")).startswith(module)
