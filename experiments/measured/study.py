"""What the theory's constants are on trained networks, and how its advice and certificates fare there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn

import lai_core as lai
from experiments.figures.trained import digits, trace, train
from experiments.methods.base import LOSS, descend
from experiments.networks import next_loss, perceptron
from lai_core import assumptions, bounds
from workloads.torch_parts import classification, resnet18
from workloads.transformer_models import transformer

STEPS, BATCH, COMPARED = 150, 32, 48
WIDTHS = (64, 32, 32, 32, 10)
SIZES = (32, 4, 4, 16)
"""Of both transformers: width, depth, heads, length."""


@dataclass(frozen=True)
class Trained:
    """A network, its optimizer, its loss and two batches to compare."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Callable[..., Tensor]
    validation: tuple[Any, Tensor]
    training: tuple[Any, Tensor]
    batches: list[tuple[Any, Tensor]]


def networks(only: str = "") -> Iterator[tuple[str, Trained]]:
    """Train and yield each network whose name begins so, from the same seed."""
    for name, make in BUILDERS.items():
        if name.startswith(only):
            torch.manual_seed(0)
            yield name, make()


def _trained(model: nn.Module, loss: Any, data: tuple[Any, Tensor], held: tuple[Any, Tensor]) -> Trained:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = []
    for _ in range(STEPS):
        rows = torch.randint(len(data[1]), (BATCH,))
        batches.append((data[0][rows], data[1][rows]))
        descend(model, optimizer, batches[-1], torch.full((BATCH,), 1 / BATCH), loss)
    optimizer.zero_grad()
    model.eval()
    (x, y), (u, v) = ((inputs[:COMPARED], labels[:COMPARED]) for inputs, labels in (held, data))
    return Trained(model, optimizer, loss, (x, y), (u, v), batches[-10:])


def _parity(count: int) -> tuple[Tensor, Tensor]:
    """Sequences whose label is the most frequent of four words; a fifth of the labels are wrong."""
    ids = torch.randint(4, 32, (count, 12))
    labels = torch.randint(4, (count,))
    chosen = torch.rand(count, 12) < 0.4
    ids = torch.where(chosen, labels[:, None], ids)
    wrong = torch.rand(count) < 0.2
    return ids, torch.where(wrong, torch.randint(4, (count,)), labels)


def _sequences(count: int) -> tuple[Tensor, Tensor]:
    """Arithmetic sequences, of which a fifth are random words."""
    ids = (torch.randint(64, (count, 1)) + torch.randint(1, 4, (count, 1)) * torch.arange(12)) % 64
    noise = torch.rand(count, 1) < 0.2
    ids = torch.where(noise, torch.randint(64, (count, 12)), ids)
    return ids, ids


BUILDERS: dict[str, Callable[[], Trained]] = {
    "perceptron, 4 layers": lambda: _trained(perceptron(WIDTHS), LOSS, *digits()),
    "ResNet-18, width 8": lambda: _trained(
        resnet18(width=8, stem="3x3"),
        LOSS,
        *((x.reshape(-1, 1, 8, 8).repeat(1, 3, 1, 1), y) for x, y in digits()),
    ),
    "BERT, 4 layers of width 32": lambda: _trained(
        transformer(
            "BertForSequenceClassification", *SIZES, 32, dropout=False, intermediate_size=64, num_labels=4
        ),
        classification,
        _parity(1024),
        _parity(256),
    ),
    "GPT-2, 4 layers of width 32": lambda: _trained(
        transformer("GPT2LMHeadModel", *SIZES, 64, dropout=False, bos_token_id=0, eos_token_id=0),
        lambda outputs, ids: next_loss(outputs.logits[:, :-1], ids[:, 1:]),
        _sequences(1024),
        _sequences(256),
    ),
}


def vectors(trace: lai.Trace) -> lai.Trace:
    """Return every layer's input and output gradient as one vector a sample, as the appendix has them."""
    layers = []
    for layer in trace.layers:
        if isinstance(layer, lai.LayerTrace | lai.ConvolutionTrace):
            pair = layer.activations, layer.output_gradients
            layers.append(lai.LayerTrace(*(each.reshape(each.shape[0], -1).double() for each in pair)))
    return lai.Trace(layers)


def constants(network: Trained) -> dict[str, Any]:
    """Measure the paper's constants; each printed bound over the gap that it bounds, medians over samples."""
    traces = [_trace(network, batch, "all") for batch in (network.validation, network.training)]
    sides = [vectors(trace) for trace in traces]
    report, found = assumptions.measure_assumptions(*sides), assumptions.similarities(*sides)
    depth, last = int(found.beta.shape[0]), found.beta[-1]
    rho, C_a, alpha_bar = (float(x) for x in (report.rho, report.C_a, report.alpha_bar))
    norms = found.validation_gradients[-1], found.training_gradients[-1]
    ghost, score, lli = (of(*sides) for of in (lai.ghost_scores, lai.lai_scores, lai.lli_scores))
    gap, given = (score - ghost).abs(), {"rho": rho, "C_a": C_a, "depth": depth}
    slopes = [float((beta * last).sum() / (last * last).sum()) for beta in found.beta]
    relative = None
    if alpha_bar > 0:  # else the printed bound divides by nothing positive
        given_too = {"rho": rho, "alpha_bar": alpha_bar, "C_a": C_a, "depth": depth}
        relative = _median(bounds.relative_conservative_bound(last, *norms, **given_too))
    return {
        "layers": depth, "rho": rho, "C_a": C_a, "alpha_bar": alpha_bar,
        "smallest_cosine": float(report.smallest_cosine), "opposing_share": float(report.opposing_share),
        "gain_low": min(slopes), "gain_high": max(slopes),
        "relative_error": _median(gap / score.abs()),
        "lli_relative_error": _median((lli - ghost).abs() / ghost.abs()),
        "conservative_over_gap": _median(bounds.conservative_bound(last, *norms, **given) / gap),
        "geometric_over_gap": _median(bounds.geometric_bound_as_printed(last, **given) / gap),
        "relative_bound": relative,
    }  # fmt: skip


