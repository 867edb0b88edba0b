"""Watch a forward pass: which functions use which parameters, on what, and what comes back to them.

A `TorchFunctionMode` sees every call of the model, functional ones included, so that nothing
depends on module hooks. Parameters are known by identity. Where a use is understood, the function
runs on a detached parameter and its output gets a probe; what is not understood stays connected to
the parameter itself, and shows in the end as a gradient that no use explains. So a gap cannot be
silent.
"""

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lai_torch._model.batch import tensors
from lai_torch._model.sample_axis import SampleAxis, candidates, fitting
from lai_torch._model.signatures import written
from lai_torch._model.valid import Positions, masked_mean
from lai_torch._model.walk import Held
from lai_torch._recording.watching.origins import Origins, identities, is_unreadable
from lai_torch._recording.watching.plan import Calls, Template, template
from lai_torch._recording.watching.recording import Experts, Routed
from lai_torch._recording.watching.uses import READ_BY_LAI, Probe, Use, attach, check_rows, gates_between

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Shortcut:
    """What makes recording for LAI cheap once a model is known: which layer is last, what is kept."""

    last: int  # how many layers are used before the last one: until then nothing is differentiated
    mean: bool  # whether inputs are averaged over positions at once
    mean_of_last: bool = False  # whether those of the last layer are read by their average, too


