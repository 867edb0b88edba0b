"""What LAI and LLI read of a model that is mostly frozen, said in a warning."""

import warnings

from lai_torch._recording.rules.layers import READ_BY_LAI
from lai_torch._recording.watching.recording import Recording
from lai_torch._recording.watching.uses import Use


def warn_of_frozen(recording: Recording, *, head_alone: bool) -> None:
    """Warn where most of what is read belongs to layers that do not train; of LLI, where the last is one."""
    read = [use for use in recording.uses if use.kind in READ_BY_LAI]
    frozen = [use for use in read if recording.parameters.keys().isdisjoint(use.weight.names)]
    if not recording.parameters:
        return  # nothing trains: what is scored is meant as if all did
    if head_alone:
        if recording.final in frozen:
            _warn(f"LLI scores the last layer alone, {recording.final.name!r}, which is frozen")
    elif 2 * sum(map(_width, frozen)) > sum(map(_width, read)):
        _warn(f"{len(frozen)} of the {len(read)} layers whose inputs LAI reads are frozen")


def _width(use: Use) -> int:
    return int(use.activations.shape[1 if use.kind == "convolution" else -1])


def _warn(what: str) -> None:
    warnings.warn(
        f"model: {what}: its scores stand for training these layers too; estimators 'ghost' and 'exact' "
        "score the parameters that train, and these alone",
        UserWarning,
        stacklevel=2,
    )
