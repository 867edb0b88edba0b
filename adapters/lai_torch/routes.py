"""The routes by which LAI scores a model with positions: what each means, and what it costs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lai_core.estimators.costs import Route as Route
from lai_core.estimators.costs import list_routes
from lai_torch._model.batch import Loss, call
from lai_torch._model.function import plain_attention
from lai_torch._model.preserve import preserve, run_alone
from lai_torch.trace import trace


@run_alone
def routes(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, sketches: Sequence[int] = (16, 32, 64, 128)
) -> tuple[Route, ...]:
    """List what LAI's routes cost on a batch, from its shapes: nothing is scored.

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
    [('tokens', None, 1.5), ('mean', None, 0.25), ('flatten', None, 0.3), ('tokens', 5, 0.15)]
    """
    found = trace(model, loss, inputs, targets)
    counter = FlopCounterMode(display=False)
    with preserve(model), torch.no_grad(), plain_attention(), counter:
        call(model, inputs)
    return list_routes(found, int(counter.get_total_flops()) // 2, sketches=sketches)
