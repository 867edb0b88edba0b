"""One variant of every module of timm, the smallest, with few blocks and on small images."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks.compatibility.architectures import layers_of
from benchmarks.compatibility.judge import UnfitError, build_first
from benchmarks.compatibility.torch_case import Case
from tests.support.workloads.torch_parts import classification
from tests.support.workloads.transformer_models import fit_torchvision

CLASSES = 4
MOST_PARAMETERS = 9_000_000
SIDES = (64, 96, 128, 160, 224, 256)
"""Of images, the smallest first: what halves them most often needs more."""
SHORTER: tuple[dict[str, Any], ...] = (
    {"depth": 2},
    {"depth": 2, "embed_dim": 64, "num_heads": 4},
    {"block_config": (1, 1, 1, 1)},
    {"depths": (1, 1, 1, 1), "dim": 32},
    *(
        {name: (1,) * stages, **narrower}
        for name in ("depths", "layers")
        for stages in (3, 4)
        for narrower in (
            {},
            {"embed_dim": 32},
            {"dims": (16, 32, 64, 64)[:stages]},
            {"embed_dims": (16, 32, 64, 64)[:stages]},
            {"embed_dims": (32, 64, 64, 64)[:stages], "num_heads": (1, 2, 4, 4)[:stages]},
        )
    ),
    {},
)
"""What most of its models take in place of their own numbers of blocks and widths."""
VARIANTS, MOST_TRIED = 3, 12
"""How many variants are made shorter, the smallest, and how many of what comes out are run until one runs."""
BOUND = 1e-5
"""Some architectures compute their norms and positions in float32, whatever their own type."""


def cases() -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """Yield the suite, the name and a function that builds, of one variant of each module."""
    for module in _timm().list_modules():
        yield "timm", module, partial(_build_smallest, module)


def _timm() -> Any:
    fit_torchvision()
    return importlib.import_module("timm")


def _build_smallest(module: str) -> Case:
    smallest = _smallest(module)
    if smallest and smallest[0][0] > MOST_PARAMETERS:
        size, variant, _ = smallest[0]
        raise UnfitError(f"not built: '{variant}', the smallest, has {size:,} parameters")
    tries = itertools.product((each for each in smallest if each[0] <= MOST_PARAMETERS), SIDES)
    return build_first(partial(_case, variant, options, side) for (_, variant, options), side in tries)


def _smallest(module: str) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the parameters, name and options of variants, those with the fewest parameters first.

    Where timm has variants made for tests, those are the small ones; elsewhere all are counted.
    """
    names = _timm().list_models(module=module)
    names = [name for name in names if name.startswith("test_")] or names
    plain = sorted(each for name in names if (each := (_size(name, {}), name))[0])
    found = [
        (size, name, shorter)
        for (_, name), shorter in itertools.product(plain[:VARIANTS], SHORTER)
        if (size := _size(name, shorter))
    ]
    return sorted(found, key=lambda each: each[:2])[:MOST_TRIED]


def _size(variant: str, options: dict[str, Any]) -> int:
    """Return how many parameters a variant has with these options; 0 where it takes none such."""
    try:
        with torch.device("meta"):
            model = _made(variant, options)
    except Exception:  # what it says of options that are not its own
        return 0
    return sum(parameter.numel() for parameter in model.parameters())


def _case(variant: str, options: dict[str, Any], side: int) -> Case:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _built(variant, options, side).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)  # branches that start at zero are cut off
    generator = torch.Generator().manual_seed(1)
    training, validation = (_batch(n, side, generator) for n in (3, 2))
    with torch.no_grad():
        logits = model(training[0])
    if not isinstance(logits, Tensor) or logits.shape != (3, CLASSES):
        msg = "expected class scores"
        raise TypeError(msg)
    sides = {"training": training, "validation": validation}
    return Case(model=model, loss=classification, **sides, layers=layers_of(model), only=True, bound=BOUND)


def _batch(n: int, side: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    images = torch.randn(n, 3, side, side, generator=generator)
    return images, torch.randint(0, CLASSES, (n,), generator=generator)


def _built(variant: str, options: dict[str, Any], side: int) -> nn.Module:
    try:
        return _made(variant, options, img_size=side)
    except TypeError:  # it takes images of any size
        return _made(variant, options)


def _made(variant: str, options: dict[str, Any], **more: Any) -> nn.Module:
    """Make a variant with options in place of its own, which its function may have no argument for."""
    module = importlib.import_module(_timm().model_entrypoint(variant).__module__)
    build = module.build_model_with_cfg
    with mock.patch.object(module, "build_model_with_cfg", lambda *a, **k: build(*a, **k | options)):
        return _timm().create_model(variant, num_classes=CLASSES, **more)
