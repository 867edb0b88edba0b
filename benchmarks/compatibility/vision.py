"""torchvision beside a torch that its compiled operations were not built for."""

import importlib
import sys
from importlib.util import find_spec

import torch

_DECLARED: list[torch.library.Library] = []
"""Declarations last as long as their library."""


def fit_torchvision() -> None:
    """Import torchvision where there is one, so that timm and transformers can, whether it fits or not.

    Of torchvision they use transforms and a layer, which are Python, and no compiled operation. Where those
    do not load, the two that its Python code describes by name are declared.
    """
    if find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(declared)
        importlib.import_module("torchvision")
