"""Batches that are lists, with a tensor or a mapping for each sample, are scored as rows are."""

import lai_torch
import pytest
import torch
from torch import nn

from tests.lai_torch.support import LOSS

WIDTH = 4


class Net(nn.Module):
    """Takes rows, or a list of samples that it pads or stacks itself."""

    def __init__(self, *, centred=False):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.centred = nn.Linear(WIDTH, 6), nn.Linear(6, 3), centred

    def forward(self, samples):
        rows = samples if isinstance(samples, torch.Tensor) else torch.stack([mean(one) for one in samples])
        hidden = torch.tanh(self.body(rows))
        return self.head(hidden - hidden.mean(0) if self.centred else hidden)


def mean(sample):
    values = sample["values"] if isinstance(sample, dict) else sample
    return values.mean(0) if values.ndim == 2 else values


def loss(outputs, targets):
    return LOSS(outputs, targets if isinstance(targets, torch.Tensor) else torch.stack(targets_of(targets)))


def targets_of(targets):
    return [one["label"] if isinstance(one, dict) else one for one in targets]


def ragged(n):
    return [torch.randn(2 + place % 3, WIDTH, dtype=torch.float64) for place in range(n)]


FORMS = {
    "tensors of other lengths": lambda rows, t: (rows, t),
    "vectors": lambda rows, t: ([mean(row) for row in rows], t),
    "mappings": lambda rows, t: ([{"values": row, "name": str(place)} for place, row in enumerate(rows)], t),
    "targets": lambda rows, t: (torch.stack([mean(row) for row in rows]), [{"label": one} for one in t]),
    "numbers": lambda rows, t: (rows, list(t)),
    "both": lambda rows, t: ([{"values": row} for row in rows], [{"label": one} for one in t]),
}


def batches(form):
    torch.manual_seed(1)
    for n in (3, 5, 7):
        rows, targets = ragged(n), torch.randint(3, (n,))
        yield FORMS[form](rows, targets), (torch.stack([mean(row) for row in rows]), targets)


@pytest.mark.parametrize("estimator", ["ghost", "exact", "lai"])
@pytest.mark.parametrize("form", FORMS)
def test_a_list_is_scored_and_trained_on_as_rows_are(form, estimator):
    (validation, plain), *others = batches(form)
    found = []
    for kind, first in enumerate((validation, plain)):
        model = Net().double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        curator = lai_torch.Curator(model, loss, optimizer, first, estimator=estimator)
        reports = [curator.step(*batch[kind]) for batch in others]
        found.append(([report.scores for report in reports], list(model.parameters())))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("estimator", ["ghost", "exact", "lai"])
def test_samples_of_a_list_that_see_each_other_are_refused(estimator):
    (validation, _), (batch, _), _ = batches("mappings")
    curator = lai_torch.Curator(Net(centred=True).double(), loss, None, validation, estimator=estimator)
    with pytest.raises(ValueError, match=r"coupled|its own"):
        curator.score(*batch)


def test_tensors_side_by_side_are_no_samples():
    one, targets = torch.randn(5, WIDTH), torch.arange(5) % 3
    with pytest.raises(TypeError, match=r"inputs: .*, got list; pass a tuple, for model\(\*inputs\)"):
        lai_torch.trace(Net(), LOSS, [one, one], targets)

    def both(outputs, targets):
        return LOSS(outputs, targets[0]) + LOSS(outputs, targets[1])

    batch = one, [targets, targets]
    assert lai_torch.exact_scores(Net(), both, batch, batch).shape == (5,)
