"""Matrices that LAI sees nothing of, said by name."""

import warnings

import torch
from torch.nn import functional
from torch.overrides import resolve_name

from lai_torch._recording.layer_rules import LAYERS
from lai_torch._recording.recorder import Recorder

PRODUCTS = (
    *LAYERS,
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
    functional.bilinear,
    torch.einsum,
    torch.bmm,
    torch.baddbmm,
    torch.lstm,
    torch.gru,
    torch.rnn_tanh,
    torch.rnn_relu,
)
"""Functions that multiply something of the batch with a parameter, in ways that have no record for LAI."""


def warn_of_unread(recorder: Recorder) -> None:
    """Warn of matrices that multiply something of the batch from which LAI has no readout."""
    names = {resolve_name(func) or str(func) for func in PRODUCTS}
    read = {name for use in recorder.uses for name in use.weight.names}
    unread = "; ".join(
        f"{name!r} (used by {func})"
        for name, func in recorder.stuck.items()
        if func in names and name not in read and recorder.parameters[name].ndim > 1
    )
    if unread:
        warnings.warn(
            f"model: LAI has no readout from the input of {unread}, and leaves it out; estimators 'ghost' "
            "and 'exact' see every parameter, or refuse",
            UserWarning,
            stacklevel=2,
        )
