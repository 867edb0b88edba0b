"""What became of random programs: exact, refused, wrong or broken; ``python -m tests.lai_torch.judged 5000``.

Ghost is held to one reverse pass a sample. LAI is held to what a program says of itself: its last layer,
every product named in the trace or in the warning, the head's gradient, and inputs that are those of
each sample alone.
"""

import sys
import warnings
from collections import Counter, defaultdict

import lai_torch
import torch
from torch import Tensor

import lai_core as lai
from tests.lai_torch.random_programs import Drawn, draw, sample_gradients

TOLERANCE = 1e-7
REFUSALS = ("model: ", "layer ", "last: ", "loss: ")


def ghost(drawn: Drawn) -> str:
    """Judge Ghost's kernel of a program with itself."""
    try:
        trace = lai_torch.trace(drawn.model, drawn.loss, drawn.inputs, drawn.targets, gradients="all")
    except Exception as error:
        return _refused(error)
    if drawn.coupled:
        return "wrong: coupled samples"
    exact = sum((rows @ rows.T for rows in sample_gradients(drawn).values()), torch.zeros(()))
    error = _error(lai.ghost_kernel(trace, trace), exact)
    return "exact" if error < TOLERANCE else f"wrong: off by {error:.1g}"


def readouts(drawn: Drawn) -> str:
    """Judge what LAI and LLI read of a program."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trace = lai_torch.trace(drawn.model, drawn.loss, drawn.inputs, drawn.targets)
    except Exception as error:
        return _refused(error)
    if drawn.coupled:
        return "wrong: coupled samples"
    said = " ".join(str(warning.message) for warning in caught)
    names = {layer.name for layer in trace.layers}
    unsaid = [name for name in drawn.model.products if name not in names and repr(name) not in said]
    if unsaid:
        return f"wrong: nothing said of {unsaid}"
    if trace.layers[-1].name != "head.w":
        return f"wrong: last layer {trace.layers[-1].name}"
    if drawn.model.head.w.requires_grad:
        rows = sample_gradients(drawn)["head.w"]
        if _error(lai.lli_kernel(trace, trace), rows @ rows.T) > TOLERANCE:
            return "wrong: gradient of the last layer"
    return _of_each_alone(drawn, trace)


def _of_each_alone(drawn: Drawn, trace: lai.Trace) -> str:
    """Compare the inputs of the layers with those of traces of one sample at a time."""
    for sample in range(len(drawn.inputs)):
        rows = slice(sample, sample + 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            alone = lai_torch.trace(drawn.model, drawn.loss, drawn.inputs[rows], drawn.targets[rows])
        expected: dict[str, list[Tensor]] = defaultdict(list)
        for layer in alone.layers:
            expected[layer.name].append(layer.activations[0])
        for layer in trace.layers:
            if not expected[layer.name]:
                return f"wrong: {layer.name} alone has no record"
            found, one = layer.activations[sample], expected[layer.name].pop(0)
            if found.numel() != one.numel() or not torch.allclose(found.reshape(one.shape), one):
                return f"wrong: input of {layer.name}"
    return "exact"


def _refused(error: Exception) -> str:
    if isinstance(error, ValueError) and str(error).startswith(REFUSALS):
        return "refused"
    return f"crash: {type(error).__name__}: {error}"


def _error(found: Tensor, exact: Tensor) -> float:
    scale = float(exact.abs().max()) if exact.numel() else 0.0
    return float((found - exact).abs().max()) / max(scale, 1e-30)


def main(programs: int) -> int:
    """Judge `programs` programs, print the counts and the first of each fault; 1 if there is a fault."""
    faults = 0
    for name, judge in (("ghost", ghost), ("lai", readouts)):
        counts: Counter[str] = Counter()
        for seed in range(programs):
            verdict = judge(draw(seed))
            kind = verdict.partition(":")[0]
            counts[kind] += 1
            if kind in {"wrong", "crash"}:
                faults += 1
                print(f"{name} {seed}: {verdict[:200]}")
        print(name, dict(counts))
    return int(faults > 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
