"""What plain reverse mode says of a random torch program, one sample at a time, and a judge of every method.

Exact scores and Ghost's kernel are held to one reverse pass a sample. LAI is held to what a program says
of itself: its last layer and that layer's gradient, every product named in the trace or in the warning, and
inputs that are those of each sample alone.
"""

import copy
import inspect
import random
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn

import lai_core as lai
from tests.support.torch_parts import UNSOUND
from tests.support.torch_programs import PLAIN, UNSOUND_LOSSES, Program, program

TOLERANCE = 1e-7
REFUSALS = ("model: ", "layer ", "last: ", "loss: ")
MadeOf = tuple[str, ...] | None


def gradients(drawn: Program, batch: tuple[Tensor, Tensor], *, alone: bool, of: Any = None) -> Tensor:
    """Return each sample's gradient `(n, size)`, of its loss alone or of its loss in the batch."""
    parameters, found = drawn.parameters() if of is None else of, []
    for j in range(len(batch[1])):
        rows = list(range(len(batch[1])))
        if alone:  # twice, where of a batch of one torch 2.13 can get BatchNorm in eval mode wrong
            rows = [j, j] if "batchnorm" in drawn.made_of else [j]
        losses = drawn.loss(drawn.model(batch[0][rows]), batch[1][rows])
        pieces = torch.autograd.grad(losses[0 if alone else j], parameters, allow_unused=True)
        pairs = zip(pieces, parameters, strict=True)
        full = [torch.zeros_like(p) if piece is None else piece.to_dense() for piece, p in pairs]
        found.append(torch.cat([torch.view_as_real(g.to(torch.complex128)).flatten() for g in full]))
    return torch.stack(found)


def truth(seed: int, made_of: MadeOf, kernel: Callable[..., Tensor]) -> Tensor | None:
    """Return a kernel of two sides' gradients by one reverse pass a sample, on programs of their own.

    None where a sample's gradient in the batch is not its own alone.
    """
    found = []
    for alone in (True, False):
        sides = (
            gradients(drawn, getattr(drawn, side), alone=alone)
            for side in inspect.signature(kernel).parameters
            for drawn in [program(seed, made_of=made_of)]
        )
        found.append(kernel(*sides))
    return found[0] if error(found[1], found[0]) <= TOLERANCE else None


def error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300))


