"""Switch a model between training and eval mode, by its own `train()` and `eval()` if it overrides them.

A model may override them to drop a cache, to resample noise or to merge weights; to set the flags alone would
leave the cache of an earlier step in use. What merges weights into parameters is refused: nothing scored then
would be of the parameters that train.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from lai_torch._model.batch import tensors
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import Held, collect_held, forget, modules_of, restore_training, set_training

_OWN = "train", "eval"
_TORCHS = frozenset(vars(nn.Module()))
_FLAGS_ALONE = {("transformers.modeling_utils", f"PreTrainedModel.{name}") for name in _OWN}
"""Overrides that set the flags and nothing else, unless the model has kernels for each mode."""


def has_own_modes(modules: Sequence[nn.Module]) -> bool:
    """Whether a module overrides `train()` or `eval()`, in its class or by an attribute of its own."""
    if any(map(_overrides, set(map(type, modules)))):
        return True
    return any("train" in own or "eval" in own or own.get("_use_kernels") for own in map(vars, modules))


@cache
def _overrides(kind: type) -> bool:
    methods: list[Any] = [
        getattr(kind, name) for name in _OWN if getattr(kind, name) is not getattr(nn.Module, name)
    ]
    return any((method.__module__, method.__qualname__) not in _FLAGS_ALONE for method in methods)


class Caches:
    """The attributes of the modules with a `train()` or `eval()` of their own, which a forward pass may fill.

    Such a cache may hold the graph of the pass that filled it, which no second pass can go back through.
    """

    def __init__(self, found: Held) -> None:
        self._saved: list[tuple[dict[str, Any], dict[str, Any], list[tuple[Any, Any]]]] = []
        for module in found.memoise(_find_own_modes):
            own = _select_own(vars(module))
            containers = [(one, copy(one)) for one in own.values() if type(one) in {list, set, dict}]
            self._saved.append((vars(module), own, containers))

    def restore(self) -> None:
        """Put the attributes back, and what the lists, sets and dictionaries among them held."""
        for attributes, own, containers in self._saved:
            # what the pass added may hold its graph
            for name in _select_own(attributes).keys() - own.keys():
                del attributes[name]
            attributes.update(own)
            for container, contents in containers:
                container.clear()
                if isinstance(container, list):
                    container.extend(contents)
                else:
                    container.update(contents)


def _find_own_modes(found: Held) -> list[nn.Module]:
    return [module for module in found.modules if has_own_modes([module])]


def _select_own(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in _TORCHS}


@contextmanager
def enter_own_eval_mode(model: nn.Module, flags: Sequence[bool]) -> Iterator[None]:
    """Run the body in eval mode, entered by the model's own methods and left by them; see `use_eval_mode`.

    Raises
    ------
    ValueError
        If they write or replace parameters.
    """
    switch = _Switch(model)
    modules = switch.found.modules
    try:
        with switch:
            _call(model, mode=False)
        # an override may have left a module as it was
        set_training([module for module in modules if module.training], mode=False)
        yield
    finally:
        with switch:
            _set_back(modules, flags)
        switch.put_buffers_back()


def renew(model: nn.Module) -> None:
    """Let a model in eval mode drop its caches, as its `train()` does: parameters have changed."""
    modules = modules_of(model)
    flags = [module.training for module in modules]
    # caches of what parameters give are those of eval mode
    if any(flags) or not has_own_modes(modules):
        return
    switch = _Switch(model)
    with switch:
        _call(model, mode=True)
        _set_back(modules, flags)
    switch.put_buffers_back()


def _call(module: nn.Module, *, mode: bool) -> None:
    """Call a module's own `train()` or `eval()`; an exported program has none, and no modes."""
    try:
        if mode:
            module.train()
        else:
            module.eval()
    except NotImplementedError:
        set_training(modules_of(module), mode=mode)


def _set_back(modules: Sequence[nn.Module], flags: Sequence[bool]) -> None:
    """Give every module its flag back: parents come first, and take their children along."""
    for module, flag in zip(modules, flags, strict=True):
        if module.training != flag:
            _call(module, mode=flag)
    # a flag that its own method does not set
    restore_training(modules, flags)


class _Switch(TorchDispatchMode):
    """Watches a model's own `train()` or `eval()`: puts back random streams and what trains."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.found = model, collect_held(model)
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> "_Switch":
        """Note where the parameters' values lie, and which train."""
        self._before = self._parameters()
        self._streams: Streams | None = None
        super().__enter__()
        return self

    def _parameters(self) -> dict[str, tuple[nn.Parameter, int, bool]]:
        """Return the parameters as they now are, where in memory each is, and whether it trains."""
        found = collect_held(self.model).parameters
        return {name: (one, _place(one), one.requires_grad) for name, one in found.items()}

    def __exit__(self, *error: Any) -> None:
        """Put back random streams and what trains.

        Raises
        ------
        ValueError
            If a parameter was replaced.
        """
        super().__exit__(*error)
        if self._streams is not None:
            self._streams.restore()
        for one, _, trains in self._before.values():
            if one.requires_grad != trains:
                one.requires_grad_(trains)
        # a walk from before would not show what was replaced
        forget()
        now = self._parameters()
        for name, (one, place, _) in self._before.items():
            if error[0] is None and (name not in now or now[name][0] is not one or now[name][1] != place):
                raise _build_write_error(name)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, unless it writes to a parameter; keep a copy of a buffer that it writes to.

        Raises
        ------
        ValueError
            If it writes to a parameter.
        """
        kwargs = kwargs or {}
        # copied at the first operation: most switches run none
        if self._streams is None:
            self._streams = Streams(self.found.modules)
        # an operation writes to its first argument, or to `out`
        for written in tensors([args[:1], kwargs.get("out")]) if func._schema.is_mutable else ():
            where = _place(written)
            for name, (_, place, _) in self._before.items():
                if where and place == where:
                    raise _build_write_error(name)
            for buffer in self.found.buffers.values():
                if where and _place(buffer) == where:
                    self._buffers.setdefault(id(buffer), (buffer, buffer.detach().clone()))
        return func(*args, **kwargs)

    def put_buffers_back(self) -> None:
        for buffer, before in self._buffers.values():
            buffer.data.copy_(before)


def _place(one: Tensor) -> int:
    """Return where in memory a tensor is; 0 of one that is in several places, or in none yet."""
    elsewhere = is_lazy(one) or is_traceable_wrapper_subclass(one)
    return 0 if elsewhere or one.layout != torch.strided else one.untyped_storage().data_ptr()


def _build_write_error(name: str) -> ValueError:
    return ValueError(
        "model: expected train() and eval() that leave parameters as they are, got ones that write "
        f"{name!r}, so that the model that is scored, in eval mode, would not be the one that trains; switch "
        "off what merges or exchanges weights there (merge_weights=False)"
    )
