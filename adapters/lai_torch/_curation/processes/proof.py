"""What a wrapper did to gradients, proved on the first step that it synchronised."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lai_core._adapters import rounding_bound
from lai_torch._curation.processes.engine import Engine

COARSEST = torch.bfloat16
"""What training may compute in, or send gradients in: a wrapper's own types and hooks are not to be seen."""

NUMBERS = 2**20
"""Of a parameter that is compared, where there is one with as few."""


def compared(parameters: Mapping[str, Tensor]) -> str:
    """Return which parameter to compare: of many numbers, for few may be alike by chance."""
    small = [name for name, each in parameters.items() if each.numel() <= NUMBERS]
    if small:
        return max(small, key=lambda name: parameters[name].numel())
    return min(parameters, key=lambda name: parameters[name].numel())


def check_synchronised(engine: Engine, name: str, expected: Tensor, terms: float) -> None:
    """Compare a parameter's gradient with what adding up without the wrapper gave.

    Wrappers average by default, and can be told to sum. One that does gets this step's gradients divided,
    and later ones right from the start. A step in which the sum nearly cancels may not tell which.

    Roundings of the samples are independent and add up to their share of the `terms`; those of parameters in
    few digits are the same for all samples, and add up to their share of the sum. In bfloat16 that is 6% of
    both. What one process leaves out is seen, 1% of one sample is not: the wrapper has no part in that.

    Parameters
    ----------
    engine
        The model and its wrapper.
    name, expected
        The parameter, and the gradient that was added up without the wrapper.
    terms
        The root of the sum of squares of the samples' shares in it.

    Raises
    ------
    ValueError
        If the gradient is neither: the wrapper is bypassed, or does something of its own.
    """
    size = engine.group.size
    given = dict(engine.model.named_parameters())[name].grad
    whole = engine.group.whole(torch.zeros_like(expected) if given is None else given).double()
    expected = expected.double()
    off = {each: float((whole / each - expected).norm()) for each in (1, size)}
    if engine.group.most(not off[1] < float("inf")):  # a scaled gradient that overflows tells nothing
        return
    within = rounding_bound(torch.finfo(COARSEST).eps, terms + float(expected.norm()))
    fits = [each for each in off if off[each] <= within]
    if engine.group.most(not fits):
        msg = (
            f"model: expected its wrapper to average gradients over the {size} processes, or to sum them; "
            f"that of {name!r} is neither everywhere, here off by {min(off.values()):.2g} where roundings "
            f"explain {within:.2g}; leave out no_sync, and hooks that change gradients"
        )
        raise ValueError(msg)
    if engine.group.most(len(fits) > 1):
        return
    engine.proved = True
    if fits == [1]:
        return
    engine.divides = False
    for each in engine.model.parameters():
        if each.grad is not None:
            each.grad.div_(size)
