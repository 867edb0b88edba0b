"""Check that gradients, too, do not depend on the other samples: a custom backward pass may couple them.

A custom function or a hook may centre gradients over the batch, and an embedding may divide them by the
frequency of its ids in the batch. The losses do not show it. So the gradient of one half's losses is taken
twice: beside the other half, whose losses have weight zero, and beside copies of its own samples. The half's
losses have weights of random sign, because a plain sum of gradients nearly vanishes in a trained model.
"""

import functools
import warnings
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from lai_core._adapters import rounding_bound
from lai_torch._model.batch import bisections, check_losses, count, row_sources, rows, tensors
from lai_torch._model.function import losses_of
from lai_torch._model.preserve import preserved, unhooked
from lai_torch._model.sample_axis import differ, magnitude, norm
from lai_torch._model.snapshot import check_owned, other_leaves
from lai_torch._model.walk import named_parameters
from lai_torch._recording.proving.independence import CoupledError, Problem, roundings
from lai_torch._recording.watching.recording import Recording

FOLD = 2**12
"""Entries of a parameter's gradient that are kept: norms of differences are then known to about 2%."""


def check_gradients_apart(problem: Problem, parameters: Mapping[str, nn.Parameter], precision: float) -> None:
    """Raise if a gradient of some samples' losses moves with the other samples of the batch.

    Each sample keeps its row, and with it its random numbers. A batch without repeated samples (where a
    copy raises) is not checked.
    """
    model, loss, batch = problem
    samples = count(*batch)
    if samples < 2 or not parameters:
        return
    cut = bisections(torch.ones(samples, dtype=torch.bool, device="cpu"))[0]
    losses, beside = _gradients(problem, cut, parameters)
    for half, expected in zip(cut, beside, strict=True):
        copies = rows(batch, row_sources(half), samples)
        try:
            others, (found,) = _gradients((model, loss, copies), [half], parameters)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # a batch that has to be as it is
            return
        if differ(others[half], losses[half], roundings(losses, precision)):
            continue  # they draw other numbers, by values: nothing can be compared
        whole = sum(norm(gradient) ** 2 for gradient in expected.values()) ** 0.5
        # every row is computed as it was, by the same kernels at the same place: sums alone are rounded anew
        within = rounding_bound(precision, whole)
        for name, gradient in expected.items():
            if norm(gradient - found[name]) > within:
                msg = (
                    f"model: what some samples give to the gradient of {name!r} moves with the other samples "
                    "of the batch: they are coupled in the backward pass (by a hook, a custom function or "
                    "scale_grad_by_freq), so that no sample has a gradient of its own; leave that out, or "
                    "score what is coupled as one sample (the sum of its rows' losses)"
                )
                raise CoupledError(msg)


def check_owned_leaves(problem: Problem) -> None:
    """Raise if the losses depend on a parameter that neither the model nor the loss registers.

    The recorder does not know such a parameter, which may belong to a layer.
    """
    model, loss, batch = problem
    known = [*tensors(batch), *named_parameters(model, loss).values()]

    def others() -> dict[int, Tensor]:
        with preserved(model, loss), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return other_leaves(losses_of(model, loss, batch), known)

    check_owned(loss, others(), others)


def check_unhooked(problem: Problem, recording: Recording, precision: float) -> None:
    """Raise if hooks on modules or parameters change the gradient of the last layer's parameters.

    The record describes the function without hooks. A hook that clips may not change small gradients, so the
    check is repeated with larger ones.
    """
    model, loss, batch = problem
    if not recording.known.hooks or recording.final is None:
        return
    sources = [recording.final.weight, *([recording.final.bias] if recording.final.bias else [])]
    names = {name for source in sources for name in source.names}
    parameters = {name: one for name, one in recording.parameters.items() if name in names}

    def gradients(scale: float, *, hooks: bool) -> list[Tensor]:
        aside = () if hooks else parameters.values()
        with preserved(model, loss, hooks=hooks), unhooked(aside), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            total = scale * losses_of(model, loss, batch).sum()
            found = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        return [_plain(gradient) / scale for gradient in found]

    if not parameters:
        return
    expected = gradients(1.0, hooks=False)
    within = max(roundings(one, precision) for one in expected)
    for scale in (1.0, 1024.0):
        for name, one, found in zip(parameters, expected, gradients(scale, hooks=True), strict=True):
            if not magnitude(one - found) <= within:
                msg = (
                    f"model: a hook changes the gradient of {name!r}, a parameter of the last layer, which "
                    "LAI and LLI read without hooks; remove it, or use estimator 'exact'"
                )
                raise ValueError(msg)


def _gradients(
    problem: Problem, parts: Iterable[Tensor], parameters: Mapping[str, nn.Parameter]
) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """Return the losses of a batch, and for each part of it, a mask, its folded gradients."""
    model, loss, batch = problem
    # with the hooks that may mix gradients: those on parameters see what is added up for them
    with (
        preserved(model, loss, hooks=True),
        unhooked(parameters.values()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        values = check_losses(losses_of(model, loss, batch), count(*batch))
        found = []
        for part in parts if values.requires_grad else ():
            weights = _weights(part).to(values)
            total = torch.where(weights != 0, weights * values, 0.0).sum()
            found.append(_folded_gradients(total, parameters))
    return values.detach(), found


def _folded_gradients(total: Tensor, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the gradient of each parameter, folded as it comes: all together take as much as the model."""
    found = dict.fromkeys(parameters, torch.zeros((), device="cpu"))
    passes: list[int] = []

    def keep(name: str, gradient: Tensor | None) -> Tensor | None:
        # a function of one's own may return None, or run a backward pass within this one
        if gradient is None or torch._C._current_graph_task_id() != passes[0]:
            return None
        found[name] = _folded(gradient)
        return None if gradient.is_sparse else gradient.new_zeros(()).expand(gradient.shape)

    handles = [one.register_hook(functools.partial(keep, name)) for name, one in parameters.items()]
    total.register_hook(lambda _: passes.append(torch._C._current_graph_task_id()))
    try:
        torch.autograd.grad(total, list(parameters.values()), retain_graph=True, allow_unused=True)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _folded(gradient: Tensor) -> Tensor:
    """Return sums of entries of random sign, `FOLD` at most, whose sum of squares is on average the entries'.

    A gradient of no more entries is returned as it is.
    """
    flat = _plain(gradient).flatten()
    if flat.numel() <= FOLD:
        return flat
    stream = torch.Generator(flat.device).manual_seed(3)
    signs = torch.randint(2, flat.shape, generator=stream, device=flat.device, dtype=torch.int8)
    signed = flat * (2 * signs - 1)
    return torch.nn.functional.pad(signed, (0, -len(flat) % FOLD)).view(-1, FOLD).sum(0)


def _weights(part: Tensor) -> Tensor:
    """Return plus or minus a half, one or two for the samples of a part, a mask, and zero for the others."""
    stream = torch.Generator("cpu").manual_seed(2)
    drawn = torch.randint(6, part.shape, generator=stream, device="cpu")
    levels = torch.tensor([0.5, 1.0, 2.0, -0.5, -1.0, -2.0], dtype=torch.float64, device="cpu")
    return torch.where(part, levels[drawn].to(part.device), 0.0)


def _plain(gradient: Tensor | None) -> Tensor:
    """Return a gradient as a dense one; one entry of zero where there is none."""
    if gradient is None:
        return torch.zeros((), device="cpu")
    return gradient.to_dense() if gradient.is_sparse else gradient
