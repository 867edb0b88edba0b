"""Say which side of a batch lies on another device than the model, where that made a step fail."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from torch import nn

from lai_torch._model.batch import tensors

SIDES = ("inputs", "targets")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def naming_devices(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Put in words what fails because a batch lies elsewhere; a model that moves its batch does not fail.

    The method is a curator's, on `inputs` and `targets`.
    """

    @wraps(method)
    def named(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            return method(*args, **options)
        except RuntimeError as error:
            given = inspect.signature(method).bind(*args, **options).arguments
            sides = {name: side for name, side in given.items() if name in SIDES}
            found = _elsewhere(given["self"].model, sides)
            if found is None:
                raise
            raise ValueError(found) from error

    return named


def _elsewhere(model: nn.Module, sides: dict[str, Any]) -> str | None:
    """Say which side lies elsewhere than the model; None where none does, or the model is on several."""
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        return None
    (expected,) = devices
    for name, side in sides.items():
        for tensor in tensors(side):
            if tensor.device != expected:
                return (
                    f"{name}: expected tensors on the model's device, {expected}, got one on "
                    f"{tensor.device}; move the batch there: .to({str(expected)!r})"
                )
    return None
