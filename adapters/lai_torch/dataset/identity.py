"""What torch's modules are made of, for fingerprints of runs: classes, settings and the bytes of tensors."""

from typing import Any

import torch
from lai_storage.identity import fingerprint
from torch import Tensor, nn


def content_of(model: nn.Module) -> dict[str, Any]:
    """Return each module's class and settings, and a fingerprint of each parameter and buffer, by name."""
    model = getattr(model, "_orig_mod", model)  # of a compiled one
    classes = {name: type(module) for name, module in model.named_modules(remove_duplicate=False)}
    settings = {}
    for name, module in model.named_modules():
        # attributes that are numbers, text or tuples, such as a stride; the mode is no setting
        plain = {key: one for key, one in vars(module).items() if isinstance(one, int | float | str | tuple)}
        settings[name] = {key: plain[key] for key in plain if key != "training" and not key.startswith("_")}
    # frozen layers have no score
    trains = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    tensors = {name: fingerprint(_bytes_of(tensor)) for name, tensor in tensors_of(model).items()}
    return {"classes": classes, "settings": settings, "trains": trains, "tensors": tensors}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name, those that no state dict has, too."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters | dict(model.named_buffers(remove_duplicate=False))


def _bytes_of(tensor: Tensor) -> Any:
    if hasattr(tensor, "__tensor_flatten__"):  # sharded, quantised: tensors within
        return [_bytes_of(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0]]
    dense = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        dense = dense.to_dense()
    return f"{tensor.dtype}{tuple(tensor.shape)}", dense.contiguous().flatten().view(torch.uint8).numpy()