def advice(network: Trained) -> dict[str, float]:
    """Measure how LAI compares with Ghost and with Adam's own step, and what selecting by it costs."""
    pair = network.validation, network.training
    ghost = lai.ghost_scores(*(_trace(network, batch, "all") for batch in pair))
    sides = [_trace(network, batch, "output") for batch in pair]
    positions = "tokens" if "tokens" in lai.fitting_positions(sides[0]) else "mean"
    score = lai.lai_scores(*sides, positions=positions)
    found = {
        "understated": float((score.abs() < ghost.abs()).double().mean()),
        "signs_differ": float(((score > 0) != (ghost > 0)).double().mean()),
        "regret_batch": float(bounds.selection_regret(ghost, score) / ghost.clamp(min=0).sum()),
        "regret_kept": 1.0 - float(ghost[score > 0].mean() / ghost.sort(descending=True).values[0]),
        "sign_rule_kept": 1.0 - float(ghost[ghost > 0].mean() / ghost.max()),
    }
    truth = lai_torch.exact_scores(
        network.model, network.loss, network.validation, network.training, optimizer=network.optimizer
    )
    moment, inputs = None, None
    for batch in network.batches:
        trace = _trace(network, batch, "output")
        moment = lai.update_second_moment(moment, trace.layers[-1].output_gradients, decay=0.95)
        inputs = lai.update_input_second_moments(inputs, trace, decay=0.95)
    options = {"positions": positions}
    for name, values in {
        "adam_ghost": ghost,
        "adam_lai": score,
        "adam_printed": lai.preconditioned_lai_scores(*sides, moment, **options),
        "adam_outputs": lai.preconditioned_lai_scores(*sides, moment, exponent=0.5, **options),
        "adam_both": lai.preconditioned_lai_scores(
            *sides, moment, input_second_moments=inputs, exponent=0.5, **options
        ),
    }.items():
        found[name] = float(torch.corrcoef(torch.stack([truth.double(), values.double()]))[0, 1])
    return found


def _trace(network: Trained, batch: Any, gradients: str) -> lai.Trace:
    return lai_torch.trace(network.model, network.loss, *batch, gradients=gradients, partial=True)


def _median(values: Tensor) -> float:
    return float(values.median())


def certificates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield, for each network and each number of exact top layers, the shares that are certain and right."""
    training, pool = digits()
    for name, activation in (("ReLU", nn.ReLU), ("GELU", nn.GELU)):
        for steps in (0, 300):
            model = perceptron(WIDTHS, activation=activation)
            train(model, training, steps)
            batches = [(x[:count], y[:count]) for (x, y), count in ((pool, 32), (training, 64))]
            sides = [trace(model, batch) for batch in batches]
            measured = assumptions.similarities(*sides)
            parts = (measured.alpha + 1) * measured.beta  # the bias of each layer is a column of ones
            weights = [layer.weight.detach() for layer in model if isinstance(layer, nn.Linear)]
            gates = [lai_torch.trace_gates(model, LOSS, *batch).gates for batch in batches]
            exact = np.asarray(lai.ghost_scores(*sides))
            pair = measured.validation_gradients, measured.training_gradients
            for top in range(1, len(weights)):
                below = len(weights) - top
                factors = []
                for side in gates:
                    each = (bounds.layer_factors(weights[t + 1], side[t]) for t in range(below))
                    factors.append(np.stack([np.asarray(of) for of in each]))
                norms = [np.asarray(n[below]) for n in pair]
                bound = bounds.top_layers_bound(np.asarray(measured.alpha[:below] + 1), *factors, *norms)
                score = np.asarray(parts[below:].sum((0, 1)))
                missing = np.abs(exact - score)
                assert (missing <= bound * (1 + 1e-4) + 1e-3).all()
                orders = np.triu(np.abs(score[:, None] - score) > bound[:, None] + bound, 1)
                regret = bounds.certified_regret_bound(score, bound) / np.maximum(exact, 0).sum()
                found = {
                    "signs": (np.abs(score) > bound).mean(),
                    "orders": orders.sum() / (len(score) * (len(score) - 1) / 2),
                    "bound_over_missing": np.median(bound / missing),
                    "certified_regret": regret,
                }
                place = f"{name}, {steps} steps, top {top} of {len(weights)}"
                yield place, {key: float(value) for key, value in found.items()}
