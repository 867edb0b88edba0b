"""A forward pass that switches autocast on by itself, as trainers of mixed precision make models do."""

import warnings
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class OwnAutocast(TorchFunctionMode):
    """Watches a forward pass that is called outside autocast; at the end warns if one was inside.

    What is scored is the function that trains, so that it is left as it is: the model computes in few
    digits, the products of what it computed have all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: torch.dtype | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func`, and note the type that autocast would compute in."""
        if self.found is None and args and isinstance(args[0], Tensor):
            kind = args[0].device.type
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                self.found = torch.get_autocast_dtype(kind)
        return func(*args, **(kwargs or {}))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        super().__exit__(kind, error, trace)
        if self.found is not None and error is None:
            name = str(self.found).removeprefix("torch.")
            warnings.warn(
                f"model: expected a forward pass in the parameters' own type, this one switches on autocast "
                f"({name}) by itself: what is scored is the function that trains, in {name}, with products "
                "in full precision; to score it in its own type pass the model as it was before (accelerate: "
                "unwrap_model(model, keep_fp32_wrapper=False))",
                UserWarning,
                stacklevel=2,
            )
