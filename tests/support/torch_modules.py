"""Modules made of a function and of what it reads."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Part(nn.Module):
    """A function of what it is given, and of parameters, buffers and modules by name."""

    def __init__(self, computes: Callable[..., Any], /, **own: Any) -> None:
        super().__init__()
        self.computes = computes
        for name, value in own.items():
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.computes(self, *given, **named)


def held(**own: Any) -> dict[str, Any]:
    return own


def holding(make: Callable[..., dict[str, Any]]) -> Callable[[Callable[..., Any]], Callable[..., Part]]:
    """Turn a function of a module and its inputs into a constructor; `make` returns what modules hold."""

    def constructor(computes: Callable[..., Any]) -> Callable[..., Part]:
        return functools.wraps(computes)(lambda *given, **named: Part(computes, **make(*given, **named)))

    return constructor
