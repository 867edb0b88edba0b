"""The values of the plain functions, for rules that record them by other functions."""

import functools
from typing import Any

import torch

from lai_torch._recording.watching.recorder import Recorder, Rule


def with_plain_values(rule: Rule) -> Rule:
    """Let a rule's output have the plain function's values to the bit, and the gradients that it records.

    Functions that are equal round differently. Where a ReLU's input is zero but for roundings, it opens by
    one of them and not by the other, and the recorded gradient is not the plain one. Batches of 1,000 samples
    have such inputs. LAI reads no gradient of a layer before the last one.

    Parameters
    ----------
    rule
        Returns a tensor that no other one shares numbers with, and that no function has saved for a backward
        pass.

    Returns
    -------
    Rule
        Likewise.
    """

    @functools.wraps(rule)
    def ruled(recorder: Recorder, func: Any, *args: Any, **kwargs: Any) -> Any:
        out = rule(recorder, func, *args, **kwargs)
        if out is not NotImplemented and recorder.every_layer:
            with torch.no_grad():
                out.detach().copy_(func(*args, **kwargs))
        return out

    return ruled