def readouts(drawn: Program) -> tuple[lai.Trace, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = lai_torch.trace(drawn.model, drawn.loss, *drawn.training)
    return trace, " ".join(str(warning.message) for warning in caught)


METHODS: dict[str, Callable[[Program], Any]] = {
    "exact": lambda of: lai_torch.exact_scores(of.model, of.loss, of.validation, of.training),
    "ghost": lambda of: lai_torch.trace(of.model, of.loss, *of.training, gradients="all"),
    "lai": readouts,
}
KERNELS = {
    "exact": lambda validation, training: training @ validation.sum(0),
    "ghost": lambda training: training @ training.T,
}
REFUSED = {
    "exact": UNSOUND.keys() | UNSOUND_LOSSES.keys(),
    # what writes a parameter is refused
    "ghost": UNSOUND.keys() | UNSOUND_LOSSES.keys() | {"partly_set_gain", "clamped_gain"},
}
"""Parts and losses for which a refusal may be right even where every score is zero, say."""
FAULTS = {"wrong", "crash", "needlessly refused"}


def judge(method: str, seed: int, made_of: MadeOf = None) -> tuple[str, str]:
    """Judge a method on one program: `exact`, `refused`, `untrainable` or one of the faults, and a word."""
    try:
        expected = truth(seed, made_of, KERNELS[method]) if method in KERNELS else None
    except RuntimeError as raised:  # such as a gain written twice in a pass: torch has no gradient either
        return "untrainable", str(raised)
    drawn = program(seed, made_of=made_of)
    for _ in range(
        3 * any("scripted" in part for part in drawn.made_of)
    ):  # after two runs the calls of a script are one node
        drawn.model(drawn.training[0])
    before, answer = state(drawn), None
    try:
        answer = METHODS[method](drawn)
    except Exception as raised:  # whatever is no refusal is a crash
        known = method not in REFUSED or not REFUSED[method].isdisjoint(drawn.made_of) or expected is None
        refused = isinstance(raised, ValueError) and str(raised).startswith(REFUSALS)
        word = f"{type(raised).__name__}: {raised}".splitlines()[0]
        outcome = ("refused" if known else "needlessly refused") if refused else "crash", word
    if moved(before, state(drawn)):
        return "wrong", "state moved"
    if answer is None:
        return outcome
    if isinstance(answer, tuple):
        fault = fault_of(program(seed, made_of=made_of), *answer)
        return ("wrong" if fault else "exact"), fault
    if expected is None:
        return "wrong", "scored, and samples have no scores"
    found = answer if isinstance(answer, Tensor) else lai.ghost_kernel(answer, answer)
    off = error(found, expected)
    return ("exact" if off <= TOLERANCE else "wrong"), f"{off:.1e}"


def fault_of(drawn: Program, trace: lai.Trace, said: str) -> str:
    """Say what LAI and LLI read that is not the program's; nothing where all is."""
    names, last = {layer.name for layer in trace.layers}, trace.layers[-1].name
    met = drawn.model.products - _idle(drawn) - _without_gradient(drawn)
    if unsaid := [name for name in met if name not in names and f"'{name}" not in said]:
        return f"nothing said of {unsaid}"
    if drawn.made_of[-3] in PLAIN:
        if not last.startswith("head."):
            return f"last layer {last}"
        own = [*drawn.model.head.layer.parameters()] if last == "head.layer" else [drawn.model.matrix]
        if last == "head.w" and trace.layers[-1].bias:  # an offset that is added to a product is its bias
            own.append(drawn.model.head.v)
        rows = gradients(drawn, drawn.training, alone=True, of=own)
        if error(lai.lli_kernel(trace, trace), rows @ rows.T) > TOLERANCE:
            return "gradient of the last layer"
    return _not_of_each_alone(drawn, trace)


def _idle(drawn: Program) -> set[str]:
    """Return the linear layers that do not run on a batch: experts that no sample goes to."""
    linear = {name: module for name, module in drawn.model.named_modules() if type(module) is nn.Linear}
    idle = set(linear)
    for name, module in linear.items():
        module.register_forward_hook(lambda *_, name=name: idle.discard(name))
    drawn.model(drawn.training[0])
    for module in linear.values():
        module._forward_hooks.clear()
    return idle


def _without_gradient(drawn: Program) -> set[str]:
    """Return the modules and parameters that are frozen, or whose gradient is zero, as LAI's is then."""
    losses = drawn.loss(drawn.model(drawn.training[0]), drawn.training[1])
    named = {name: one for name, one in drawn.model.named_parameters() if one.requires_grad}
    found = torch.autograd.grad(losses.sum(), list(named.values()), allow_unused=True)
    reached = {name for name, one in zip(named, found, strict=True) if one is not None and one.any()}
    every = {name.removesuffix(".weight") for name, _ in drawn.model.named_parameters()}
    return every - {name.removesuffix(".weight") for name in reached}


def _not_of_each_alone(drawn: Program, trace: lai.Trace) -> str:
    """Compare the inputs of the layers with those of traces of one sample at a time."""
    inputs, targets = drawn.training
    for sample in range(len(targets)):
        rows = slice(sample, sample + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                alone = lai_torch.trace(drawn.model, drawn.loss, inputs[rows], targets[rows])
            except ValueError:  # one sample may not reach a layer, or not tell where it lies
                continue
        expected: dict[str, list[Tensor]] = defaultdict(list)
        for layer in alone.layers:
            expected[layer.name].append(layer.activations[0].flatten())
        for layer in trace.layers:
            found, own = layer.activations[sample].flatten(), expected[layer.name]
            if not own:
                return f"{layer.name} alone has no record"
            # of several uses the batch may have fewer: those that rows of all samples reach
            same = [
                at for at, one in enumerate(own) if found.shape == one.shape and torch.allclose(found, one)
            ]
            if not same:
                return f"input of {layer.name}"
            del own[same[0]]
    return ""


def state(drawn: Program) -> list[Any]:
    """Return copies of whatever a program holds that scoring could move."""
    tensors = [tensor for _, tensor in sorted(drawn.model.state_dict().items())] + drawn.own()
    flags: list[Any] = [torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()]
    for module in drawn.model.modules():
        flags += [module.training, len(module._forward_hooks), len(module._backward_hooks)]
    grads = [p.grad for p in drawn.parameters()]
    streams = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # noqa: NPY002
    return [copy.deepcopy([t.detach() for t in tensors]), flags, grads, streams]


def moved(before: list[Any], after: list[Any]) -> bool:
    """Whether two states differ by a bit."""
    same = all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True))
    return not same or before[1:] != after[1:]
