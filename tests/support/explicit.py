"""The oracle: every per-sample gradient built entry by entry, in plain numpy loops."""

import numpy as np

from tests.support.traces import Layer


def _with_positions(array: np.ndarray) -> np.ndarray:
    return array if array.ndim == 3 else array[:, None, :]


def weight_gradient(layer: Layer) -> np.ndarray:
    """Return d loss / d W of every sample, `(n, d_out, d_in)`, zero outside the groups."""
    activations, gradients = _with_positions(layer.activations), _with_positions(layer.output_gradients)
    n, positions, d_in = activations.shape
    d_out = gradients.shape[-1]
    built = np.zeros((n, d_out, d_in))
    for sample in range(n):
        for t in range(positions):
            built[sample] += np.outer(gradients[sample, t], activations[sample, t])
    block = np.kron(np.eye(layer.groups), np.ones((d_out // layer.groups, d_in // layer.groups)))
    return built * block


def bias_gradient(layer: Layer) -> np.ndarray:
    """Return d loss / d b of every sample, `(n, d_out)`."""
    return _with_positions(layer.output_gradients).sum(axis=1)


def parameter_gradients(layers: list[Layer]) -> np.ndarray:
    """Return every sample's gradient over all parameters, `(n, parameters)`; shared ones summed over uses."""
    found: dict[object, np.ndarray] = {}
    for index, layer in enumerate(layers):
        matrix = ("own", index) if layer.weight is None else ("shared", layer.weight)
        found[matrix, "w"] = found.get((matrix, "w"), 0) + weight_gradient(layer)
        if layer.bias:
            found[matrix, "b"] = found.get((matrix, "b"), 0) + bias_gradient(layer)
    return _flat(list(found.values()))


def last_layer_gradients(layers: list[Layer]) -> np.ndarray:
    last = layers[-1]
    return _flat([weight_gradient(last), *([bias_gradient(last)] if last.bias else [])])


def virtual_readout_gradients(layers: list[Layer], positions: str) -> list[np.ndarray]:
    """Return, per layer, every sample's gradient over a virtual linear readout from the layer's input.

    The readout has the outputs of the last layer, starts at zero and has a bias where the layer has one.
    """
    outputs = _with_positions(layers[-1].output_gradients)
    readouts = []
    for layer in layers:
        inputs = _with_positions(layer.activations)
        copies = 1
        if positions == "mean":
            seen = Layer(inputs.mean(axis=1), outputs.mean(axis=1))
        elif positions == "flatten":  # one readout from all positions to all positions
            seen = Layer(inputs.reshape(len(inputs), -1), outputs.reshape(len(outputs), -1))
            copies = inputs.shape[1]  # and a bias for each position of the input
        else:
            seen = Layer(inputs, outputs)
        parts = [weight_gradient(seen), *([bias_gradient(seen)] * copies if layer.bias else [])]
        readouts.append(_flat(parts))
    return readouts


def lai_kernel(
    validation: list[Layer], training: list[Layer], positions: str, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the inner products of the virtual readouts' gradients, layer by layer."""
    weights = np.ones(len(validation)) if weights is None else weights
    pairs = zip(
        weights,
        virtual_readout_gradients(validation, positions),
        virtual_readout_gradients(training, positions),
        strict=True,
    )
    return sum(weight * left @ right.T for weight, left, right in pairs)


def _flat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
