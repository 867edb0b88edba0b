"""Floating-point operations of products and convolutions, as `torch.utils.flop_counter` counts them."""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Operations(TorchDispatchMode):
    """Counts the floating-point operations of products and convolutions, as torch's counter does."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Let captured graphs run under it: it changes nothing."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run `func` and count."""
        out = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def operations(run: Callable[[], Any]) -> int:
    """Return the floating-point operations of a call."""
    with Operations() as counter:
        run()
    return counter.total
