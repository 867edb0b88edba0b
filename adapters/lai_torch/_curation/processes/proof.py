"""What a wrapper did to gradients, proved on the first step that it synchronised."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lai_torch._curation.processes.engine import Engine

ROUGHLY = 0.1
"""How far a gradient may be off: training may be in half precision, and the least factor is two."""

NUMBERS = 2**20
"""Of a parameter that is compared, where there is one with as few."""


def compared(parameters: Mapping[str, Tensor]) -> str:
    """Return which parameter to compare: of many numbers, for few may be alike by chance."""
    small = [name for name, each in parameters.items() if each.numel() <= NUMBERS]
    if small:
        return max(small, key=lambda name: parameters[name].numel())
    return min(parameters, key=lambda name: parameters[name].numel())


def check_synchronised(engine: Engine, name: str, expected: Tensor) -> None:
    """Compare a parameter's gradient with what adding up without the wrapper gave.

    Wrappers average by default, and can be told to sum. One that does gets this step's gradients divided,
    and later ones right from the start.

    Raises
    ------
    ValueError
        If the gradient is neither: the wrapper is bypassed, or does something of its own.
    """
    norm, size = float(expected.double().norm()), engine.group.size
    given = dict(engine.model.named_parameters())[name].grad
    if not norm:  # which proves nothing
        return
    whole = torch.zeros_like(expected) if given is None else given
    whole = engine.group.whole(whole)
    whole, expected = whole.double(), expected.double()
    off = {each: float((whole - each * expected).norm()) / (each * norm) for each in (1, size)}
    divisor = min(off, key=lambda each: off[each])
    if engine.group.most(off[divisor] > ROUGHLY):
        msg = (
            f"model: expected its wrapper to average gradients over the {size} processes, or to sum them; "
            f"that of {name!r} is neither everywhere, here off by {off[divisor]:.2g} of it; leave out "
            "no_sync, and hooks that change gradients"
        )
        raise ValueError(msg)
    engine.proved = True
    if divisor == 1:
        return
    engine.divides = False
    for each in engine.model.parameters():
        if each.grad is not None:
            each.grad.div_(divisor)
