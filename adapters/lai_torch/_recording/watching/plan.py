"""Cache of which calls of a forward pass are layers; later passes skip all others.

A recording inspects every call of torch, to know what depends on the batch and on which parameter. When a
model repeats the same calls in the same order, all of this is known, and only its layers are inspected. Two
calls are the same if function, options (axes, flags) and the parameters among the arguments are. A pass that
makes another call is recorded in full. The sample axis is not cached here.

That samples are independent was proved for calls with certain signatures, too: `Calls.kinds`.

What a rule does with a layer's call is always the same where function, parameters, options and the input's
shape are: it runs the function, and keeps the input or its mean over positions. So a `Template` runs the
function and keeps that, nothing else. It is made only where this gives, to the last bit, what the rule gave.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from lai_torch._model.batch import tensors
from lai_torch._model.sample_axis import SampleAxis, candidates, fitting
from lai_torch._model.signatures import Call, axes_of, kinds, noted
from lai_torch._model.valid import Positions, masked_mean
from lai_torch._recording.watching.recording import CachedProof, SharedLayout
from lai_torch._recording.watching.uses import Probe, Use

MOST = 64
"""Number of plans that are kept: one for each shape of a batch."""
MISSES = 4
"""Number of mismatches after which no more plans are cached: the model's calls vary."""


