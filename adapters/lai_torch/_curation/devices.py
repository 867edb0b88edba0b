"""Say which side of a batch lies on another device than the model, where that made a step fail."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import nn

from lai_torch._model.batch import tensors

Options = ParamSpec("Options")
Result = TypeVar("Result")


def naming_devices(
    method: Callable[Concatenate[Any, Any, Any, Options], Result],
) -> Callable[Concatenate[Any, Any, Any, Options], Result]:
    """Put in words what fails because a batch lies elsewhere; a model that moves its batch does not fail."""

    @wraps(method)
    def named(
        curator: Any, inputs: Any, targets: Any, *args: Options.args, **options: Options.kwargs
    ) -> Result:
        try:
            return method(curator, inputs, targets, *args, **options)
        except RuntimeError as error:
            found = _elsewhere(curator.model, {"inputs": inputs, "targets": targets})
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
