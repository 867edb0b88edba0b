"""The network in PyTorch, curated by `lai_torch.Curator`."""

import warnings

import lai_torch
import numpy as np
import torch
from torch import Tensor, nn

from experiments.noisy_labels.data import Samples
from experiments.noisy_labels.recipe import POLICIES, Method, Recipe
from experiments.noisy_labels.training import Parameters


class TorchLearner:
    """A ReLU network that Adam trains, on whole batches or on what a curator keeps of them."""

    def __init__(
        self, method: Method, training: Samples, validation: Samples, parameters: Parameters, recipe: Recipe
    ) -> None:
        self.inputs, self.targets = _tensors(training)
        self.model = network(parameters)
        self.loss = nn.CrossEntropyLoss(reduction="none")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=recipe.learning_rate)
        self.curator = None
        if method.estimator is not None:
            self.curator = lai_torch.Curator(
                self.model,
                self.loss,
                self.optimizer,
                _tensors(validation),
                estimator=method.estimator,
                policy=POLICIES[method.keeps],
            )

    def step(self, rows: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """Train on the rows."""
        index = torch.from_numpy(rows)
        inputs, targets = self.inputs[index], self.targets[index]
        if self.curator is None:
            self.optimizer.zero_grad()
            self.loss(self.model(inputs), targets).mean().backward()
            self.optimizer.step()
            return None, np.ones(len(rows), bool)
        with warnings.catch_warnings():  # that validation costs more than the steps is the study's own choice
            warnings.filterwarnings("ignore", message="refresh: ")
            report = self.curator.step(inputs, targets)
        return report.scores.numpy(), (report.weights > 0).numpy()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Return the class with the largest output."""
        with torch.no_grad():
            return self.model(torch.from_numpy(inputs)).argmax(dim=1).numpy()

    def losses(self) -> np.ndarray:
        """Return the losses of the training samples."""
        with torch.no_grad():
            return self.loss(self.model(self.inputs), self.targets).numpy()


def network(parameters: Parameters) -> nn.Sequential:
    """Build the ReLU network that has these weights and biases."""
    modules: list[nn.Module] = []
    for weight, bias in parameters:
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        modules += [layer, nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def _tensors(samples: Samples) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(samples.inputs), torch.from_numpy(samples.labels)


def make_learner(
    method: Method, training: Samples, validation: Samples, parameters: Parameters, recipe: Recipe
) -> TorchLearner:
    """Make a learner, and keep torch to one thread.

    The network is far too small to share: threads that wait for each other cost more than they give,
    and the more so the busier the machine.
    """
    torch.set_num_threads(1)
    return TorchLearner(method, training, validation, parameters, recipe)
