"""Models with positions: sketches of the output gradients, and scores position by position."""

import functools
from dataclasses import replace

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch import support

OUTPUTS, PLACES = 6, 4


def network():
    """Every layer at the output's positions; dropout, whose random stream scoring must leave alone."""
    layers = nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, OUTPUTS)
    return nn.Sequential(*layers).double()


def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none").sum(1)


def data(n):
    return torch.randn(n, PLACES, 3, dtype=torch.float64), torch.randint(OUTPUTS, (n, PLACES))


curated = functools.partial(support.curated, loss=loss)


def scores_of(model, validation, batch, sketch=None, positions="tokens"):
    """Return LAI, with output gradients multiplied by a sketch."""
    model.eval()
    sides = [lai_torch.trace(model, loss, *side) for side in (validation, batch)]
    model.train()
    if sketch is not None:
        ends = [side.layers[-1] for side in sides]
        ends = [replace(end, output_gradients=end.output_gradients @ sketch.T) for end in ends]
        sides = [lai.Trace([*side.layers[:-1], end]) for side, end in zip(sides, ends, strict=True)]
    return lai.lai_scores(*sides, positions=positions)


def matrix(seed, width):
    """Return the sketch that a side of a curator with a generator of that seed has, `(width, OUTPUTS)`."""
    drawn = torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed))
    signs, permutation = support.drawn_sketch(int(drawn), OUTPUTS)
    found = torch.zeros(width, OUTPUTS, dtype=torch.float64)
    places = torch.arange(OUTPUTS) // -(-OUTPUTS // width)
    return found.index_put_((places, permutation), signs[permutation].double())


CASES = [(width, "tokens", "a set") for width in (1, 2, 4, OUTPUTS)]
CASES += [(2, "flatten", "a set"), (None, "flatten", "a set"), (2, "tokens", "batch+self")]


@pytest.mark.parametrize(("width", "positions", "source"), CASES)
def test_sketched_scores_by_the_matrix(width, positions, source):
    """On both sides, where the batch scores itself; with `flatten` of the set's kept traces."""
    model, validation, batch = network(), data(9), data(5)
    estimator = lai_torch.LAI(positions=positions, sketch=width)
    options = {"estimator": estimator, "generator": torch.Generator().manual_seed(5)}
    curator = curated(model, validation if source == "a set" else source, **options)
    report = curator.score(*batch)[1]
    drawn = None if width is None else matrix(5, width)
    side = validation if source == "a set" else batch
    expected = scores_of(model, side, batch, drawn, positions)
    torch.testing.assert_close(report.scores, expected, rtol=1e-10, atol=1e-12)
    assert report.positions == positions
