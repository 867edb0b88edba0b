"""torch's own catalogue of modules, each between two layers, in eval mode."""

import importlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import nn

from benchmarks.compatibility.around import attempt
from benchmarks.compatibility.forms import operation_of
from benchmarks.compatibility.judge import Row, unfit


def cases(group: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the suite, the name and a function that judges, for every input of one module."""
    info = groups()[group]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs = info.module_inputs_func(
            info, device="cpu", dtype=torch.float64, requires_grad=True, training=False
        )
    for number, given in enumerate(inputs):
        yield "moduleinfo", f"{group}#{number}", partial(_attempt, info.module_cls, given)


@cache
def groups() -> dict[str, Any]:
    """Return the modules by name."""
    module_db = importlib.import_module("torch.testing._internal.common_modules").module_db
    return {info.name: info for info in module_db}


def _attempt(kind: type[nn.Module], given: Any) -> Row:
    """Judge one module on one input: as what it is where it trains, else as an operation on data."""
    torch.manual_seed(3)
    module = kind(*given.constructor_input.args, **given.constructor_input.kwargs).double().eval()
    args, kwargs = given.forward_input.args, given.forward_input.kwargs
    with torch.no_grad():
        module(*args, **kwargs)  # lazy ones are built by their first call
    operation = operation_of(lambda args, kwargs: module(*args, **kwargs), (args, kwargs), module)
    trains = any(parameter.requires_grad for parameter in module.parameters())
    if trains and not operation.arguments:
        return unfit("no floating input")
    return attempt(operation, "own" if trains else "data")
