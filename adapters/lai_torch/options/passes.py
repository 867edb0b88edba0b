"""A curator's pass, with options of its own."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

PassName = Literal["kept", "selective", "whole", "auto"]
"""The passes of a curator, by name."""


@dataclass(frozen=True, kw_only=True)
class KeptOptions:
    """The pass `kept` of a curator, with what is its own.

    Parameters
    ----------
    autocast
        Type in which training, not scoring, computes its forward pass. None: the model's own.
    scaler
        A `torch.amp.GradScaler` for training.
    balance
        On several processes, share kept rows out: each trains on as many, one more or less. Else a step
        lasts as long as on the process that keeps most.
    auxiliary
        `auxiliary(outputs, targets)`: a loss that trains and does not score, on the rows that are kept.
        `(n,)`, one number a sample, is weighed as its loss is; a single number, as a mixture of experts
        has one for its router, is added as it is (of several processes, each one's by its share of the
        rows).
    """

    autocast: torch.dtype | None = None
    scaler: Any = None
    balance: bool = False
    auxiliary: Any = None

    def __post_init__(self) -> None:
        cast = self.autocast
        if cast is not None and not (isinstance(cast, torch.dtype) and cast.is_floating_point):
            msg = f"autocast: expected a floating-point type, such as torch.bfloat16, or None, got {cast!r}"
            raise TypeError(msg)
