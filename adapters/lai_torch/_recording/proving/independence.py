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

from lai_torch._model.batch import Loss, bisections, check_losses, count, row_sources, rows, unaligned
from lai_torch._model.function import losses_of
from lai_torch._model.precision import measured_roundings
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import differ, magnitude
from lai_torch._model.snapshot import Streams
from lai_torch._model.walk import modules_of, named_parameters

Problem = tuple[nn.Module, Loss, tuple[Any, Any]]
"""A model, a loss and a batch."""
REJECTING = {"poisson", "binomial", "_standard_gamma", "_sample_dirichlet"}
"""Functions of torch that draw again and again."""
Watch = Callable[[Any], AbstractContextManager[Any]]
"""From a batch to the context that records the model on it."""


class CoupledError(ValueError):
    """A sample's loss or gradient depends on the other samples of its batch."""


@dataclass(frozen=True, eq=False)
class Exchanged:
    """The losses of a batch in which copies of some samples replace all others."""

    # the sample that each loss belongs to; of a model that draws random numbers, the samples that kept
    # their rows
    index: Tensor
    losses: Tensor  # one loss for each entry of `index`
    watched: Any = None  # the recorder of the run; None where samples kept their rows
    after: Streams | None = None  # the state of the random streams after the run, of a model that draws


def exchanges(problem: Problem, watch: Watch | None = None, *, pairs: bool = True) -> list[Exchanged]:
    """Return the losses of two halves of the batch, each without the other.

    Where samples have to keep their rows, `pairs` asks for several bisections, which separate most pairs, and
    nothing is recorded. The list is empty for one sample, and where the batch cannot be permuted.

    Raises
    ------
    CoupledError
        If the batch cannot be permuted and holds samples in another way than by rows (as offsets of each
        sample's words, say), so that those entries would belong to other samples.
    """
    samples = count(*problem[2])
    if samples < 2:
        return []
    found = []
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(0), device="cpu")
    first, second = order.tensor_split(2)
    for half, others in ((first, second), (second, first)):
        try:
            exchanged = _moved(problem, _spread(half, others), watch)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a batch that cannot be permuted
            return _stayed_or_refused(problem, watch, error, pairs=pairs)
        if exchanged is None:
            return list(_stayed(problem, pairs=pairs))
        found.append(exchanged)
    return found


def _stayed_or_refused(
    problem: Problem, watch: Watch | None, error: Exception, *, pairs: bool
) -> list[Exchanged]:
    whole = not unaligned(problem[2], count(*problem[2]))
    for others in (_stayed, _parted) if whole else (_stayed,):
        try:
            return list(others(problem, watch, pairs=pairs))
        except torch.OutOfMemoryError:
            raise
        except Exception:  # a batch without repeated samples, or of a fixed length
            continue
    if whole:
        return []
    run(problem, nullcontext() if watch is None else watch(problem[2]))  # raises what is about the batch
    msg = f"model: it does not run on the batch's samples in another order ({error})"
    raise CoupledError(msg) from error


def _moved(problem: Problem, index: Tensor, watch: Watch | None) -> Exchanged | None:
    """Run the model on the rows `index`; None where it draws random numbers."""
    model, loss, batch = problem
    part = rows(batch, index, len(index))
    watched = nullcontext() if watch is None else watch(part)
    losses, after = run((model, loss, part), watched)
    return None if after is not None else Exchanged(index.to(losses.device), losses, watched)


def _stayed(problem: Problem, watch: Watch | None = None, *, pairs: bool) -> Iterator[Exchanged]:
    """Run with copies of a part in place of the others; the first run's recorder may refuse it."""
    model, loss, batch = problem
    cuts = bisections(torch.ones(count(*batch), dtype=torch.bool, device="cpu"))
    for half in (half for cut in (cuts if pairs else cuts[:1]) for half in cut):
        index = row_sources(half)
        part = rows(batch, index, len(half))
        losses, after = run((model, loss, part), None if watch is None else watch(part))
        watch = None
        index = index if after is None else half.nonzero().squeeze(1)
        index = index.to(losses.device)
        yield Exchanged(index, losses if after is None else losses[index], None, after)


def _parted(problem: Problem, watch: Watch | None = None, *, pairs: bool) -> Iterator[Exchanged]:
    """Run each part by itself, without copies; not conclusive for a model that draws random numbers."""
    model, loss, batch = problem
    samples = count(*batch)
    cuts = bisections(torch.ones(samples, dtype=torch.bool, device="cpu"))
    for half in (half for cut in (cuts if pairs else cuts[:1]) for half in cut):
        index = half.nonzero().squeeze(1)
        part = rows(batch, index, samples)
        losses, after = run((model, loss, part), None if watch is None else watch(part))
        watch = None
        if after is None:
            yield Exchanged(index.to(losses.device), losses)


