"""Where the samples of a batch lie in a gradient.

A backward pass is linear in the weights of the losses. With weight 2^k for sample k, what belongs to sample k
alone is scaled by exactly 2^k, bit for bit, for a power of two rounds nothing; a sum over samples is not. So
two backward passes, with weights 1 and with powers of two, place the samples in every gradient of a graph,
and show in the same stroke that none of these gradients mixes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from lai_torch._graph.walk import Edge, Graph

PROBED, STRIDE = 64, 1_000_003
"""Entries that are looked at before all of a tensor is, and a prime by which they lie apart."""


@dataclass(frozen=True)
class Axis:
    """Samples on one axis, which is `(outer, samples, inner)` flattened."""

    axis: int
    outer: int
    inner: int
    samples: int

    def split(self, tensor: Tensor) -> Tensor:
        """Return a tensor with the samples on an axis of their own, `axis + 1`."""
        return tensor.unflatten(self.axis, (self.outer, self.samples, self.inner))

    def move_to_front(self, tensor: Tensor) -> Tensor:
        """Return `(n, positions, ...)`; `(n, ...)` where there is one position."""
        if self.outer == self.inner == 1:
            return tensor if self.axis == 0 else tensor.movedim(self.axis, 0)
        if self.axis == 0 and self.outer == 1:
            return tensor.unflatten(0, (self.samples, self.inner))
        front = self.split(tensor).movedim(self.axis + 1, 0)
        return front.flatten(self.axis + 1, self.axis + 2).movedim(self.axis + 1, 1)

    def isolate(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield for each sample the tensor with nothing but its entries."""
        split = self.split(tensor)
        for sample in range(self.samples):
            part = torch.zeros_like(split)
            part.select(self.axis + 1, sample).copy_(split.select(self.axis + 1, sample))
            yield part.reshape(tensor.shape)

    def list_entries(self, tensor: Tensor) -> "Entries":
        """Return the sample of every entry of a tensor that is not zero."""
        numbers = torch.arange(self.samples, device=tensor.device).repeat_interleave(self.inner)
        shape = [1] * tensor.ndim
        shape[self.axis] = -1
        owners = torch.where(tensor != 0, numbers.repeat(self.outer).view(shape), -1)
        return Entries(owners, self.samples)

    def swap(self, dimensions: int) -> "Axis":
        """Return the place in a tensor of so many axes whose last two are exchanged."""
        last = dimensions - 1
        return replace(self, axis={last: last - 1, last - 1: last}.get(self.axis, self.axis))

    def fits_rows(self, shape: torch.Size) -> bool:
        """Whether the rows of a tensor of this shape, its entries along the last axis, can be on the axis."""
        return self.axis != len(shape) - 1 and self.fits(shape)

    def fits(self, shape: torch.Size) -> bool:
        return len(shape) > self.axis and shape[self.axis] == self.outer * self.samples * self.inner


