"""A compiled model under a curator compiles what plain training on the same rows does, and nothing more."""

import lai_torch
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import lai_core as lai
from tests.lai_torch.support import LOSS, batch

KEPT = {"one shape": (6, 6, 6), "four shapes": (6, 3, 8, 1, 3, 6)}


class Block(nn.Module):
    """What differs in training and eval mode. The compiler skips torch's own containers."""

    def __init__(self):
        super().__init__()
        self.norm, self.layer, self.dropout = nn.LayerNorm(4), nn.Linear(4, 4), nn.Dropout(0.1)

    def forward(self, inputs):
        return inputs + self.dropout(torch.relu(self.layer(self.norm(inputs))))


class Network(nn.Module):
    """Two blocks, each compiled or all in one; of no network anything is compiled yet."""

    def __init__(self, blocks):
        super().__init__()
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.double()
        for each in self.blocks if blocks else [self]:
            each.compile(backend="eager")

    def forward(self, inputs):
        hidden = self.embedding(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def compiled():
    return counters["stats"]["unique_graphs"], dict(counters["graph_break"])


def plain(blocks, rows):
    """Return the graphs and the breaks of training on so many rows at each step."""
    model = Network(blocks)
    for count in rows:
        inputs, targets = batch(count, 4)
        LOSS(model(inputs), targets).mean().backward()
    return compiled()


@pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor")  # the compiler's own
@pytest.mark.parametrize("estimator", ["lai", "ghost", "exact"])
@pytest.mark.parametrize("blocks", [False, True], ids=["whole", "blocks"])
@pytest.mark.parametrize("rows", KEPT.values(), ids=KEPT)
def test_a_curator_adds_no_break_and_no_graph_that_its_rows_do_not_need(rows, blocks, estimator):
    model, kept = Network(blocks), iter(rows)
    curator = lai_torch.Curator(
        model,
        LOSS,
        torch.optim.SGD(model.parameters(), lr=0.1),
        batch(5, 4),
        estimator=estimator,
        policy=lambda scores: lai.keep_top(scores, next(kept) / 8),
    )
    for count in rows:
        assert curator.step(*batch(8, 4)).kept == count
    found = compiled()
    assert found == plain(blocks, rows)
    assert 0 < found[0] <= len(set(rows))
    assert not found[1]
