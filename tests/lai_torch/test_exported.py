"""Exported programs, whose calls are operators, are scored as the modules that they were made of."""

import warnings

import lai_torch
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS


def bag(inputs):
    return torch.randint(7, (len(inputs), 5), generator=torch.Generator().manual_seed(len(inputs)))


class Tokens(nn.Module):
    """A table, a norm, a gate, a residual and a product written by hand."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 6), nn.LayerNorm(6)
        self.up, self.scale = nn.Linear(6, 6), nn.Parameter(torch.rand(6) + 0.5)
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, ids):
        hidden = self.table(ids)
        hidden = hidden + torch.sigmoid(self.up(self.norm(hidden))) * self.scale
        return hidden.mean(1) @ self.weight


MODELS = {
    "dense": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), lambda x: x),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv1d(1, 3, 2), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 3)
        ),
        lambda x: x[:, None],
    ),
    "tokens": (Tokens, bag),
}


def batch(samples, prepare):
    generator = torch.Generator().manual_seed(samples)
    inputs = torch.randn(samples, 4, generator=generator, dtype=torch.float64)
    return prepare(inputs), torch.arange(samples) % 3


def exported(model, inputs, form):
    dynamic = ({0: torch.export.Dim("samples", max=20)},)
    program = torch.export.export(model, (inputs,), dynamic_shapes=dynamic)
    return program.module() if form == "module" else torch.export.unflatten(program)


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # torch's own
@pytest.mark.parametrize("form", ["module", "unflattened"])
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_program_has_the_scores_of_its_module(name, form):
    make, prepare = MODELS[name]
    torch.manual_seed(0)
    model = make().double()
    validation, training = batch(4, prepare), batch(6, prepare)
    program = exported(model, training[0], form)
    for estimator in ("lai", "lli", "ghost", "exact"):
        scores = []
        for one in (model, program):
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)  # LAI leaves nothing out of either
                curator = lai_torch.Curator(one, LOSS, None, validation, estimator=estimator)
                scores.append(curator.score(*training)[1].scores)
        torch.testing.assert_close(scores[1], scores[0])


def test_an_exported_program_whose_last_product_is_none_of_a_layer_is_refused():
    class Prototypes(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.places = nn.Linear(4, 6), nn.Parameter(torch.randn(3, 6))

        def forward(self, inputs):
            return -torch.cdist(self.body(inputs), self.places)

    program = exported(Prototypes(), torch.randn(6, 4), "module")
    with pytest.raises(ValueError, match="the loss depends on 'places'"):
        lai_torch.trace(program, LOSS, torch.randn(6, 4), torch.arange(6) % 3)
