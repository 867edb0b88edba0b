"""Options that a host does not honour, each with the host's own way out."""

from dataclasses import fields
from typing import Any

from lai_torch.options.passes import Kept

HEADS = {
    "score": "expected an optimizer beside {given}, got None: score() and weigh() train nothing",
    "CuratedTrainer": "expected no {name} in curation, got {given}: the Trainer trains",
    "Curation": "expected no {name}, got {given}: Lightning's Trainer trains",
    "score_dataset": "expected no {name} of the estimator, got {given}",
}
"""What a host says of an option that it does not honour; `Curator.step` honours all of them.

`score` is a curator without an optimizer; what holds for `CuratedTrainer` holds for `CuratedSFTTrainer`.
"""

_WITHOUT = "leave it out"
_ROWS = "it runs the kept rows itself; leave it out"

REFUSED: dict[str, tuple[Any, dict[str, str]]] = {
    "accumulate": (
        1,
        {
            "score": _WITHOUT,
            "CuratedTrainer": "pass TrainingArguments(gradient_accumulation_steps=...)",
            "Curation": "pass Trainer(accumulate_grad_batches=...)",
        },
    ),
    "max_norm": (
        None,
        {
            "score": _WITHOUT,
            "CuratedTrainer": "pass TrainingArguments(max_grad_norm=...)",
            "Curation": "pass Trainer(gradient_clip_val=...)",
        },
    ),
    "backward": (
        "kept",
        {
            "score": "leave it out, or call step() with an optimizer",
            "CuratedTrainer": _ROWS,
            "Curation": _ROWS,
        },
    ),
    "Kept.autocast": (
        None,
        {
            "score": "put torch.autocast around your own training",
            "CuratedTrainer": "pass TrainingArguments(bf16=True)",
            "Curation": "pass Trainer(precision='bf16-mixed')",
        },
    ),
    "Kept.scaler": (
        None,
        {
            "score": "scale the loss in your own training",
            "CuratedTrainer": "pass TrainingArguments(fp16=True)",
            "Curation": "pass Trainer(precision='16-mixed')",
        },
    ),
    "Kept.balance": (False, {"score": _WITHOUT, "CuratedTrainer": _ROWS, "Curation": _ROWS}),
    "Kept.auxiliary": (None, {"score": "pass objective(losses, weights, auxiliary=...)"}),
    "group": (None, {"Curation": "it takes the trainer's processes; leave it out"}),
    "chunk": (None, {"score_dataset": "pass batch_size=... beside it"}),
    "parts": (None, {"score_dataset": "pass parts=... beside it"}),
}
"""Of each option that a host does not honour: the value that means unused, and each such host's way out."""


def check_host(host: str, **options: Any) -> None:
    """Raise if an option is used that a host does not honour, naming where it belongs.

    Parameters
    ----------
    host
        One of `HEADS`.
    options
        A curator's, of which `backward` may be a `Kept` with options of its own, or an estimator's.
    """
    training = options.get("backward")
    if isinstance(training, Kept):
        own = {f"Kept.{field.name}": getattr(training, field.name) for field in fields(training)}
        options = options | own | {"backward": "kept"}
    for option, (unused, ways_out) in REFUSED.items():
        value = options.get(option, unused)
        if host in ways_out and value is not unused and value != unused:
            name = option.rpartition(".")[2]
            head = HEADS[host].format(name=name, given=f"{name}={value!r}")
            msg = f"{name}: {head}; {ways_out[host]}"
            raise ValueError(msg)