class Recorder(TorchFunctionMode, Origins):
    """Records the uses of a model's parameters while it is the active mode."""

    def __init__(
        self,
        held: Held,  # held, batch, skipped, trainable: as for `Origins`
        samples: int,  # how many samples the batch has
        batch: Iterable[Tensor],
        # what to do for each function; `NotImplemented` leaves it to the function itself
        rules: dict[Any, Rule],
        *,
        every_layer: bool,  # whether gradients are wanted at every layer, or only behind the last one
        # what to do for a function that has no rule, or that its rule leaves to it
        other: Rule | None = None,
        # what an earlier recording of the same model tells: enter with gradients off, they are
        # switched on at the last layer
        shortcut: Shortcut | None = None,
        # where the samples were at each use in an earlier recording of the same model
        known: Sequence[SampleAxis | None] = (),
        skipped: frozenset[str] = frozenset(),
        # whether the graph is left whole from the parameters up, for a backward pass of the
        # caller's
        live: bool = False,
        # whether to read off what each layer's output is multiplied by on its way into the next
        # layer
        gates: bool = False,
        trainable: Iterable[str] | None = None,
        valid: Positions = (),  # which positions count in a mean, as masks; none: all
        # notes the calls, and passes by those that are no layers where an earlier pass has told
        calls: Calls | None = None,
    ) -> None:
        TorchFunctionMode.__init__(self)
        Origins.__init__(
            self,
            held,
            batch,
            skipped=skipped,
            trainable=trainable,
            undifferentiated=shortcut is not None,
        )
        self.calls = Calls() if calls is None else calls
        self.calls.names = held.made(identities).names
        self.shortcut, self.known, self.live = shortcut, known, live
        self.gates, self.valid, self.samples = gates, valid, samples
        self.rules, self.other, self.every_layer = rules, other, every_layer
        self.uses: list[Use] = []
        self.experts = Experts(samples)
        self.batch_axis: int | None = None
        self.replaying = False
        self._probe_leaves: dict[torch.device, Tensor] = {}

    def fresh(self, batch: Iterable[Tensor]) -> "Recorder":
        """Return a recorder of another batch that treats the model as this one does."""
        return Recorder(
            self.held,
            self.samples,
            batch,
            self.rules,
            every_layer=self.every_layer,
            other=self.other,
            skipped=self.skipped,
            trainable=self.trainable,
        )

    def cut(self, tensor: Tensor) -> Tensor:
        """Return `tensor` cut off from the graph, unless that is to be left whole."""
        return tensor if self.live else tensor.detach()

    def read_gates(self, inputs: Tensor, name: str) -> None:
        """Note, where gates are wanted, how the layer before makes the input of the layer `name`."""
        if self.gates and not self.replaying:
            check_rows(inputs, self.samples, name)
            if self.uses:
                self.uses[-1].gates = gates_between(
                    self.uses[-1], inputs, self.probe_leaves, name, self.dtypes
                )

    def kept(self, activations: Tensor, kind: str) -> Tensor:
        """Return what is kept of a layer's input: all of it, or its mean over positions."""
        cut = self.shortcut
        if cut is None or not cut.mean or len(self.uses) >= cut.last:
            return activations
        if kind == "convolution":
            return activations.mean(tuple(range(2, activations.ndim)), keepdim=True)
        known = self.known_axis(len(self.uses))
        sample_axes = candidates(activations.shape[:-1], self.samples, self.batch_axis)
        sample_axis = None if known is None else fitting(known, sample_axes)
        if sample_axis is None or (activations.ndim == 2 and sample_axis.plain):
            return activations
        return masked_mean(sample_axis.in_front(activations), self.valid)

    def known_axis(self, index: int) -> SampleAxis | None:
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

        What arrives at the probes is kept as their gradient `into`.
        """
        for use in self.uses:
            use.probe.into = into
            if into is not None and use.kind != "direct":
                setattr(use.probe, into, None)  # what a gradient inside the forward pass may have left
        for routed in self.experts.uses:
            routed.probe.into = into if into == "gradient" else None
            if into == "gradient":
                routed.probe.gradient = None
        self.replaying = True
        try:
            with self:
                return opened(torch.autograd.grad)(values, wanted, retain_graph=True, allow_unused=True)
        finally:
            self.replaying = False

    @property
    def probe_leaves(self) -> list[Tensor]:
        """The leaves that the probes hang from, one a device."""
        return list(self._probe_leaves.values())

    def probe(self, output: Tensor) -> tuple[Tensor, Probe]:
        """Put a probe on `output`."""
        if self.shortcut is not None and len(self.uses) < self.shortcut.last:
            return self.mark(output), Probe()
        if self.shortcut is not None:
            torch.set_grad_enabled(mode=True)
        device = output.device
        if device not in self._probe_leaves:
            self._probe_leaves[device] = torch.zeros((), device=device, requires_grad=True)
        probed, probe = attach(output, self._probe_leaves[device])
        return self.mark(probed), probe

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, by its rule where it uses a parameter."""
        kwargs = kwargs or {}
        if not self.replaying:
            if self.calls.passes_by(func, args, kwargs):
                return func(*args, **kwargs)
            if (known := self.calls.template) is not None and known.fits(args, kwargs):
                self.uses.append(known.made(args, self.valid))
                return func(*args)
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
        rule = None if any(map(is_unreadable, involved)) else self.rules.get(func, self.other)
        out = NotImplemented if rule is None else rule(self, func, *args, **kwargs)
        understood = out is not NotImplemented and rule is not self.other
        if out is NotImplemented and rule is not self.other is not None:
            out = self.other(self, func, *args, **kwargs)
        if out is NotImplemented:
            out = func(*args, **kwargs)
        results = tensors((out, args[:1]) if func is torch.Tensor.__setitem__ else out)
        if results and not self.replaying:
            self.calls.makes_tensors(place)
        function = written(func)
        read = any(use.kind in READ_BY_LAI for use in self.uses[uses:])
        if self.follow(function, involved, results, understood=understood, read=read) and self.every_layer:
            self.experts.follow_from(function, involved, results)
        if len(self.uses) > uses:
            plain = len(inputs) == 1
            made = self._template(func, args, kwargs, out)
            self.calls.is_layer(place, plain=plain, template=made, use=self.uses[-1])
        return out

    def _template(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Template | None:
        """Return the template of the layer that was recorded last, if it comes before the last one."""
        cut = self.shortcut
        if cut is None or self.live or self.replaying or len(self.uses) > cut.last or self.every_layer:
            return None
        known = self.known_axis(len(self.uses) - 1)
        return template(func, args, kwargs, self.uses[-1], out, known, self.samples, self.valid)

    def _check_differentiable(self) -> None:
        """Raise where a gradient inside the forward pass would run into layers that are cut off."""
        if not self.every_layer:
            msg = (
                "model: takes a gradient inside its forward pass, so that the loss reads its layers through "
                "their derivatives too, which no readout of a layer sees; use estimator 'ghost' or 'exact'"
            )
            raise ValueError(msg)


@functools.cache
def opened(func: Any) -> Any:
    """Copy a Python function of torch so that it runs its body rather than hand itself to the mode."""
    globals_ = {**func.__globals__, "has_torch_function": lambda _: False}
    copied = types.FunctionType(func.__code__, globals_, func.__name__, func.__defaults__, func.__closure__)
    copied.__kwdefaults__ = func.__kwdefaults__
    return copied


_DIFFERENTIATING = {torch.autograd.grad, torch.autograd.backward, Tensor.backward}
"""Functions that take a gradient."""
