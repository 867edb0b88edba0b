"""Mistakes with options, where they are given: values that cannot be, keywords of something else."""

import functools
import math

import lai_torch
import torch

from tests.lai_torch.support import LOSS, data, network


def called(name, **options):
    given = (network(), LOSS, None, data(5)) if name == "Curator" else ()
    return getattr(lai_torch, name)(*given, **options)


OPTIONS = {
    "ValueError: positions: expected None, 'tokens', 'mean' or 'flatten'": (
        lambda: lai_torch.LAI(positions="pairs")
    ),
    "ValueError: positions: …did you mean 'tokens'?": lambda: lai_torch.LAI(positions="token"),
    "ValueError: sketch: expected a whole number, 1 or more, got 0": lambda: lai_torch.LAI(sketch=0),
    "ValueError: parts: expected a whole number, 2 or more, got 1": lambda: lai_torch.LAI(parts=1),
    "ValueError: chunk: expected a whole number, 1 or more, got 0": lambda: lai_torch.Ghost(chunk=0),
    "ValueError: decay: expected a share in [0, 1), got 1.0": lambda: lai_torch.PreconditionedLAI(decay=1.0),
    "ValueError: exponent: expected a finite number, got inf": (
        lambda: lai_torch.PreconditionedLAI(exponent=math.inf)
    ),
    "ValueError: of: expected 'sgd' or 'optimizer', got 'adam'": lambda: lai_torch.Midpoint(of="adam"),
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
    "ValueError: threshold: expected a number, got '1'": lambda: lai_torch.KeepAbove("1"),
    "ValueError: share: expected a share in [0, 1], got 2.0": lambda: lai_torch.GroupFloor(2.0),
    "ValueError: share: expected a share in [0, 1], got 'all'": lambda: lai_torch.GroupFloor("all"),
    "ValueError: size: expected a number of samples, 1 or more, got 0": (
        lambda: lai_torch.draw(torch.ones(3), 0)
    ),
    "ValueError: floor: expected a share in (0, 1], got 0.0": (
        lambda: lai_torch.draw(torch.ones(3), 1, floor=0.0)
    ),
    "ValueError: path: expected a file in a folder that exists, got '.'": lambda: lai_torch.AuditLog("."),
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

BELONGS = {
    "Curator(positions=": "it belongs to estimator=lai_torch.LAI(positions=...)",
    "Curator(decay=": "it belongs to estimator=lai_torch.PreconditionedLAI(decay=...)",
    "Curator(autocast=": "estimator=lai_torch.LAI(autocast=...), or backward=lai_torch.Kept(autocast=",
    "Curator(max_grad_norm=": "it belongs to TrainingArguments(max_grad_norm=...), or Curator(max_norm=",
    "Curator(threshold=": "it belongs to policy=lai_torch.KeepAbove(threshold=...)",
    "Curator(fraction=": "it belongs to policy=functools.partial(lai_core.keep_top, fraction=...)",
    "Curator(criterion=": "did you mean 'loss'?",
    "Curator(clip=": "did you mean 'max_norm'?",
    "Curator(warmup_step=": "did you mean 'warmup'?",
    "Curator(treshold=": "it belongs to policy=lai_torch.KeepAbove(threshold=...)",
    "Curator(colour=": "there are model, loss, optimizer, validation, estimator",
    "LAI(decay=": "it belongs to estimator=lai_torch.PreconditionedLAI(decay=...)",
    "PreconditionedLAI(sketch=": "",
    "Midpoint(chunk=": "",
    "Kept(max_norm=": "there are autocast, scaler, balance, auxiliary",
    "score_dataset(batchsize=": "did you mean 'batch_size'?",
}
UNKNOWN = {
    f"TypeError: {name}() got an unexpected keyword argument '{keyword}'; …{answer}": (
        functools.partial(called, name, **{keyword: 1})
    )
    for (name, keyword), answer in ((call[:-1].split("("), answer) for call, answer in BELONGS.items())
}
MESSAGES = OPTIONS | UNKNOWN
