"""A tensor that stands for a whole parameter, and has values only while an operation reads it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


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

    def _viewed(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
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
            return first._viewed(func, args[1:], kwargs)
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
