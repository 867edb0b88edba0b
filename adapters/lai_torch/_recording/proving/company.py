"""Test that a sample's loss does not depend on the other samples: replace those by copies of it, and compare.

A sample that saw one of the replaced samples gets another loss. Random numbers depend on a sample's row, and
some batches are ordered (by length): there each sample keeps its row. Otherwise samples also change rows,
which reveals the sample axis of every tensor inside the model.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lai_torch._model.batch import Loss, check_losses, count, rows, unaligned
from lai_torch._model.precision import measured_roundings
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import differ, magnitude
from lai_torch._model.snapshot.streams import Streams
from lai_torch._model.standing import splits, stands
from lai_torch._model.untouched import losses_of
from lai_torch._model.walk import modules_of, named_parameters

Asked = tuple[nn.Module, Loss, tuple[Any, Any]]
"""A model, a loss and a batch."""
REJECTING = {"poisson", "binomial", "_standard_gamma", "_sample_dirichlet"}
"""Functions of torch that draw again and again."""
Watch = Callable[[Any], AbstractContextManager[Any]]
"""From a batch to what watches the model run on it."""


class CoupledError(ValueError):
    """A sample's loss or gradient is another one among other samples."""


@dataclass(frozen=True, eq=False)
class Company:
    """The losses of some samples among copies of them.

    Attributes
    ----------
    index
        Whose losses they are: of the samples at all places, or, of a model that draws, of those that stand
        where they stood.
    losses
        As many.
    watched
        What watched the run; None where samples stand where they stood.
    after
        The random streams after the run, of a model that draws.
    """

    index: Tensor
    losses: Tensor
    watched: Any = None
    after: Streams | None = None


def companies(asked: Asked, watch: Watch | None = None, *, pairs: bool = True) -> list[Company]:
    """Return the losses of two halves of the batch, each by itself.

    Where samples cannot move, all `pairs` are to be apart once, which takes several cuts in two halves. Only
    the first run is watched. None are returned for one sample, and where the batch runs in no order but its
    own.

    Raises
    ------
    CoupledError
        If the batch runs in no other order and holds samples in another way than by rows: what stayed in its
        place (where each sample's words start, say) is no longer that of the samples.
    """
    samples = count(*asked[2])
    if samples < 2:
        return []
    found = []
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(0), device="cpu")
    first, second = order.tensor_split(2)
    for half, others, seen in ((first, second, watch), (second, first, None)):
        try:
            company = _moved(asked, _spread(half, others), seen)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a batch that has to be in an order of its own
            return _stayed_or_refused(asked, watch, error, pairs=pairs)
        if company is None:
            return list(_stayed(asked, pairs=pairs))
        found.append(company)
    return found


def _stayed_or_refused(asked: Asked, watch: Watch | None, error: Exception, *, pairs: bool) -> list[Company]:
    whole = not unaligned(asked[2], count(*asked[2]))
    for others in (_stayed, _parted) if whole else (_stayed,):
        try:
            return list(others(asked, watch, pairs=pairs))
        except torch.OutOfMemoryError:
            raise
        except Exception:  # a batch in which no sample may stand twice, or that has to be as long as it is
            continue
    if whole:
        return []
    run(asked, nullcontext() if watch is None else watch(asked[2]))  # raises what is about the batch
    msg = f"model: it does not run on the batch's samples in another order ({error})"
    raise CoupledError(msg) from error


def _moved(asked: Asked, index: Tensor, watch: Watch | None) -> Company | None:
    """Run with the samples `index` at the batch's places; None where the model draws."""
    model, loss, batch = asked
    part = rows(batch, index, len(index))
    watched = nullcontext() if watch is None else watch(part)
    losses, after = run((model, loss, part), watched)
    return None if after is not None else Company(index.to(losses.device), losses, watched)


def _stayed(asked: Asked, watch: Watch | None = None, *, pairs: bool) -> Iterator[Company]:
    """Run with each sample of a part where it is; who watches the first run may refuse the batch."""
    model, loss, batch = asked
    cuts = splits(torch.ones(count(*batch), dtype=torch.bool, device="cpu"))
    for half in (half for cut in (cuts if pairs else cuts[:1]) for half in cut):
        index = stands(half)
        part = rows(batch, index, len(half))
        losses, after = run((model, loss, part), None if watch is None else watch(part))
        watch = None
        index = index if after is None else half.nonzero().squeeze(1)
        index = index.to(losses.device)
        yield Company(index, losses if after is None else losses[index], None, after)


