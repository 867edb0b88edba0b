"""Check that the weighted sum of recorded per-sample gradients is the gradient of the weighted losses.

For weights w of the samples, the sum of w_j times the recorded gradient of sample j is the gradient of the
weighted losses exactly if every recorded gradient is right (for almost all w). Both are compared as vectors,
parameter by parameter.

See `signed_weights` for w. A float times a power of two is not rounded, so the plain pass takes the same
roundings as the recorded one on its way to each layer, whatever cancels there (a loss's own p - 1, for
instance): what is left are those of the last sum, over samples and positions.
"""

import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import GRADIENT_BUDGET, Block, summed_gradients, sums_agree
from lai_torch._model.batch import Loss, check_losses
from lai_torch._model.function import losses_of
from lai_torch._model.preserve import preserved
from lai_torch._model.sample_axis import norm
from lai_torch._model.snapshot import check_returned, other_leaves
from lai_torch._model.walk import named_parameters
from lai_torch._recording.assemble import assemble, parameters_of
from lai_torch._recording.proving.sample_axes import check_same
from lai_torch._recording.watching.recording import Recording

_LEVELS = (0.5, 1.0, 2.0, 4.0, -0.5, -1.0, -2.0, -4.0)


def signed_weights(losses: Tensor) -> list[Tensor]:
    """Return powers of two of random sign, one a sample: zero where a loss is not finite.

    Sums do not cancel with them where the batch's gradient nearly vanishes: |sum_j w_j g_j|^2 is
    sum_j w_j^2 |g_j|^2 then, but for the sampling. Nor may they where all samples' gradients are one vector,
    so that no pass's weights nearly add up to zero. There are as many passes as let any two samples have
    different weights in one of them, or exchanged gradients would not show.
    """
    samples, levels, passes = len(losses), len(_LEVELS), 1
    while levels**passes < 2 * samples:  # all codes together would have as many signs of either kind
        passes += 1
    drawn = torch.tensor(_LEVELS, dtype=torch.float64, device="cpu")
    generator = torch.Generator().manual_seed(1)
    while True:
        codes = torch.randperm(levels**passes, generator=generator, device="cpu")[:samples]
        digits = [codes // levels**place % levels for place in range(passes)]
        found = [torch.where(torch.isfinite(losses), drawn[digit].to(losses), 0.0) for digit in digits]
        if all(float(one.double().sum().abs()) >= float(one.double().norm()) / 4 for one in found):
            return found


def wrongly_recorded(
    model: nn.Module, loss: Loss, batch: tuple[Any, Any], recording: Recording, precision: float
) -> frozenset[str]:
    """Return the names of parameters whose recorded gradients do not add up to the plain one.

    Raises
    ------
    ValueError
        If the model gives other losses when it is run again.
    """
    wrong: set[str] = set()
    # as training runs, with the hooks that may change a gradient
    with preserved(model, loss, hooks=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = check_losses(losses_of(model, loss, batch), recording.samples)
        check_same((model, loss, batch), recording.losses, values.detach(), precision)
        parameters = list(recording.parameters.values())
        others = other_leaves(values, parameters).values()  # so that every function runs backwards
        trace, parts = assemble(recording), parameters_of(recording)
        for weights in signed_weights(recording.losses):
            total, leaves = (values * weights).sum(), [*parameters, *others]
            found = torch.autograd.grad(total, leaves, allow_unused=True, retain_graph=True)
            check_returned(named_parameters(model, loss))
            plain = {
                name: torch.zeros((), device="cpu") if one is None else one.detach()
                for name, one in zip(recording.parameters, found, strict=False)
            }
            # one sample's share of the sum is its gradient times its weight: on average that for weight 1
            count = float(weights.double().square().sum())
            wrong |= _apart(recording, _recorded(trace, parts, weights), plain, precision, count)
    return frozenset(wrong)


def _apart(
    recording: Recording,
    recorded: Mapping[tuple[str, ...], list[tuple[Tensor, ...]]],
    plain: Mapping[str, Tensor],
    precision: float,
    count: float,
) -> set[str]:
    """Return the names of parameters whose two gradients differ by more than rounding."""
    missing = set(plain) - {name for names in recorded for name in names} - set(recording.unexplained)
    blocks, together = [], []
    for names in [*recorded, *((name,) for name in missing)]:
        for place, name in enumerate(names):
            size = norm(plain[name])
            given = [matrix[place] for matrix in recorded.get(names, ())]
            # a gradient has its parameter's type, which may be coarser than all that the model computes in
            eps = max(precision, torch.finfo(recording.parameters[name].dtype).eps)
            blocks.append(Block(_distance(given, plain[name]) if given else size, size, eps))
            together.append(names)
    agreed = sums_agree(blocks, count)
    return {name for names, agrees in zip(together, agreed, strict=True) if not agrees for name in names}


def _recorded(
    trace: lai.Trace, parts: Mapping[str, list[str]], weights: Tensor
) -> dict[tuple[str, ...], list[tuple[Tensor, ...]]]:
    """Return the weighted sums of recorded gradients, by parameters: of each of their matrices one tuple."""
    layers: list[Any] = [layer for layer in trace.layers if layer.weight in parts]
    weighted = [replace(layer, output_gradients=_times(layer.output_gradients, weights)) for layer in layers]
    found = summed_gradients(lai.Trace(weighted), GRADIENT_BUDGET) if weighted else {}
    grouped: dict[tuple[str, ...], list[tuple[Tensor, ...]]] = defaultdict(list)
    for key, names in parts.items():
        sums = (found[key, part] for part in ("weight", "bias")[: len(names)])
        grouped[tuple(names)].append(
            tuple(blocks[0] if len(blocks) == 1 else torch.stack(list(blocks), -1) for blocks in sums)
        )
    return grouped


def _distance(matrices: list[Tensor], plain: Tensor) -> float:
    """Return the norm of the difference; a matrix may be recorded transposed, which no product sees."""
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    plain = plain.to_dense() if plain.is_sparse else plain
    size = sum(one.numel() for one in matrices)
    own = plain.expand(size) if plain.ndim == 0 else plain.reshape(-1)
    squares = 0.0
    for one, expected in zip(matrices, own.split([one.numel() for one in matrices]), strict=True):
        ways = [one.reshape(-1)] + ([one.mT.reshape(-1)] if one.ndim == 2 else [])
        squares += min(norm(way - expected.to(way)) ** 2 for way in ways)
    return squares**0.5


def _times(gradients: Tensor, weights: Tensor) -> Tensor:
    return gradients * weights.to(gradients).reshape(-1, *[1] * (gradients.ndim - 1))
