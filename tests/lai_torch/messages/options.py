"""Mistakes with options, where they are given: values that cannot be, keywords of something else."""

import functools
import math

import lai_torch
import torch

MESSAGES = {
    "ValueError: positions: expected one of 'tokens', 'mean', 'flatten'": (
        lambda: lai_torch.LAI(positions="pairs")
    ),
    "ValueError: sketch: expected a whole number >= 1, got 0": lambda: lai_torch.LAI(sketch=0),
    "ValueError: chunk: expected a whole number >= 1, got 0": lambda: lai_torch.Ghost(chunk=0),
    "ValueError: decay: expected a finite number >= 0.0 and < 1.0, got 1.0": lambda: (
        lai_torch.PreconditionedLAI(decay=1.0)
    ),
    "ValueError: of: expected one of 'sgd', 'optimizer', got 'adam'": lambda: lai_torch.Midpoint(of="adam"),
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
    "TypeError: share: expected a Python number, got str": lambda: lai_torch.GroupFloor("all"),
    "ValueError: size: expected a whole number >= 1, got 0": (lambda: lai_torch.draw(torch.ones(3), 0)),
    "ValueError: floor: expected a finite number > 0.0 and <= 1.0, got 0.0": (
        lambda: lai_torch.draw(torch.ones(3), 1, floor=0.0)
    ),
    "ValueError: path: expected a file in a folder that exists, got": (
        lambda: lai_torch.AuditLog("nowhere/audit.jsonl")
    ),
    **{
        f"TypeError: …unexpected keyword argument '{name}'": functools.partial(kind, **{name: value})
        for kind, name, value in [
            (lai_torch.Ghost, "positions", "mean"),
            (lai_torch.Ghost, "sketch", 2),
            (lai_torch.LAI, "exponent", 0.5),
            (lai_torch.PreconditionedLAI, "chunk", 3),
        ]
    },
}