def _parted(asked: Asked, watch: Watch | None = None, *, pairs: bool) -> Iterator[Company]:
    """Run each part by itself, without copies; of a model that draws this tells nothing."""
    model, loss, batch = asked
    samples = count(*batch)
    cuts = splits(torch.ones(samples, dtype=torch.bool, device="cpu"))
    for half in (half for cut in (cuts if pairs else cuts[:1]) for half in cut):
        index = half.nonzero().squeeze(1)
        part = rows(batch, index, samples)
        losses, after = run((model, loss, part), None if watch is None else watch(part))
        watch = None
        if after is None:
            yield Company(index.to(losses.device), losses)


def run(asked: Asked, watch: AbstractContextManager[Any] | None = None) -> tuple[Tensor, Streams | None]:
    """Return the losses of a batch, and the random streams after it if it moved them."""
    model, loss, batch = asked
    with preserved(model, loss), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = Streams(modules_of(model, loss))
        with watch or nullcontext():
            losses = check_losses(losses_of(model, loss, batch), count(*batch)).detach()
        return losses, Streams(modules_of(model, loss)) if before.moved() else None


def without_the_last(asked: Asked) -> Tensor | None:
    """Return the losses of a batch without its last sample; None where nothing is told.

    A model that draws has other numbers then, and one may be made for so many samples.
    """
    model, loss, batch = asked
    samples = count(*batch)
    try:
        losses, after = run((model, loss, rows(batch, torch.arange(samples - 1, device="cpu"), samples)))
    except Exception:  # whatever it is, it is about the size
        return None
    return None if after is not None else losses


class _Rejecting(TorchDispatchMode):
    """Sees functions that draw until a number fits: how many they take from the stream goes by values."""

    found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found |= func.overloadpacket.__name__ in REJECTING
        return func(*args, **(kwargs or {}))


def drawn_alike(asked: Asked, found: list[Company]) -> bool:
    """Whether a batch draws the numbers that it did in other company: else samples have other ones there."""
    ends = [one.after for one in found if one.after is not None]
    if not ends:
        return True
    watch = _Rejecting()
    own = run(asked, watch)[1]
    return own is not None and all(map(own.equal, ends)) and not watch.found


def check_uncoupled(asked: Asked, values: Tensor, company: Company, where: str, precision: float) -> None:
    """Raise if a sample's loss is another one among other samples."""
    expected, losses = values.detach()[company.index], company.losses
    if not losses_differ(asked, losses, values, company.index, precision):
        return
    moved = int((losses - expected).abs().nan_to_num().argmax())
    msg = (
        f"model: the loss of sample {int(company.index[moved])} is {float(expected[moved]):.6g} in this "
        f"batch and {float(losses[moved]):.6g} among other samples: samples are coupled ({where}), so that "
        "no sample has a gradient of its own; call model.eval() where a normalisation couples them, or score "
        "what is coupled as one sample (a group, with one loss)"
    )
    raise CoupledError(msg)


def check_apart(asked: Asked, values: Tensor, where: str, precision: float) -> None:
    """Raise if samples of a batch with losses `values` are coupled, `where` says how.

    That a sample has its loss in other company too is all that is looked at, by two forward passes of a
    model that computes in `precision`.

    Raises
    ------
    CoupledError
        If they are.
    """
    found = companies(asked, pairs=False)
    try:
        for company in found:
            check_uncoupled(asked, values, company, where, precision)
    except CoupledError:
        if drawn_alike(asked, found):
            raise


def check_sized(asked: Asked, values: Tensor, shorter: Tensor, precision: float) -> None:
    """Raise if a sample's loss is another one in a batch that ends before the last sample."""
    if losses_differ(asked, shorter, values, torch.arange(len(shorter), device=values.device), precision):
        msg = (
            "model: expected every sample's loss to be its own, got one that moves with the number of "
            "samples: do not divide by the batch's size"
        )
        raise CoupledError(msg)


def roundings(values: Tensor, precision: float) -> float:
    """Return by how much two arrays may differ in which nothing cancels: kernels add up in some order.

    What differs by more may still be rounding; see `measured_roundings`.
    """
    return (precision**0.5 if precision > 1e-4 else 1024 * precision) * magnitude(values.detach())


def losses_differ(asked: Asked, losses: Tensor, values: Tensor, index: Tensor, precision: float) -> bool:
    """Whether the losses of the samples `index` differ from their `values` by more than roundings explain."""
    expected = values.detach()[index]
    if not differ(losses, expected, roundings(values, precision)):
        return False
    parameters = named_parameters(*asked[:2]).values()
    within = measured_roundings(lambda: run(asked)[0], parameters, precision)
    return differ(losses, expected, within.to(losses)[index])


def _spread(half: Tensor, others: Tensor) -> Tensor:
    """Return an index that holds one half of the samples, each at another's place, the first most often."""
    index = half[:1].expand(len(half) + len(others)).clone()
    index[half] = half.roll(1)
    return index
