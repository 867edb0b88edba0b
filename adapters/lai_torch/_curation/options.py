"""What a curator's options must be."""

import math
from typing import Any

from torch import Tensor, nn

import lai_core as lai
from lai_torch._curation.validation import Validation

ESTIMATORS = (
    "ghost",
    "lai",
    "lli",
    "preconditioned_lai",
    "gate_lai",
    "calibrated_lai",
    "exact",
    "midpoint",
)
ONE_FORWARD = ("lai", "lli", "preconditioned_lai", "calibrated_lai")
"""Estimators that one forward pass and the output's gradient are enough for."""

SKETCHED = ("lai", "calibrated_lai")
"""Estimators whose products of output gradients may be replaced by those of sketches."""

PRECONDITIONING = (0.999, 1.0)
"""Decay of the second moment, and the power of it, where none are named."""

WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")
"""Classes of torch that spread a module over processes or devices."""


def check_model(model: nn.Module) -> None:
    """Raise if a model's parameters or batches are spread over processes.

    Raises
    ------
    ValueError
        If they are, naming the class that spreads them.
    """
    for module in model.modules():
        kinds = [kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.")]
        spread = [kind.__name__ for kind in kinds if kind.__name__ in WRAPPERS]
        if spread:
            msg = (
                f"model: expected one whole on this process, got {spread[0]}: a process that keeps no sample "
                "would leave the others waiting. Score with Curator(model.module, ...).score, and train the "
                "wrapped model on the weighted losses of every sample"
            )
            raise ValueError(msg)


def check_options(
    validation: Validation,
    optimizer: Any,
    *,
    estimator: str,
    positions: str | None,
    sketch: int | None,
    group_floor: float,
    backward: str,
    plain: bool,
    counts: dict[str, tuple[Any, int]],
) -> None:
    """Raise unless the options of a curator are sound and go together.

    Raises
    ------
    ValueError
        If they are not.
    """
    if estimator not in ESTIMATORS:
        msg = f"estimator: expected one of {', '.join(map(repr, ESTIMATORS))}, got {estimator!r}"
        raise ValueError(msg)
    _check_together(validation, optimizer, estimator)
    _check_backward(backward, estimator, plain=plain)
    if positions not in {None, "tokens", "mean", "flatten"}:
        msg = f"positions: expected None, 'tokens', 'mean' or 'flatten', got {positions!r}"
        raise ValueError(msg)
    if validation.is_summary:
        _check_summary(validation.source, estimator, positions)
    if sketch is not None:
        counts = {**counts, "sketch": (sketch, 1)}
        _check_sketch(validation, estimator)
    for name, (value, least) in counts.items():
        _check_count(name, value, least)
    if not 0.0 <= group_floor <= 1.0:
        msg = f"group_floor: expected a share in [0, 1], got {group_floor!r}"
        raise ValueError(msg)


def _check_together(validation: Validation, optimizer: Any, estimator: str) -> None:
    if estimator == "midpoint" and optimizer is None:
        msg = "optimizer: estimator 'midpoint' needs the optimizer's learning rates, got None"
        raise ValueError(msg)
    if estimator == "gate_lai" and validation.is_summary:
        msg = (
            "validation: estimator 'gate_lai' has no ValidationSummary; pass (inputs, targets), or use 'lai'"
        )
        raise ValueError(msg)
    if estimator == "calibrated_lai" and (validation.is_summary or validation.is_batch):
        msg = (
            "validation: estimator 'calibrated_lai' is calibrated on validation samples; pass "
            "(inputs, targets) or a loader, or use 'lai'"
        )
        raise ValueError(msg)
    if estimator in {"exact", "midpoint"} and validation.is_summary:
        msg = f"validation: estimator {estimator!r} has no ValidationSummary; pass (inputs, targets)"
        raise ValueError(msg)
    if estimator in {"exact", "midpoint"} and validation.source == "batch":
        msg = (
            f"validation: estimator {estimator!r} cannot leave a sample out of its own score; pass "
            "'batch+self', or use 'ghost'"
        )
        raise ValueError(msg)


def _check_summary(summary: lai.ValidationSummary, estimator: str, positions: str | None) -> None:
    wanted = "lai" if estimator == "preconditioned_lai" else estimator
    if summary.estimator != wanted:
        msg = f"validation: expected a summary for {wanted!r}, got one for {summary.estimator!r}"
        raise ValueError(msg)
    if positions is not None and summary.positions not in {None, positions}:
        msg = (
            f"positions: expected {summary.positions!r}, how the summary reads them, got {positions!r}; "
            "leave it out, or summarize again"
        )
        raise ValueError(msg)


def _check_sketch(validation: Validation, estimator: str) -> None:
    if estimator not in SKETCHED:
        expected = ", ".join(map(repr, SKETCHED))
        msg = f"sketch: expected the estimator to be one of {expected}, got {estimator!r}"
        raise ValueError(msg)
    if validation.is_summary:
        msg = (
            "sketch: expected a validation set to sketch, got a ValidationSummary; pass (inputs, targets) or "
            "a loader"
        )
        raise ValueError(msg)


def check_preconditioning(estimator: str, decay: float, exponent: float) -> None:
    """Raise unless decay and power of the second moment are sound, and the estimator has one.

    Raises
    ------
    ValueError
        If they are not, or it has not.
    """
    if not 0.0 <= decay < 1.0:
        msg = f"decay: expected a share in [0, 1), got {decay!r}"
        raise ValueError(msg)
    if not math.isfinite(exponent):
        msg = f"exponent: expected a finite number, got {exponent!r}"
        raise ValueError(msg)
    if estimator != "preconditioned_lai" and (decay, exponent) != PRECONDITIONING:
        name, got = ("decay", decay) if decay != PRECONDITIONING[0] else ("exponent", exponent)
        msg = f"{name}: expected estimator 'preconditioned_lai' beside {got!r}, got {estimator!r}"
        raise ValueError(msg)


def check_chunk(chunk: Any, validation: Validation, estimator: str, backward: str) -> None:
    """Raise unless a batch may be scored at most `chunk` samples at once.

    Raises
    ------
    ValueError
        If it may not.
    """
    if chunk is None:
        return
    _check_count("chunk", chunk, 1)
    if estimator in {"preconditioned_lai", "midpoint"}:
        msg = f"chunk: estimator {estimator!r} reads the whole batch at once; leave it out"
        raise ValueError(msg)
    if backward != "kept" or validation.is_batch:
        other = f"backward={backward!r}" if backward != "kept" else f"validation={validation.source!r}"
        msg = f"chunk: {other} runs the whole batch at once; leave it out, or use 'kept' and a validation set"
        raise ValueError(msg)


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        msg = f"{name}: expected a whole number, {least} or more, got {value!r}"
        raise ValueError(msg)


def _check_backward(backward: str, estimator: str, *, plain: bool) -> None:
    if backward not in {"kept", "selective", "whole", "auto"}:
        msg = f"backward: expected one of 'kept', 'selective', 'whole', 'auto', got {backward!r}"
        raise ValueError(msg)
    if backward != "kept" and estimator not in ONE_FORWARD:
        msg = f"backward: {backward!r} expects one of {', '.join(map(repr, ONE_FORWARD))}, got {estimator!r}"
        raise ValueError(msg)
    if backward != "kept" and not plain:
        msg = (
            f"backward: {backward!r} scores the forward pass that it trains on, and scores of one in half "
            "precision lose three digits, so it goes without autocast and scaler; use backward='kept'"
        )
        raise ValueError(msg)


def check_ids(ids: Any, samples: int) -> None:
    """Raise unless there is one id per sample.

    Raises
    ------
    ValueError
        If there is not.
    """
    if ids is not None and len(ids) != samples:
        msg = f"ids: expected one per sample ({samples}), got {len(ids)}"
        raise ValueError(msg)


def check_groups(groups: Tensor | None, samples: int) -> None:
    """Raise unless there is one group per sample.

    Raises
    ------
    ValueError
        If there is not.
    """
    if groups is not None and tuple(groups.shape) != (samples,):
        msg = f"groups: expected shape ({samples},), got {tuple(groups.shape)}"
        raise ValueError(msg)
