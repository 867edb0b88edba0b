"""Mistakes with options, where they are given: values that cannot be, keywords of something else."""

import math

import lai_torch
import torch

MESSAGES = {
    "ValueError: chunk: expected a whole number >= 1, got 0": lambda: lai_torch.Ghost(chunk=0),
    "ValueError: method: expected one of …, got 'reversed'; did you mean": (
        lambda: lai_torch.Exact(method="reversed")
    ),
    "ValueError: autocast: expected torch.bfloat16 or None": [
        lambda wrong=wrong: lai_torch.LAI(autocast=wrong) for wrong in (torch.float16, "bfloat16", True)
    ],
    "TypeError: valid: expected a function from a batch's inputs": lambda: lai_torch.LAI(
        valid=torch.ones(6, 4)
    ),
    "TypeError: autocast: expected a floating-point type": lambda: lai_torch.Kept(autocast="bfloat16"),
    "TypeError: scaler: expected a torch.amp.GradScaler, or None, got int": lambda: lai_torch.Kept(scaler=3),
    "TypeError: auxiliary: expected a function": lambda: lai_torch.Kept(auxiliary=0.1),
    "ValueError: threshold: expected a number, got nan": lambda: lai_torch.KeepAbove(math.nan),
    "ValueError: share: expected a finite number >= 0.0 and <= 1.0": lambda: lai_torch.GroupFloor(2.0),
    "ValueError: path: expected a file in a folder that exists, got": (
        lambda: lai_torch.AuditLog("nowhere/audit.jsonl")
    ),
}
