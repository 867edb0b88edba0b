"""The routes by which LAI scores a model with positions: what each means, and what it takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import lai_core as lai
from lai_core.costs import pairwise_cost, summary_cost
from lai_torch._batch import Loss, count
from lai_torch._token_cost import forward_cost
from lai_torch.trace import trace

MEANINGS = {
    "tokens": "exact pairs of positions: Ghost of LAI's virtual readouts",
    "mean": "means over positions of inputs and of gradients",
    "flatten": "position by position; the validation set's traces are kept, and it costs as many pairs",
}


@dataclass(frozen=True)
class Route:
    """One way to read positions, as the options of a `Curator`.

    Attributes
    ----------
    positions
        `tokens`, `mean` or `flatten`.
    sketch
        Width to which output gradients are sketched; None: not at all.
    forwards
        What scoring the batch takes, in forward passes of it, counted in multiply-adds; of `flatten`
        against as many validation samples as the batch has.
    summary_bytes
        What the validation set's summary holds, for any number of samples; of `flatten`, per as many
        samples as the batch has.
    meaning
        What the score is then.
    """

    positions: str
    sketch: int | None
    forwards: float
    summary_bytes: int
    meaning: str


def routes(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, sketches: Sequence[int] = (16, 32, 64, 128)
) -> tuple[Route, ...]:
    """List what LAI's routes take on a batch, from its shapes: nothing is scored.

    Traces the batch once and runs it forward once, to count that pass. Tracing and the gradient of the
    output, the same for all routes, are not in the figures.

    Parameters
    ----------
    model, loss, inputs, targets
        As for `trace`.
    sketches
        Widths to list; those wider than the output are left out.

    Returns
    -------
    tuple of Route
        Those that fit the model, the most exact first, then sketches of that one.

    Raises
    ------
    ValueError
        As `trace` does; or if a width is no positive whole number.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 50))
    >>> loss = lambda outputs, targets: outputs.square().sum((1, 2))
    >>> found = lai_torch.routes(model, loss, torch.randn(2, 6, 4), torch.zeros(2), sketches=[5])
    >>> [(route.positions, route.sketch, round(route.forwards, 2)) for route in found]
    [('tokens', None, 1.5), ('mean', None, 0.25), ('flatten', None, 0.29), ('tokens', 5, 0.15)]
    """
    for width in sketches:
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            msg = f"sketches: expected positive whole numbers, got {width!r}"
            raise ValueError(msg)
    found = trace(model, loss, inputs, targets)
    once = forward_cost(model, inputs)
    gradients: Any = found.layers[-1].output_gradients
    outputs = int(gradients.shape[-1])
    size = torch.finfo(gradients.dtype).bits // 8
    listed = []
    for positions in lai.fitting_positions(found):
        if positions == "flatten":
            cost, held = pairwise_cost(found, found, "lai", positions=positions), _bytes(found)
        else:
            cost = summary_cost(found, "lai", positions=positions)
            places = gradients.shape[1] if positions == "tokens" and gradients.ndim == 3 else 1
            held = cost // (count(inputs, targets) * places) * size
        listed.append(Route(positions, None, cost / once, held, MEANINGS[positions]))
    best = listed[0]
    for width in sorted(width for width in sketches if width < outputs):
        share = width / outputs
        meaning = f"{best.meaning}; unbiased, of sketched output gradients"
        held = int(best.summary_bytes * share)
        listed.append(Route(best.positions, width, best.forwards * share, held, meaning))
    return tuple(listed)


def _bytes(trace: lai.Trace) -> int:
    """Return what a trace holds."""
    arrays: list[Tensor] = [array for layer in trace.layers for array in layer.arrays().values()]
    return sum(array.numel() * array.element_size() for array in arrays)