@dataclass(frozen=True)
class Template:
    """A layer before the last one."""

    place: int  # where among the arguments the input is
    shape: torch.Size  # shape, dtype: the input's
    dtype: torch.dtype
    # the other tensors among the arguments, the layer's parameters, and where they are
    own: tuple[tuple[int, Tensor], ...]
    arguments: int  # how many arguments there are
    use: Use  # what was recorded, without activations
    # where the samples are in the input, for the mean over positions; None: the input is kept whole, or
    # its mean over space
    sample_axis: SampleAxis | None
    averaged: bool  # whether a mean is kept

    def fits(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Say whether a call of the same function is this layer's, on an input of the same form."""
        if kwargs or len(args) != self.arguments:
            return False
        for index, tensor in self.own:  # other tensors than these and the input are not the plan's call
            if args[index] is not tensor:
                return False
        inputs = args[self.place]
        return (
            isinstance(inputs, Tensor)
            and inputs.shape == self.shape
            and inputs.dtype == self.dtype
            and not torch.is_autocast_enabled(inputs.device.type)
        )

    def made(self, args: Sequence[Any], valid: Positions) -> Use:
        """Return the use that such a call is."""
        inputs = args[self.place]
        kept = self.kept(inputs, valid)
        return self.use.again(kept.detach() if kept is inputs else kept, Probe())

    def kept(self, inputs: Tensor, valid: Positions) -> Tensor:
        """Return what is kept of an input."""
        if not self.averaged:
            return inputs
        if self.sample_axis is None:
            return inputs.mean(tuple(range(2, inputs.ndim)), keepdim=True)
        return masked_mean(self.sample_axis.in_front(inputs), valid)


def template(
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    use: Use,
    out: Tensor,
    known: SampleAxis | None,
    samples: int,
    valid: Positions,
) -> Template | None:
    """Return the template of a layer's call; None where the function alone does not do what its rule did.

    `known` is where the samples were at this layer in an earlier recording.
    """
    places = [index for index, one in enumerate(args) if isinstance(one, Tensor) and not _is_own(one, use)]
    if len(places) != 1 or use.kind not in {"dense", "convolution"} or not use.weight.whole:
        return None
    inputs = args[places[0]]
    averaged = tuple(use.activations.shape) != tuple(inputs.shape)
    sample_axis = None
    if known is not None and use.kind == "dense":
        sample_axis = fitting(known, candidates(inputs.shape[:-1], samples, use.batch_axis))
    given = [(index, one) for index, one in enumerate(args) if isinstance(one, Tensor)]
    own = tuple((index, one) for index, one in given if _is_own(one, use))
    if len(own) != 1 + (use.bias is not None):
        return None
    blank = use.again(use.activations.new_empty(0), Probe())
    blank.signature = use.signature  # that of an input of this shape
    found = Template(places[0], inputs.shape, inputs.dtype, own, len(args), blank, sample_axis, averaged)
    if not found.fits(args, kwargs) or (averaged and use.kind == "dense" and sample_axis is None):
        return None
    same = torch.equal(found.kept(inputs.detach(), valid), use.activations)
    return found if same and torch.equal(func(*args), out) else None


def _is_own(tensor: Tensor, use: Use) -> bool:
    return tensor is use.weight.tensor or (use.bias is not None and tensor is use.bias.tensor)


@dataclass(frozen=True)
class Plan:
    """The calls of a forward pass in order, which of them are layers, and what such passes share.

    `averages` is the type in which the last layer's gradient is averaged over positions without being formed;
    None: it is formed.
    """

    calls: tuple[Call, ...]
    layers: Mapping[int, Template | None]
    averages: torch.dtype | None = None
    alike: SharedLayout = field(default_factory=SharedLayout)


class Calls:
    """The calls of one forward pass, compared with those of its plan if there is one.

    Attributes
    ----------
    names
        The parameters' names, by their identity.
    follows
        Whether the calls so far are those of the plan.
    place
        Index of the latest call.
    plain
        Whether each layer is a call on one input and on parameters, not on tensors computed from them.
    averages
        As in a plan, for the plan of this pass.
    """

    def __init__(
        self,
        plan: Plan | None = None,  # of an earlier pass
    ) -> None:
        self.plan, self.follows, self.plain = plan, plan is not None, True
        self.averages: torch.dtype | None = None
        self.names: Mapping[int, str] = MappingProxyType({})
        self.place = -1
        self._calls: list[Call] = []
        self._axes: list[tuple[int, ...]] = []
        self._makers: set[int] = set()
        self._layers: dict[int, Template | None] = {}
        self._uses: dict[int, Use] = {}

    def passes_by(
        self, func: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> bool:
        """Note a call; return whether it only has to be run."""
        # Why comparing calls is enough. What is recorded of a layer is the tensor that comes, whatever it is.
        # Taken over from the plan are its function, parameters and options, compared here, and where its
        # input holds samples: calls of the same kinds, one after another, leave them at the same place of a
        # tensor of the same shape, which `Template.fits` compares.
        made, plan = noted(func, args, kwargs, self.names), self.plan
        self.place += 1
        if plan is not None and self.follows:
            # an attribute's getter is made anew each time, and equal to the one before
            if self.place < len(plan.calls) and plan.calls[self.place] == made:
                return self.place not in plan.layers
            self.follows = False
        elif plan is None:
            # of a pass that is recorded in full: what was proved of its calls depends on their axes
            self._calls.append(made)
            self._axes.append(axes_of(args))
        return False

    @property
    def template(self) -> Template | None:
        """The plan's layer at the latest call; None where the call is to be recorded in full."""
        return self.plan.layers.get(self.place) if self.follows and self.plan is not None else None

    def makes_tensors(self, place: int) -> None:
        """Note that the call at `place` made tensors of tensors: others cannot mix samples."""
        self._makers.add(place)

    def is_layer(
        self, place: int, *, plain: bool, template: Template | None = None, use: Use | None = None
    ) -> None:
        """Note that the call at `place` is a layer, and by which use."""
        self._layers[place] = template
        self.plain = self.plain and plain
        if use is not None:
            self._uses[place] = use

    def done(self) -> bool:
        """Return whether the pass made all calls of the plan, and no others."""
        # a pass that ends early has followed all along, and yet misses layers
        return self.follows and self.plan is not None and self.place + 1 == len(self.plan.calls)

    def made(self, sample_axes: Mapping[Use, SampleAxis] = MappingProxyType({})) -> Plan | None:
        """Return the plan of this pass; None where calls do not identify its layers.

        `sample_axes` has the sample axis of each use.
        """
        if not self.plain:  # a call does not show which parameters its tensors were computed from
            return None
        layers = dict(self._layers)
        for place, use in self._uses.items():
            template = layers[place]
            if template is not None:
                layers[place] = replace(template, use=template.use.at(sample_axes[use]))
        return Plan(tuple(self._calls), layers, self.averages)

    def kinds(self) -> frozenset[str]:
        """Return the signatures of the calls."""
        return kinds({(self._calls[place], self._axes[place]) for place in self._makers}, self.names.values())


class Plans:
    """The plans of one model, keyed by all that a pass depends on but values: shapes, modes, what is kept."""

    def __init__(self) -> None:
        self._plans: dict[Any, Plan | None] = {}
        self._misses: dict[Any, int] = {}
        self._known: CachedProof | None = None

    def key(self, modules: Iterable[nn.Module], batch: Any, valid: Positions, shortcut: Any) -> Any:
        """Return the key of a pass."""
        shapes = tuple((one.shape, one.dtype, one.device) for one in tensors(batch))
        return shapes, tuple(module.training for module in modules), len(valid), shortcut

    def get(self, key: Any, known: CachedProof) -> Plan | None:
        """Return the plan of a key; None where a newer proof exists."""
        # a plan is valid under the proof that it was made with: a newer one may have other sample axes
        if self._known is not known:
            self._plans, self._misses, self._known = {}, {}, known
        return self._plans.get(key)

    def missed(self, key: Any) -> None:
        """Note that a pass did not follow its plan, and had to be recorded again."""
        self._misses[key] = self._misses.get(key, 0) + 1

    def put(self, key: Any, plan: Plan | None) -> None:
        """Keep a plan, and drop the oldest beyond `MOST`."""
        self._plans[key] = plan if self._misses.get(key, 0) < MISSES else None
        if len(self._plans) > MOST:
            del self._plans[next(iter(self._plans))]
