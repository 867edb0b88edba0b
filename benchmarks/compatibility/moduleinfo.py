"""torch's own catalogue of modules, each between two layers, in eval mode.

Every case is the same small net, `head(module(embed(x)))`, whose per-sample meaning is never in doubt: the
module runs once on each sample, in a Python loop. Where one call on arguments joined along an axis gives the
same, which trying it shows, the net makes that call, as a user would.
"""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from benchmarks.compatibility.judge import UnfitError, squares
from benchmarks.compatibility.torch_case import Case

WIDTH, CLASSES, TRAINING, VALIDATION = 3, 2, 3, 2
NOISE = 0.05
"""How far a sample's argument is from the suite's: near enough to stay in the module's domain."""


def cases() -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """Yield the suite, the name and a function that builds, of every input of every module."""
    for info in importlib.import_module("torch.testing._internal.common_modules").module_db:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            options = {"dtype": torch.float64, "requires_grad": True, "training": False}
            inputs = info.module_inputs_func(info, device="cpu", **options)
        for number, given in enumerate(inputs):
            yield "moduleinfo", f"{info.name}#{number}", partial(_build, info.module_cls, given)


def _build(kind: type[nn.Module], given: Any) -> Case:
    """Build the net around one module and one input; it is about the module's parameters, if it has some."""
    torch.manual_seed(3)
    module = kind(*given.constructor_input.args, **given.constructor_input.kwargs).double().eval()
    args, kwargs = given.forward_input.args, given.forward_input.kwargs
    with torch.no_grad():
        module(*args, **kwargs)  # lazy ones are built by their first call
    net = Between(module, (args, kwargs))
    generator = torch.Generator().manual_seed(2)
    training, validation = (
        (torch.randn(n, WIDTH, generator=generator), torch.randn(n, CLASSES, generator=generator))
        for n in (TRAINING, VALIDATION)
    )
    trains = any(parameter.requires_grad for parameter in module.parameters())
    return Case(
        model=net,
        loss=squares,
        training=training,
        validation=validation,
        about=("module",) if trains else ("embed",),
        layers=net.layers,
        only=trains,
    )


class Between(nn.Module):
    """A module between two layers: its differentiable arguments are the samples' data."""

    layers: ClassVar = {"embed": ("embed", True), "head": ("head", True)}

    def __init__(self, module: nn.Module, given: Any) -> None:
        super().__init__()
        leaves, self.spec = pytree.tree_flatten(given)
        self.data = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad]
        self.leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if not self.data or not all(self.leaves[i].numel() for i in self.data):
            raise UnfitError("no floating input, or one without entries")
        self.module = module
        self.axis: int | None = None
        self.axis, self.results = next(filter(None, map(self._try_axis, (0, 1))), (None, []))
        self.base = self._cut()
        made = self._flat_rows(self._call(self.base, 1), 1)
        self.scale = float(made.detach().abs().max()) or 1.0
        self.embed = nn.Linear(WIDTH, sum(base.numel() for base in self.base))
        self.head = nn.Linear(made.numel(), CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Call the module on each sample's arguments."""
        pieces = torch.tanh(self.embed(inputs)).split([base.numel() for base in self.base], 1)
        rows = [
            base + NOISE * piece.reshape(-1, *base.shape)
            for base, piece in zip(self.base, pieces, strict=True)
        ]
        samples = len(inputs)
        if self.axis is None:
            hidden = torch.cat([self._flat_rows(self._call(row, 1), 1) for row in zip(*rows, strict=True)])
        else:
            hidden = self._flat_rows(self._call(self._join(rows), samples), samples)
        return self.head(torch.tanh(hidden / self.scale))

    def _try_axis(self, axis: int) -> tuple[int, list[int]] | None:
        """Return an axis and each result's, if one call along it gives what one call a sample does."""
        lengths = {self.leaves[i].shape[axis : axis + 1] for i in self.data}
        if len(lengths) > 1 or () in lengths:
            return None
        self.axis, generator = axis, torch.Generator().manual_seed(0)
        drawn = [torch.randn(TRAINING, *base.shape, generator=generator).tanh() for base in self._cut()]
        rows = [base + NOISE * noise for base, noise in zip(self._cut(), drawn, strict=True)]
        try:
            alone = [self._call(row, 1) for row in zip(*rows, strict=True)]
            together = self._call(self._join(rows), TRAINING)
        except Exception:  # what a module says of shapes that it does not take
            return None
        found = []
        for result, *parts in zip(together, *alone, strict=True):
            found += [side for side in range(min(result.ndim, 2)) if _is_joined(result, parts, side)][:1]
        return (axis, found) if len(found) == len(together) else None

    def _cut(self) -> list[Tensor]:
        arguments = [self.leaves[i] for i in self.data]
        return arguments if self.axis is None else [each.narrow(self.axis, 0, 1) for each in arguments]

    def _join(self, rows: list[Tensor]) -> list[Tensor]:
        """Return arguments of all samples, given samples first, as the module takes them."""
        assert self.axis is not None
        return [row.squeeze(self.axis + 1).movedim(0, self.axis) for row in rows]

    def _call(self, data: Any, samples: int) -> list[Tensor]:
        """Return the floating results, with a row a sample of the other tensors where they have one."""
        filled = [self._expand(leaf, samples) for leaf in self.leaves]
        for place, argument in zip(self.data, data, strict=True):
            filled[place] = argument
        args, kwargs = pytree.tree_unflatten(filled, self.spec)
        found = pytree.tree_leaves(self.module(*args, **kwargs))
        return [each for each in found if isinstance(each, Tensor) and each.is_floating_point()]

    def _expand(self, leaf: Any, samples: int) -> Any:
        axis, first = self.axis, self.leaves[self.data[0]]
        if axis is None or not isinstance(leaf, Tensor) or leaf.ndim <= axis:
            return leaf
        if leaf.shape[axis] != first.shape[axis]:
            return leaf
        sizes = [samples if each == axis else -1 for each in range(leaf.ndim)]
        return leaf.narrow(axis, 0, 1).expand(sizes)

    def _flat_rows(self, results: list[Tensor], samples: int) -> Tensor:
        axes = self.results or [None] * len(results)
        moved = [
            result if axis is None else result.movedim(axis, 0)
            for result, axis in zip(results, axes, strict=True)
        ]
        return torch.cat([result.reshape(samples, -1) for result in moved], 1)


def _is_joined(together: Tensor, alone: list[Tensor], axis: int) -> bool:
    if alone[0].ndim != together.ndim:
        return False
    joined = torch.cat(alone, axis)
    return joined.shape == together.shape and torch.allclose(joined, together, rtol=1e-9, atol=1e-12)