@dataclass(frozen=True, eq=False)
class Entries:
    """The sample of every entry, -1 where nothing arrived: of routed rows, or of one sample's part."""

    owners: Tensor
    samples: int

    @cached_property
    def rows(self) -> Tensor | None:
        """The sample of every row, None where a row holds several."""
        flat = self.owners.reshape(len(self.owners), -1)
        most = flat.max(1).values
        if bool(((flat == most[:, None]) | (flat < 0)).all()):
            return most
        return None

    def isolate(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield for each sample the tensor with nothing but its entries."""
        for sample in range(self.samples):
            yield torch.where(self.owners == sample, tensor, 0)


Place = Axis | Entries
NONE = "no gradient"
DEAD = "nothing but zeros arrived"
SUMMED = "a sum over samples"
RAGGED = "a nested tensor"
Places = dict[Edge, Place | str]
"""Where the samples lie in what each edge receives, or one of the four words above."""


@dataclass(frozen=True)
class Scale:
    """The powers of two that weigh the losses: of a plain pass, and of those that tell samples apart.

    A power of two rounds nothing unless a number leaves the range of its type. So all weights are far from
    both ends of that range; float16 has none to spare, and is compared up to its roundings. So are gradients
    of which a function takes the logarithm on their way.
    """

    base: int
    shift: int
    within: float
    # up to which size a gradient may come of numbers that have lost digits to underflow, in any type
    least: float = 0.0

    @classmethod
    def choose_scale(cls, dtypes: set[torch.dtype], within: float = 0.0) -> "Scale":
        if torch.float16 in dtypes:
            within = 4 * torch.finfo(torch.float16).eps
        if within:
            return cls(base=8, shift=0, within=within)
        kinds = map(torch.finfo, dtypes)
        return cls(base=64, shift=24, within=0.0, least=max(one.smallest_normal / one.eps for one in kinds))

    def codes(self, samples: int, device: torch.device) -> Tensor:
        """Return the exponents of each sample in each pass, twice: `(2, passes, n)`.

        The digits of its number tell a sample, and those of its number from behind tell it again: a sum over
        samples that happens to be a power of two once, as of roundings it may be, is so in no other order.
        """
        number = torch.arange(samples, device=device)
        digits = [number % self.base]
        while bool((number := number // self.base).any()):
            digits.append(number % self.base)
        forward = torch.stack(digits)
        return torch.stack([forward, forward.flip(1)])


def place_samples(graph: Graph, edges: list[Edge], *, proved: bool = True) -> tuple[Places, set[Edge]]:
    """Return the places of the samples, and the edges of which zeros leave open which axis it is.

    Without having them `proved`, some entries of a gradient speak for the others: whoever asks verifies the
    records that are made of it.
    """
    losses, samples = graph.losses, graph.samples
    within = 0.0
    if "LogcumsumexpBackward0" in graph.names:
        within = 2**8 * graph.coarsest()
    scale = Scale.choose_scale({graph.dtype(edge) for edge in edges} | {losses.dtype}, within)
    codes = scale.codes(samples, losses.device)
    proved = proved or scale.within > 0.0
    digits, codes = codes.shape[1], (codes if proved else codes[:1]).flatten(0, 1)
    plain = graph.gradients(edges, torch.full_like(losses, 2.0**scale.shift).detach())
    if scale.within and any(one is not None and float(one.abs().max()) > 2.0**7 for one in plain):
        scale = replace(scale, shift=-7)  # times a power of two they might overflow
        plain = graph.gradients(edges, torch.full_like(losses, 2.0**scale.shift).detach())
    passes = torch.exp2((codes + scale.shift).to(torch.float64)).to(losses.dtype)
    scaled = [graph.gradients(edges, weights) for weights in passes]
    factors, powers = torch.exp2(codes.to(torch.float64)), codes[0].tolist()
    found: Places = dict.fromkeys(edges, NONE)
    ambiguous: set[Edge] = set()
    for index, (edge, one) in enumerate(zip(edges, plain, strict=True)):
        others = [each for several in scaled if (each := several[index]) is not None]
        if one is None or not one.numel() or len(others) < len(passes):
            continue
        if one.is_nested:
            found[edge] = RAGGED
            continue
        if one.is_sparse:
            one, others = one.to_dense(), [other.to_dense() for other in others]
        if one.dtype == torch.complex32:  # in which torch has hardly any arithmetic
            one, others = one.to(torch.complex64), [other.to(torch.complex64) for other in others]
        nonzero = int(_find_told(one, scale).count_nonzero())
        if not nonzero:
            found[edge] = DEAD
            continue
        axes = _find_axes(one, others, factors, powers, scale, proved=proved)
        axis = next(axes, None)
        if axis is None:
            found[edge] = _place_entries(one, others, codes, digits, scale)
            continue
        found[edge] = axis
        # A gradient without zeros fits one axis only: each of its entries tells its sample.
        if nonzero < one.numel() and next(axes, None) is not None:
            ambiguous.add(edge)
    return found, ambiguous


def _find_axes(
    plain: Tensor, scaled: list[Tensor], factors: Tensor, powers: list[int], scale: Scale, *, proved: bool
) -> Iterator[Axis]:
    """Yield the axes on which every pass scaled the samples by their powers of two, the likely ones first.

    Some entries tell most wrong axes, but for the first one all are looked at: it mostly is the right one.
    """
    seen = None if proved else _read_powers(plain, scaled[0], scale)
    told = seen is not None and len(seen) >= PROBED // 8
    for axis in list_axes(plain.shape, len(powers)):
        step, length = prod(plain.shape[axis.axis + 1 :]), plain.shape[axis.axis]
        told_by = ((at // step % length // axis.inner % axis.samples, power) for at, power in seen or ())
        # most axes fail at the first power that is seen
        if any(powers[sample] != power for sample, power in told_by):
            continue
        if told or _is_scaled(plain, scaled, factors, axis, scale):
            yield axis
        if seen is None:
            seen = [] if scale.within else _read_powers(plain, scaled[0], scale)


def list_axes(shape: torch.Size, samples: int) -> Iterator[Axis]:
    """Yield the axes that can hold the samples, the likely ones first."""
    for axis, length in enumerate(shape):
        if not length or length % samples:
            continue
        many = length // samples
        for outer in (outer for outer in range(1, many + 1) if many % outer == 0):
            yield Axis(axis, outer, many // outer, samples)


def _find_told(plain: Tensor, scale: Scale) -> Tensor:
    """Say which entries tell their sample: not those that were rounded as numbers below the range are."""
    return ~(plain.abs() <= scale.least)


def _read_powers(plain: Tensor, scaled: Tensor, scale: Scale) -> list[tuple[int, float]]:
    """Return some places in a flattened tensor, and by which power of two a pass scaled what is there."""
    places = torch.arange(PROBED, device=plain.device) * STRIDE % plain.numel()
    # a loss that picks one entry of many, as of a vocabulary, leaves zeros elsewhere
    if not bool(_find_told(plain.take(places), scale).any()):
        places = _find_told(plain, scale).flatten().nonzero().squeeze(1)
        places = places[:: max(1, len(places) // PROBED)][:PROBED]
    own, other = plain.take(places), scaled.take(places)
    ratio = (other / own).abs()
    told = (ratio > 0) & torch.isfinite(ratio) & _find_told(own, scale)
    powers = torch.log2(torch.where(told, ratio, 1.0)).round()
    powers = torch.where(own * torch.exp2(powers) == other, powers, -1)  # -1: a sum over samples, of none
    listed = zip(places.tolist(), powers.tolist(), told.tolist(), strict=True)
    return [(place, power) for place, power, is_told in listed if is_told]


def _is_scaled(plain: Tensor, scaled: list[Tensor], factors: Tensor, place: Axis, scale: Scale) -> bool:
    """Whether every pass scaled the samples of an axis by their own powers of two."""
    shape = [1] * (plain.ndim + 2)
    shape[place.axis + 1] = place.samples
    split = place.split(plain)
    for factor, other in zip(factors, scaled, strict=True):
        power = factor.to(plain.real.dtype).view(shape)
        expected, arrived = split * power, place.split(other)
        if torch.equal(expected, arrived):
            continue
        # An entry that is no number in both passes tells nothing.
        same = (expected == arrived) | (expected.isnan() & arrived.isnan())
        room = scale.least
        if scale.within:
            room = scale.within * float(split.abs().nan_to_num(0.0, 0.0, 0.0).max())
        same |= (expected - arrived).abs() <= room * power
        if not bool(same.all()):
            return False
    return True


def _place_entries(
    plain: Tensor, scaled: list[Tensor], codes: Tensor, digits: int, scale: Scale
) -> Entries | str:
    """Return the sample of every entry by the digits of its powers; `SUMMED` if an entry has no sample."""
    nonzero, base = _find_told(plain, scale), scale.base
    owners = torch.zeros(plain.shape, dtype=torch.long, device=plain.device)
    samples = codes.shape[1]
    for digit, other in enumerate(scaled[:digits]):
        ratio = torch.where(nonzero, other / plain, 1)
        # powers of two are real
        if ratio.is_complex():
            ratio = ratio.real
        power = torch.log2(ratio.to(torch.float64).nan_to_num(0.0).clamp(min=1e-300)).round()
        owners += power.clamp(-1, base).long() * base**digit
    # no sample has that number: the entry is a sum over several
    if bool(((owners < 0) | (owners >= samples)).any()):
        return SUMMED
    # digits were rounded: each pass must show this sample's power to the bit
    for code, other in zip(codes, scaled, strict=True):
        power = torch.exp2(code[owners].to(torch.float64)).to(plain.real.dtype)
        if not torch.equal(torch.where(nonzero, plain * power, 0), torch.where(nonzero, other, 0)):
            return SUMMED
    return Entries(torch.where(nonzero, owners, -1), samples)
