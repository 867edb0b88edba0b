"""Watch a forward pass: which functions use which parameters, on what, and what comes back to them.

A `TorchFunctionMode` sees every call of the model, functional ones included, so that nothing
depends on module hooks. Parameters are known by identity. Where a use is understood, the function
runs on a detached parameter and its output gets a tap; what is not understood stays connected to
the parameter itself, and shows in the end as a gradient that no use explains. So a gap cannot be
silent.
"""

import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from lai_torch._model.batch import tensors
from lai_torch._model.valid import masked_mean
from lai_torch._recording.watching.chain import check_rows, gates_between
from lai_torch._recording.watching.plan import Calls
from lai_torch._recording.watching.probes import Tap, attach
from lai_torch._recording.watching.routed import Experts, Routed
from lai_torch._recording.watching.sample_axis import Layout, by_sample, candidates, fitting
from lai_torch._recording.watching.uses import Source, Use

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Shortcut:
    """What makes recording for LAI cheap once a model is known: which layer is last, what is kept.

    Attributes
    ----------
    last
        How many layers are used before the last one: until then nothing is differentiated.
    mean
        Whether inputs are averaged over positions at once.
    """

    last: int
    mean: bool


class Recorder(TorchFunctionMode):
    """Records the uses of a model's parameters while it is the active mode.

    Parameters
    ----------
    parameters, buffers
        What to know, by name.
    samples
        How many samples the batch has.
    batch
        The tensors that depend on the sample: inputs and targets.
    rules
        What to do for each function; `NotImplemented` leaves it to the function itself.
    other
        What to do for a function that has no rule, or that its rule leaves to it.
    every_layer
        Whether gradients are wanted at every layer, or only behind the last one.
    shortcut
        What an earlier recording of the same model tells: enter with gradients off, they are switched
        on at the last layer.
    known
        Where the samples were at each use in an earlier recording of the same model.
    skipped
        Names of parameters whose uses are left to the functions themselves.
    live
        Whether the graph is left whole from the parameters up, for a backward pass of the caller's.
    gates
        Whether to read off what each layer's output is multiplied by on its way into the next layer.
    trainable
        Names of the parameters that train; None: those that require a gradient.
    valid
        Which positions count in a mean, `(n, t)`; None: all.
    calls
        Notes the calls, and passes by those that are no layers where an earlier pass has told.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        buffers: Mapping[str, Tensor],
        samples: int,
        batch: Iterable[Tensor],
        rules: dict[Any, Rule],
        *,
        every_layer: bool,
        other: Rule | None = None,
        shortcut: Shortcut | None = None,
        known: Sequence[Layout | None] = (),
        skipped: frozenset[str] = frozenset(),
        live: bool = False,
        gates: bool = False,
        trainable: Iterable[str] | None = None,
        valid: Tensor | None = None,
        calls: Calls | None = None,
    ) -> None:
        super().__init__()
        self.calls = Calls() if calls is None else calls
        self.shortcut = shortcut
        self.known = known
        self.skipped = skipped
        self.live = live
        self.gates, self.valid = gates, valid
        self.samples = samples
        self.rules = rules
        self.every_layer = every_layer
        self.other = other
        self.uses: list[Use] = []
        self.experts = Experts(samples)
        self.stuck: dict[str, dict[Any, tuple[int, bool]]] = {}
        self._times: Counter[tuple[str, Any]] = Counter()
        self.wrapped: set[str] = set()  # parameters used inside of vmap, where values cannot be seen
        self.batch_axis: int | None = None
        self.kinds: set[torch.dtype] = set()
        self.replaying = False
        self.parameters, self.buffers = parameters, buffers
        if trainable is None:
            trainable = (name for name, parameter in self.parameters.items() if parameter.requires_grad)
        self.trainable = frozenset(trainable)
        self.owners = {id(buffer): name for name, buffer in buffers.items()}
        self._sources = {
            id(parameter): Source(parameter, (name,), whole=True)
            for name, parameter in self.parameters.items()
        }
        self._own = frozenset(self._sources)
        self._batched: Any = WeakTensorKeyDictionary()
        self._products: Any = WeakTensorKeyDictionary()
        self._anchors: dict[torch.device, Tensor] = {}
        for tensor in batch:
            self._batched[tensor] = True

    def fresh(self, batch: Iterable[Tensor]) -> "Recorder":
        """Return a recorder of another batch that treats the model as this one does."""
        return Recorder(
            self.parameters,
            self.buffers,
            self.samples,
            batch,
            self.rules,
            every_layer=self.every_layer,
            other=self.other,
            skipped=self.skipped,
            trainable=self.trainable,
        )

    def source(self, value: Any) -> Source | None:
        """Return what is known of `value` if it is a parameter or computed from parameters alone."""
        found = self._sources.get(id(value)) if isinstance(value, Tensor) else None
        return None if found is None or self.skipped.intersection(found.names) else found

    def is_source(self, value: Any) -> bool:
        """Whether `value` is a parameter or computed from parameters alone, skipped ones included."""
        return isinstance(value, Tensor) and id(value) in self._sources

    def trains(self, source: Source) -> bool:
        """Whether a parameter in `source` is trainable."""
        return not self.trainable.isdisjoint(source.names)

    def is_batched(self, value: Any) -> bool:
        """Whether `value` depends on the batch, as far as one can see.

        What a function that cannot be watched returned has an origin nobody knows, and counts as
        dependent; where nothing is differentiated yet, so does all that is no parameter or buffer.
        """
        if not isinstance(value, Tensor):
            return False
        if value in self._batched:
            return True
        if id(value) in self._sources or id(value) in self.owners:
            return False
        return value.grad_fn is not None or (self.shortcut is not None and value.is_floating_point())

    def mark(self, value: Tensor) -> Tensor:
        """Note that `value` depends on the batch."""
        self._batched[value] = True
        return value

    def rearranged(self, value: Tensor, other: Tensor) -> Tensor:
        """Note that `value` is another view of the tensor `other`, which is computed from parameters."""
        if value is not other:
            self._sources[id(value)] = Source(value, self._sources[id(other)].names, whole=False)
        return value

    def factors(self, product: Any) -> tuple[Tensor, Tensor] | None:
        """Return the parameter and the tensor of the batch whose product entry by entry `product` is.

        None is returned for any other tensor, and where one of the three was overwritten since.
        """
        found = self._products.get(product) if isinstance(product, Tensor) else None
        if found is None or found[2] != _versions(*found[:2], product):
            return None
        return found[:2]

    def explained(self, product: Tensor) -> None:
        """Note that what a product entry by entry does with its parameter is understood after all."""
        first, second, _, func = self._products[product]
        source = self._sources[id(first if id(first) in self._sources else second)]
        for name in source.names:
            self._times[name, func] -= 1
            used = self.stuck.get(name, {})
            if func in used and not self._times[name, func]:
                del used[func]
            if not used:
                self.stuck.pop(name, None)

    def cut(self, tensor: Tensor) -> Tensor:
        """Return `tensor` cut off from the graph, unless that is to be left whole."""
        return tensor if self.live else tensor.detach()

    def read_gates(self, inputs: Tensor, name: str) -> None:
        """Note, where gates are wanted, how the layer before makes the input of the layer `name`."""
        if self.gates and not self.replaying:
            check_rows(inputs, self.samples, name)
            if self.uses:
                self.uses[-1].gates = gates_between(self.uses[-1], inputs, self.anchors, name, self.kinds)

    def kept(self, activations: Tensor, kind: str) -> Tensor:
        """Return what is kept of a layer's input: all of it, or its mean over positions."""
        cut = self.shortcut
        if cut is None or not cut.mean or len(self.uses) >= cut.last:
            return activations
        if kind == "convolution":
            return activations.mean(tuple(range(2, activations.ndim)), keepdim=True)
        known = self.known_layout(len(self.uses))
        layouts = candidates(activations.shape[:-1], self.samples, self.batch_axis)
        layout = None if known is None else fitting(known, layouts)
        if layout is None or (activations.ndim == 2 and layout.inner == 1):
            return activations
        return masked_mean(by_sample(activations, layout, self.samples), self.valid)

    def known_layout(self, index: int) -> Layout | None:
        """Return where the samples were at a use in an earlier recording, if there was one."""
        return self.known[index] if index < len(self.known) else None

    def note(self, use: Use) -> None:
        """Keep a use; what checkpointing runs again during a backward pass is no second use."""
        if not self.replaying:
            self.uses.append(use)

    def note_routed(self, uses: Iterable[Routed]) -> None:
        """Keep uses of an expert layer's matrices; what checkpointing runs again is no second use."""
        if not self.replaying:
            self.experts.uses.extend(uses)

    def differentiate(
        self, values: Tensor, wanted: list[Tensor], into: str | None
    ) -> tuple[Tensor | None, ...]:
        """Differentiate `values` as `torch.autograd.grad` does, watching what checkpointing runs again.

        What arrives at the taps is kept as their gradient `into`.

        Raises
        ------
        ValueError
            If a checkpoint is of the reentrant kind, which no one can differentiate piecewise.
        """
        for use in self.uses:
            use.tap.into = into
            if into is not None and use.kind != "direct":
                setattr(use.tap, into, None)  # what a gradient inside the forward pass may have left
        for routed in self.experts.uses:
            routed.tap.into = into if into == "gradient" else None
            if into == "gradient":
                routed.tap.gradient = None
        self.replaying = True
        try:
            with self:
                return opened(torch.autograd.grad)(values, wanted, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant" not in str(error):
                raise
            msg = (
                "model: a checkpoint with use_reentrant=True cannot be traced; pass use_reentrant=False, or "
                "call model.eval() where that turns checkpointing off"
            )
            raise ValueError(msg) from error
        finally:
            self.replaying = False

    @property
    def anchors(self) -> list[Tensor]:
        """The leaves that the taps hang from, one a device."""
        return list(self._anchors.values())

    def tap(self, output: Tensor) -> tuple[Tensor, Tap]:
        """Put a tap on `output`."""
        if self.shortcut is not None and len(self.uses) < self.shortcut.last:
            return self.mark(output), Tap()
        if self.shortcut is not None:
            torch.set_grad_enabled(mode=True)
        device = output.device
        if device not in self._anchors:
            self._anchors[device] = torch.zeros((), device=device, requires_grad=True)
        tapped, tap = attach(output, self._anchors[device])
        return self.mark(tapped), tap

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, by its rule where it uses a parameter."""
        kwargs = kwargs or {}
        if not self.replaying and self.calls.passes_by(func):
            return func(*args, **kwargs)
        place, uses = self.calls.place, len(self.uses)
        if func in _DIFFERENTIATING and not self.replaying:
            self._check_differentiable()
        involved = tensors((args, kwargs))
        if not involved:
            return func(*args, **kwargs)
        inputs = [tensor for tensor in involved if id(tensor) not in self._own]
        if self.calls.follows and not self.replaying:  # what checkpoints run again is no call of the plan
            self.calls.follows = len(inputs) == 1
            for tensor in inputs:
                self._batched[tensor] = True
        rule = None if any(map(is_functorch_wrapped_tensor, involved)) else self.rules.get(func, self.other)
        out = NotImplemented if rule is None else rule(self, func, *args, **kwargs)
        understood = out is not NotImplemented and rule is not self.other
        if out is NotImplemented and rule is not self.other is not None:
            out = self.other(self, func, *args, **kwargs)
        if out is NotImplemented:
            out = func(*args, **kwargs)
        results = (out, args[:1]) if func is torch.Tensor.__setitem__ else out
        self._follow(func, involved, results, understood=understood)
        if len(self.uses) > uses:
            self.calls.is_layer(place, plain=len(inputs) == 1)
        return out

    def _check_differentiable(self) -> None:
        """Raise where a gradient inside the forward pass would run into layers that are cut off.

        Raises
        ------
        ValueError
            If the recording is for LAI: what a loss does with that gradient is no readout of a layer.
        """
        if not self.every_layer:
            msg = (
                "model: takes a gradient inside its forward pass, so that the loss reads its layers through "
                "their derivatives too, which no readout of a layer sees; use estimator 'ghost' or 'exact'"
            )
            raise ValueError(msg)

    def _follow(self, func: Any, involved: list[Tensor], out: Any, *, understood: bool) -> None:
        """Note what the outputs of `func` depend on, and the parameters in it if no rule did."""
        results = tensors(out)
        if not results or func in _SHAPE_ONLY:
            return
        batched = any(tensor in self._batched for tensor in involved) or any(map(self.is_batched, involved))
        sources = [found for tensor in involved if (found := self._sources.get(id(tensor))) is not None]
        names = tuple(dict.fromkeys(name for found in sources for name in found.names))
        if self.every_layer and batched:
            self.experts.follow_from(func, involved, results)
        if names and any(map(is_functorch_wrapped_tensor, involved)):
            self.wrapped.update(names)
        if func in _PRODUCTS and len(sources) == 1 < len(involved) == 2 and batched:
            self._products[out] = (*involved, _versions(*involved, out), func)
        for result in results:
            if result.is_floating_point() or result.is_complex():
                self.kinds.add(result.dtype)
            if batched:
                self._batched[result] = True
            elif result in self._batched:
                continue
            elif names and id(result) not in self._sources and self._carries(names, result):
                self._sources[id(result)] = Source(result, names, whole=False)
        if batched and not understood and any(result.requires_grad for result in results):
            largest = max((tensor.numel() for tensor in involved if self.is_batched(tensor)), default=0)
            grows = any(result.numel() > largest for result in results)
            for found in sources:
                for name in found.names:
                    self._times[name, func] += 1
                    self.stuck.setdefault(name, {}).setdefault(func, (found.tensor.ndim, grows))

    def _carries(self, names: tuple[str, ...], result: Tensor) -> bool:
        """Whether the values of the parameters `names` go into `result`."""
        frozen = self.trainable.isdisjoint(names)
        real = result.is_floating_point() or result.is_complex()
        return real and (result.requires_grad or frozen)


def opened(func: Any) -> Any:
    """Copy a Python function of torch so that it runs its body rather than hand itself to the mode."""
    globals_ = {**func.__globals__, "has_torch_function": lambda _: False}
    copied = types.FunctionType(func.__code__, globals_, func.__name__, func.__defaults__, func.__closure__)
    copied.__kwdefaults__ = func.__kwdefaults__
    return copied


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    """Count the writes to tensors."""
    return tuple(0 if tensor.is_inference() else tensor._version for tensor in tensors)


_PRODUCTS = {torch.mul, torch.multiply, Tensor.mul, Tensor.multiply, Tensor.__rmul__}
"""Functions that multiply two tensors entry by entry."""

_DIFFERENTIATING = {torch.autograd.grad, torch.autograd.backward, Tensor.backward}
"""Functions that take a gradient."""

_SHAPE_ONLY = {
    torch.zeros_like,
    torch.ones_like,
    torch.empty_like,
    torch.full_like,
    torch.rand_like,
    torch.randn_like,
    torch.Tensor.new_zeros,
    torch.Tensor.new_ones,
    torch.Tensor.new_empty,
    torch.Tensor.new_full,
    torch.Tensor.new_tensor,
}
"""Functions whose result has only the shape, type or device of what they are given."""
