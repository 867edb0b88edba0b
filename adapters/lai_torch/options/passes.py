"""A curator's pass, with options of its own."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class Kept:
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
    """

    autocast: torch.dtype | None = None
    scaler: Any = None
    balance: bool = False
