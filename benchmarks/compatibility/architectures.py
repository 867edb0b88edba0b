"""Architectures of transformers, made small: causal, masked, classifying sequences or images."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.compatibility.judge import build_first
from benchmarks.compatibility.proportions import variants
from benchmarks.compatibility.shrink import IMAGE, MOST_PARAMETERS, VOCABULARY
from benchmarks.compatibility.torch_case import Case

TASKS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING",
    "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
}
TOKENS, END = 8, 2
BOUNDS = {torch.float64: 1e-5, torch.float32: 2e-3}
"""Many architectures compute their norms and rotations in float32, whatever their own type."""


def cases() -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """Yield the suite, the name and a function that builds, of each architecture of each task."""
    import transformers

    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    for task, mapping in TASKS.items():
        for kind, model in getattr(auto, mapping).items():
            for each in model if isinstance(model, tuple) else (model,):
                yield "transformers", f"{task}/{each.__name__}", partial(_build, task, kind, each)


def _build(task: str, kind: type, model: type[nn.Module]) -> Case:
    tries = itertools.product(variants(model.config_class or kind), BOUNDS)
    return build_first(partial(_case, task, configuration, model, dtype) for configuration, dtype in tries)


def _case(task: str, configuration: Any, kind: type[nn.Module], dtype: torch.dtype) -> Case:
    with torch.device("meta"), default_dtype(torch.float32):
        size = sum(parameter.numel() for parameter in kind(configuration).parameters())
    if size > MOST_PARAMETERS:
        msg = f"{size:,} parameters"
        raise ValueError(msg)
    with torch.random.fork_rng(devices=[]), default_dtype(torch.float32):
        torch.manual_seed(0)
        model = kind(configuration)
    model = model.to(dtype).eval()
    if hasattr(model, "set_default_language"):
        model.set_default_language("en_XX")
    with torch.no_grad():
        for parameter in model.parameters():
            if not bool(torch.isfinite(parameter).all()):
                parameter.normal_(std=0.02)  # left as allocated, to be filled from a checkpoint
    generator = torch.Generator().manual_seed(1)
    training, validation = (_batch(task, configuration, model, n, dtype, generator) for n in (3, 2))
    return Case(
        model=model,
        loss=per_token,
        training=training,
        validation=validation,
        layers=layers_of(model),
        # one matrix an expert, whatever operation multiplies by them
        matrices=[name for name, p in model.named_parameters() if "expert" in name and p.ndim == 3],
        only=True,
        bound=BOUNDS[dtype],
    )


def _batch(
    task: str, configuration: Any, model: nn.Module, n: int, dtype: torch.dtype, generator: torch.Generator
) -> tuple[dict[str, Tensor], Tensor]:
    if task != "image" or model.main_input_name == "input_ids":
        return language_batch(model, n, generator)
    side = getattr(configuration, "image_size", None) or IMAGE
    side = side[0] if isinstance(side, list | tuple) else side
    inputs = {"pixel_values": torch.randn(n, 3, side, side, generator=generator, dtype=dtype)}
    return inputs, _targets(model, inputs, generator)


def language_batch(
    model: nn.Module, n: int, generator: torch.Generator, more: dict[str, Tensor] | None = None
) -> tuple[dict[str, Tensor], Tensor]:
    """Return token ids that end as a sentence does, and a class for all that the model predicts."""
    ids = torch.randint(4, VOCABULARY - 2, (n, TOKENS), generator=generator)
    inputs = {"input_ids": torch.cat([ids[:, :-1], torch.full((n, 1), END)], 1)} | (more or {})
    return inputs, _targets(model, inputs, generator)


def _targets(model: nn.Module, inputs: dict[str, Tensor], generator: torch.Generator) -> Tensor:
    with torch.no_grad():
        logits = model(**inputs).logits
    return torch.randint(0, logits.shape[-1], logits.shape[:-1], generator=generator)


def per_token(outputs: Any, targets: Tensor) -> Tensor:
    """Cross-entropy, summed over each sample's tokens."""
    logits = outputs.logits.flatten(0, -2)
    values = functional.cross_entropy(logits, targets.flatten(), reduction="none")
    return values.reshape(len(targets), -1).sum(1)


def layers_of(model: nn.Module) -> dict[str, tuple[str, bool]]:
    """Return the modules whose call is a layer: linear ones and convolutions, by their weights' names."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {}
    for path, module in model.named_modules():
        weight = getattr(module, "weight", None)
        plain = type(module).forward in {nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward}
        if id(weight) in names and (plain or type(module).__name__ == "Conv1D"):
            found[path] = names[id(weight)].removesuffix(".weight"), getattr(module, "bias", None) is not None
    return found


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Build tensors of that type by default, and then as before."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
