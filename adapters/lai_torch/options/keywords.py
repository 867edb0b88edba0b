"""Answers to keywords that a function or a host does not have: where they belong, or what was meant."""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

from lai_torch.options import estimators, policies
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


P = ParamSpec("P")
R = TypeVar("R")

_POLICY = "policy=functools.partial(lai_core.keep_top, {}=...)"

ELSEWHERE = {
    "ids": "Curator.step(..., ids=...)",
    "groups": "Curator.step(..., groups=...)",
    "fraction": _POLICY.format("fraction"),
    "normalize": _POLICY.format("normalize"),
    "layer_weights": "lai_core.lai_scores(..., layer_weights=...), or estimator=lai_torch.CalibratedLAI()",
    "max_grad_norm": "TrainingArguments(max_grad_norm=...), or Curator(max_norm=...)",
    "gradient_clip_val": "Lightning's Trainer(gradient_clip_val=...), or Curator(max_norm=...)",
    "gradient_accumulation_steps": "TrainingArguments(gradient_accumulation_steps=...)",
    "accumulate_grad_batches": "Lightning's Trainer(accumulate_grad_batches=...), or Curator(accumulate=...)",
    "learning_rate": "the optimizer, or transformers' TrainingArguments(learning_rate=...)",
    "lr": "the optimizer, such as torch.optim.SGD(model.parameters(), lr=...)",
    "batch_size": "the DataLoader, or score_dataset(batch_size=...)",
    "bf16": "TrainingArguments(bf16=True), or Curator(backward=lai_torch.Kept(autocast=torch.bfloat16))",
    "fp16": "TrainingArguments(fp16=True), or Curator(backward=lai_torch.Kept(autocast=..., scaler=...))",
    "seed": "Curator(generator=torch.Generator().manual_seed(...))",
    "device": "model.to(device): batches follow the model",
    "eval_dataset": "validation=..., the samples to help",
}
"""Options of other functions, and of other libraries, that one might look for here."""

SYNONYMS = {
    "loss": ("criterion", "loss_fn", "loss_function", "sample_loss"),
    "optimizer": ("opt", "optim"),
    "validation": (
        "val",
        "valid_set",
        "val_set",
        "val_data",
        "validation_data",
        "validation_set",
        "val_loader",
    ),
    "policy": ("keep", "select", "selection", "strategy", "top_k", "ratio", "keep_fraction", "keep_ratio"),
    "estimator": ("scorer", "score", "kind", "influence"),
    "warmup": ("warmup_steps", "warm_up", "start"),
    "refresh": ("refresh_every", "every", "update_every", "refresh_steps", "interval"),
    "accumulate": ("accumulation_steps", "grad_accum", "accum_steps"),
    "max_norm": ("clip", "grad_clip", "clip_grad", "clip_grad_norm", "clip_norm", "max_gradient_norm"),
    "backward": ("pass_", "mode"),
    "share": ("subsample", "validation_share", "sample_fraction"),
    "generator": ("rng", "random_state"),
    "group": ("process_group", "pg"),
}
"""Other words for a curator's arguments."""


OPTIONS: dict[str, tuple[type, ...]] = {
    "estimator": (
        estimators.LAI,
        *(kind for kind in estimators.ESTIMATORS.values() if kind is not estimators.LAI),
    ),
    "backward": (Kept,),
    "policy": (policies.KeepAbove, policies.KeepBelowLoss, policies.Scheduled),
}
"""Classes with options of their own, by the argument of a curator that takes them."""


def _owners(name: str) -> list[str]:
    """Return the calls that take an option."""
    found = [ELSEWHERE[name]] if name in ELSEWHERE else []
    for argument, kinds in OPTIONS.items():
        kind = next((kind for kind in kinds if name in _names(kind)), None)
        if kind is not None:
            found.append(f"{argument}=lai_torch.{kind.__name__}({name}=...)")
    return found


def _names(kind: Any) -> set[str]:
    return {field.name for field in fields(kind)} - {"policy", "normalize"}


def _way_out(name: str, known: list[str]) -> str:
    """Say where a keyword belongs, or which of the known ones was meant."""
    meant = next((word for word, others in SYNONYMS.items() if name in others and word in known), None)
    owners = [] if meant else _owners(name)
    if not (meant or owners):
        options = {option for kinds in OPTIONS.values() for kind in kinds for option in _names(kind)}
        meant = next(iter(get_close_matches(name, [*known, *sorted(options)], n=1)), None)
        owners = [] if meant is None or meant in known else _owners(meant)
    if owners:
        return f"it belongs to {', or '.join(owners)}"
    return f"there are {', '.join(known)}" if meant is None else f"did you mean {meant!r}?"


def check_keywords(name: str, function: Callable[..., object], keywords: Iterable[str]) -> None:
    """Raise if a function has no parameter of a keyword, and say where that belongs.

    Parameters
    ----------
    name
        What the function is called.
    function
        Which.
    keywords
        With which it is called.
    """
    known = [each for each in inspect.signature(function).parameters if each != "self"]
    for keyword in keywords:
        if keyword not in known:
            msg = f"{name}() got an unexpected keyword argument {keyword!r}; {_way_out(keyword, known)}"
            raise TypeError(msg)


def answering(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that answers unknown keywords by where they belong."""
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except TypeError as error:
            if "unexpected keyword argument" in str(error):
                check_keywords(name, function, keywords)
            raise

    return called
