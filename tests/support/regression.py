"""A small network with a hand-written backward pass: what a step on one sample does to a loss.

`s^l = W^l a^(l-1) + b^l`, `a^l = tanh(s^l)` or `s^l`, and the loss is `|s^L - y|^2 / 2`.
"""

from dataclasses import dataclass

import numpy as np

from tests.support.traces import Layer


@dataclass
class Network:
    """Weights and biases, and virtual readouts from every layer's input to the outputs."""

    weights: list[np.ndarray]
    biases: list[np.ndarray]
    linear: bool = False
    readouts: list[np.ndarray] | None = None

    @classmethod
    def random(cls, widths: tuple[int, ...], seed: int, linear: bool = False) -> "Network":
        """Return a network of these widths with standard normal parameters over the root of the fan-in."""
        generator = np.random.default_rng(seed)
        shapes = list(zip(widths[1:], widths[:-1], strict=True))
        weights = [generator.normal(size=shape) / np.sqrt(shape[1]) for shape in shapes]
        return cls(weights, [generator.normal(size=shape[0]) * 0.1 for shape in shapes], linear)

    def forward(self, x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return every layer's input and pre-activation output."""
        inputs, outputs = [], []
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs.append(x)
            s = x @ weight.T + bias
            if index == len(self.weights) - 1 and self.readouts is not None:
                s = s + sum(a @ u.T for a, u in zip(inputs, self.readouts, strict=True))
            outputs.append(s)
            x = s if self.linear else np.tanh(s)
        return inputs, outputs

    def loss(self, x: np.ndarray, y: np.ndarray) -> float:
        """Return the summed loss."""
        return float(((self.forward(x)[1][-1] - y) ** 2).sum() / 2)

    def trace(self, x: np.ndarray, y: np.ndarray, bias: bool = True) -> list[Layer]:
        """Return activations and output gradients of every layer."""
        inputs, outputs = self.forward(x)
        gradient, layers = outputs[-1] - y, []
        for index in reversed(range(len(self.weights))):
            layers.append(Layer(inputs[index], gradient, bias))
            if index:
                derivative = 1.0 if self.linear else 1 - np.tanh(outputs[index - 1]) ** 2
                gradient = (gradient @ self.weights[index]) * derivative
        return layers[::-1]

    def stepped(self, x: np.ndarray, y: np.ndarray, rate: float, move: str) -> "Network":
        """Return the network after one SGD step on one sample, on the parameters that `move` names."""
        layers = self.trace(x[None], y[None])
        weights, biases = [w.copy() for w in self.weights], [b.copy() for b in self.biases]
        if move == "readouts":
            g = layers[-1].output_gradients[0]
            readouts = [-rate * np.outer(g, layer.activations[0]) for layer in layers]
            return Network(weights, biases, self.linear, readouts)
        for index in range(len(layers)) if move == "all" else [len(layers) - 1]:
            g, a = layers[index].output_gradients[0], layers[index].activations[0]
            weights[index] -= rate * np.outer(g, a)
            biases[index] -= rate * g
        return Network(weights, biases, self.linear)