def run(problem: Problem, watch: AbstractContextManager[Any] | None = None) -> tuple[Tensor, Streams | None]:
    """Return the losses of a batch, and the random streams after it if it advanced them."""
    model, loss, batch = problem
    with preserved(model, loss), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = Streams(modules_of(model, loss))
        with watch or nullcontext():
            losses = check_losses(losses_of(model, loss, batch), count(*batch)).detach()
        return losses, Streams(modules_of(model, loss)) if before.moved() else None


def without_the_last(problem: Problem) -> Tensor | None:
    """Return the losses of a batch without its last sample; None where they are not comparable.

    A model that draws random numbers draws others then, and a model may have a fixed batch size.
    """
    model, loss, batch = problem
    samples = count(*batch)
    try:
        losses, after = run((model, loss, rows(batch, torch.arange(samples - 1, device="cpu"), samples)))
    except Exception:  # whatever it is, it is about the size
        return None
    return None if after is not None else losses


class _Rejecting(TorchDispatchMode):
    """Detects rejection samplers: how many numbers they draw depends on values."""

    found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.found |= func.overloadpacket.__name__ in REJECTING
        return func(*args, **(kwargs or {}))


def drawn_alike(problem: Problem, found: list[Exchanged]) -> bool:
    """Whether a batch draws the same random numbers as the exchanged ones; else their losses may differ."""
    ends = [one.after for one in found if one.after is not None]
    if not ends:
        return True
    watch = _Rejecting()
    own = run(problem, watch)[1]
    return own is not None and all(map(own.equal, ends)) and not watch.found


def check_uncoupled(
    problem: Problem, values: Tensor, exchanged: Exchanged, where: str, precision: float
) -> None:
    """Raise if a sample's loss depends on the other samples."""
    expected, losses = values.detach()[exchanged.index], exchanged.losses
    if not losses_differ(problem, losses, values, exchanged.index, precision):
        return
    moved = int((losses - expected).abs().nan_to_num().argmax())
    msg = (
        f"model: the loss of sample {int(exchanged.index[moved])} is {float(expected[moved]):.6g} in this "
        f"batch and {float(losses[moved]):.6g} among other samples: samples are coupled ({where}), so that "
        "no sample has a gradient of its own; call model.eval() where a normalisation couples them, or score "
        "what is coupled as one sample (the sum of its rows' losses)"
    )
    raise CoupledError(msg)


def check_apart(problem: Problem, values: Tensor, where: str, precision: float) -> None:
    """Raise if samples of a batch with losses `values` are coupled; `where` names the operation.

    Two forward passes compare the losses, of a model that computes in `precision`; gradients are not
    compared.
    """
    found = exchanges(problem, pairs=False)
    try:
        for exchanged in found:
            check_uncoupled(problem, values, exchanged, where, precision)
    except CoupledError:
        if drawn_alike(problem, found):
            raise


def check_sized(problem: Problem, values: Tensor, shorter: Tensor, precision: float) -> None:
    """Raise if a sample's loss changes when the batch loses its last sample."""
    if losses_differ(problem, shorter, values, torch.arange(len(shorter), device=values.device), precision):
        msg = (
            "model: expected every sample's loss to be its own, got one that moves with the number of "
            "samples: do not divide by the batch's size"
        )
        raise CoupledError(msg)


def roundings(values: Tensor, precision: float) -> float:
    """Return a tolerance for two arrays of the same values, computed by kernels that sum in another order.

    Arrays that differ by more may still do so by rounding alone; see `measured_roundings`.
    """
    return (precision**0.5 if precision > 1e-4 else 1024 * precision) * magnitude(values.detach())


def losses_differ(problem: Problem, losses: Tensor, values: Tensor, index: Tensor, precision: float) -> bool:
    """Whether the losses of the samples `index` differ from their `values` by more than roundings explain."""
    expected = values.detach()[index]
    if not differ(losses, expected, roundings(values, precision)):
        return False
    parameters = named_parameters(*problem[:2]).values()
    within = measured_roundings(lambda: run(problem)[0], parameters, precision)
    return differ(losses, expected, within.to(losses)[index])


def _spread(half: Tensor, others: Tensor) -> Tensor:
    """Return row indices of one half of the samples alone, none in its own row; the first fills the rest."""
    index = half[:1].expand(len(half) + len(others)).clone()
    index[half] = half.roll(1)
    return index
