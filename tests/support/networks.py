"""Random networks in numpy, many at once, with their per-sample gradients written out by hand.

A *family* draws networks, samples and targets that satisfy some of the paper's assumptions **by
construction**: filtering random networks starves (about 4% satisfy A3 and the non-expansive
variant). Every array has a leading axis of networks, so that a family is drawn and run at once.

==================  =====================================================  ==========================
family              construction                                           satisfies
==================  =====================================================  ==========================
``unconstrained``   any linear or ReLU network, any loss                   nothing but A2; A1 as measured
``proportional``    ReLU, contracting; one sample and one residual, scaled A1 A2 A3 NE, alpha >= 0
``orthogonal``      linear, layers gamma_t times orthogonal                A1 A2 A3 NE, alpha >= 0
``extremal``        linear, every layer diag(rho, 1)                       A1 A2 A3 NE, alpha = 1
``one_output``      linear, contracting, one output, same-sign residuals   A1 A2 A3 NE
``positive``        ReLU, contracting, one output, positive upper weights  A1 A2 A3 NE, alpha >= 0
==================  =====================================================  ==========================

A1 to A3 are Appendix B's assumptions, NE its non-expansive variant of A3.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

import lai_core as lai


@dataclass(frozen=True)
class Networks:
    """Chains ``s = W a``, ``a = phi(s)`` without biases; weights ``(nets, d_l, d_{l-1})``, bottom first."""

    weights: tuple[np.ndarray, ...]
    relu: bool = False
    loss: str = "squared"

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        return self._forward(inputs)[1][-1]

    def gates(self, inputs: np.ndarray) -> list[np.ndarray]:
        """Return phi' at every hidden pre-activation, ``(nets, n, d_l)`` for l < L."""
        return [self._slope(s) for s in self._forward(inputs)[1][:-1]]

    def losses(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        s = self.outputs(inputs)
        if self.loss == "squared":
            return ((s - targets) ** 2).sum(-1) / 2
        s = s - s.max(-1, keepdims=True)
        return np.log(np.exp(s).sum(-1)) - np.take_along_axis(s, targets[..., None], -1)[..., 0]

    def run(self, inputs: np.ndarray, targets: np.ndarray) -> Batch:
        """Run ``(nets, n, d_0)`` inputs both ways; targets ``(nets, n, d_L)`` or labels ``(nets, n)``."""
        activations, preactivations = self._forward(inputs)
        s = preactivations[-1]
        if self.loss == "squared":
            feedback = s - targets
        else:
            feedback = np.exp(s - s.max(-1, keepdims=True))
            feedback = feedback / feedback.sum(-1, keepdims=True)
            feedback = feedback - np.eye(s.shape[-1])[targets]
        gradients = [feedback]
        for weight, below in zip(self.weights[:0:-1], preactivations[-2::-1], strict=True):
            gradients.insert(0, (gradients[0] @ weight) * self._slope(below))
        return Batch(tuple(activations), tuple(gradients))

    def _forward(self, inputs: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        activations, preactivations = [inputs], []
        for weight in self.weights:
            preactivations.append(activations[-1] @ np.swapaxes(weight, -1, -2))
            activations.append(np.maximum(preactivations[-1], 0) if self.relu else preactivations[-1])
        return activations[:-1], preactivations

    def _slope(self, s: np.ndarray) -> np.ndarray:
        return (s > 0).astype(s.dtype) if self.relu else np.ones_like(s)


@dataclass(frozen=True)
class Batch:
    """Inputs of every layer, ``(nets, n, d_{l-1})``, and the gradients of their outputs, bottom first."""

    activations: tuple[np.ndarray, ...]
    gradients: tuple[np.ndarray, ...]

    def trace(self, index: int = 0, array: Callable = np.asarray) -> lai.Trace:
        pairs = zip(self.activations, self.gradients, strict=True)
        return lai.Trace([lai.LayerTrace(array(a[index]), array(g[index])) for a, g in pairs])


@dataclass(frozen=True)
class Case:
    """Networks with a validation and a training batch; rho ``(nets,)`` where A1 holds by construction."""

    networks: Networks
    validation: Batch
    training: Batch
    rho: np.ndarray | None = None

    @property
    def alpha(self) -> np.ndarray:
        """Embedding similarities ``(nets, L, n_val, n_train)``."""
        return _products(self.validation.activations, self.training.activations)

    @property
    def beta(self) -> np.ndarray:
        """Gradient similarities ``(nets, L, n_val, n_train)``."""
        return _products(self.validation.gradients, self.training.gradients)

    @property
    def validation_norms(self) -> np.ndarray:
        """Gradient norms ``(nets, L, n_val)``."""
        return _norms(self.validation.gradients)

    @property
    def training_norms(self) -> np.ndarray:
        """Gradient norms ``(nets, L, n_train)``."""
        return _norms(self.training.gradients)

    @property
    def ghost(self) -> np.ndarray:
        """Ghost's scores ``(nets, n_train)``, from weight gradients that are built."""
        return self._built(self.validation.gradients, self.training.gradients, range(self.depth))

    @property
    def lai(self) -> np.ndarray:
        """LAI's scores ``(nets, n_train)``, from gradients of virtual readouts that are built."""
        last = [(batch.gradients[-1],) * self.depth for batch in (self.validation, self.training)]
        return self._built(*last, range(self.depth))

    @property
    def lli(self) -> np.ndarray:
        """LLI's scores ``(nets, n_train)``, from the last weight's gradients, which are built."""
        return self._built(self.validation.gradients, self.training.gradients, [self.depth - 1])

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.validation.gradients)

    def _built(self, of_z: Sequence[np.ndarray], of_j: Sequence[np.ndarray], layers: Iterable) -> np.ndarray:
        total = np.zeros(of_j[0].shape[:2])
        for layer in layers:
            summed = np.swapaxes(of_z[layer], 1, 2) @ self.validation.activations[layer]
            each = of_j[layer][..., :, None] * self.training.activations[layer][..., None, :]
            total += (each * summed[:, None]).sum((-1, -2))
        return total

    @property
    def activation_bound(self) -> np.ndarray:
        """C_a ``(nets,)``: the largest norm of a layer's input."""
        both = [_norms(batch.activations).max((1, 2)) for batch in (self.validation, self.training)]
        return np.maximum(*both)


def _products(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([np.einsum("bzi,bji->bzj", x, y) for x, y in zip(left, right, strict=True)], axis=1)


def _norms(vectors: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([np.sqrt((v * v).sum(-1)) for v in vectors], axis=1)


@dataclass(frozen=True)
class Shape:
    """What a family is asked for."""

    nets: int = 1
    depth: int = 3
    width: int = 4
    n_val: int = 2
    n_train: int = 3


def unconstrained(rng: np.random.Generator, shape: Shape) -> Case:
    """Draw any network: linear or ReLU, squared loss or softmax, of any gain."""
    widths = rng.integers(1, shape.width + 1, shape.depth + 1)
    widths[-1] = max(widths[-1], 2)
    gain = rng.uniform(0.3, 2.0)
    weights = tuple(
        gain * rng.standard_normal((shape.nets, d, below)) / np.sqrt(below)
        for below, d in itertools.pairwise(widths)
    )
    networks = Networks(weights, bool(rng.integers(2)), str(rng.choice(["squared", "softmax"])))
    batches = []
    for n in (shape.n_val, shape.n_train):
        inputs = rng.standard_normal((shape.nets, n, widths[0]))
        labels = rng.integers(0, widths[-1], (shape.nets, n))
        values = rng.standard_normal((shape.nets, n, widths[-1]))
        batches.append(networks.run(inputs, values if networks.loss == "squared" else labels))
    return Case(networks, *batches)


def proportional(rng: np.random.Generator, shape: Shape) -> Case:
    """Draw contracting ReLU networks; all samples are positive multiples of one, their residuals too."""
    rho = rng.uniform(0.05, 0.999, shape.nets)
    networks = Networks(_contracting(rng, shape, rho, shape.width), relu=True)
    base = rng.uniform(0.0, 1.0, (shape.nets, 1, shape.width))
    residual = rng.standard_normal((shape.nets, 1, shape.width))
    return _with_residuals(
        networks,
        [base * rng.uniform(0.2, 3.0, (shape.nets, n, 1)) for n in (shape.n_val, shape.n_train)],
        [residual * rng.uniform(0.2, 3.0, (shape.nets, n, 1)) for n in (shape.n_val, shape.n_train)],
        rho,
    )


def orthogonal(rng: np.random.Generator, shape: Shape) -> Case:
    """Draw linear networks of scaled orthogonal layers; inputs and residuals in the positive cone."""
    rho = rng.uniform(0.05, 0.999, shape.nets)
    weights = []
    for layer in range(shape.depth):
        gain = rng.uniform(0.3, 2.0, shape.nets) if layer == 0 else rho * rng.uniform(0.5, 1.0, shape.nets)
        turns = np.linalg.qr(rng.standard_normal((shape.nets, shape.width, shape.width)))[0]
        weights.append(gain[:, None, None] * turns)
    samples = [(shape.nets, n, shape.width) for n in (shape.n_val, shape.n_train)]
    return _with_residuals(
        Networks(tuple(weights)),
        [rng.uniform(0.0, 1.0, size) for size in samples],
        [rng.uniform(0.0, 1.0, size) for size in samples],
        rho,
    )


def extremal(rng: np.random.Generator, shape: Shape) -> Case:
    """Give every layer diag(rho, 1), every input the second axis and every residual the first."""
    rho = rng.uniform(0.01, 0.999, shape.nets)
    layer = np.zeros((shape.nets, 2, 2))
    layer[:, 0, 0], layer[:, 1, 1] = rho, 1.0
    samples = (shape.n_val, shape.n_train)
    axes = [[np.broadcast_to(np.eye(2)[axis], (shape.nets, n, 2)) for n in samples] for axis in (1, 0)]
    return _with_residuals(Networks((layer,) * shape.depth), *axes, rho)


def one_output(rng: np.random.Generator, shape: Shape) -> Case:
    """Draw contracting linear networks with one output; residuals of one sign, activations of any."""
    rho = rng.uniform(0.05, 0.999, shape.nets)
    return _with_residuals(
        Networks(_contracting(rng, shape, rho, 1)),
        [rng.standard_normal((shape.nets, n, shape.width)) for n in (shape.n_val, shape.n_train)],
        [rng.uniform(0.1, 2.0, (shape.nets, n, 1)) for n in (shape.n_val, shape.n_train)],
        rho,
    )


def positive(rng: np.random.Generator, shape: Shape) -> Case:
    """Draw contracting ReLU networks with one output and no negative weight above the first layer."""
    rho = rng.uniform(0.05, 0.999, shape.nets)
    first, *rest = _contracting(rng, shape, rho, 1)
    rest = [_contracted(rng, np.abs(weight), rho) for weight in rest]
    networks = Networks((first, *rest), relu=shape.depth > 1)
    return _with_residuals(
        networks,
        [rng.uniform(0.0, 1.0, (shape.nets, n, shape.width)) for n in (shape.n_val, shape.n_train)],
        [rng.uniform(0.1, 2.0, (shape.nets, n, 1)) for n in (shape.n_val, shape.n_train)],
        rho,
    )


ASSUMING: dict[str, Callable[[np.random.Generator, Shape], Case]] = {
    family.__name__: family for family in (proportional, orthogonal, extremal, one_output, positive)
}
"""Families on which A1, A2, A3 and the non-expansive variant hold by construction."""

ALIGNED = ("proportional", "orthogonal", "extremal", "positive")
"""Those whose embedding similarities are non-negative, too."""

FAMILIES = {"unconstrained": unconstrained, **ASSUMING}


def _contracting(rng: np.random.Generator, shape: Shape, rho: np.ndarray, outputs: int) -> tuple:
    """Draw weights of which every one but the first has a spectral norm of at most rho."""
    widths = [shape.width] * shape.depth + [outputs]
    weights = [rng.standard_normal((shape.nets, d, below)) for below, d in itertools.pairwise(widths)]
    return (weights[0], *(_contracted(rng, weight, rho) for weight in weights[1:]))


def _contracted(rng: np.random.Generator, weight: np.ndarray, rho: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(weight, 2, axis=(1, 2))
    norm = np.where(norm == 0, 1.0, norm)  # a layer of zeros contracts as it is
    return weight * (rho * rng.uniform(0.6, 1.0, rho.shape) / norm)[:, None, None]


def _with_residuals(
    networks: Networks, inputs: Sequence[np.ndarray], residuals: Sequence[np.ndarray], rho: np.ndarray
) -> Case:
    """Choose targets such that the output gradients of the squared loss are the residuals."""
    batches = [networks.run(x, networks.outputs(x) - r) for x, r in zip(inputs, residuals, strict=True)]
    return Case(networks, *batches, rho)
