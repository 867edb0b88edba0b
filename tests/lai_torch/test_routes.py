"""Routes for models with positions: sketches, what pairs of tokens cost, position by position."""

import functools
import warnings
from dataclasses import replace

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch import support
from tests.support.torch_modules import held, holding

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


@pytest.fixture
def _dear():
    """Let exact pairs of tokens cost more than a forward pass without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "positions: exact pairs of tokens", UserWarning)
        yield


def scores_of(model, validation, batch, sketch=None, positions="tokens"):
    """Return LAI, with output gradients multiplied by a sketch."""
    model.eval()
    sides = [lai_torch.trace(model, loss, *side) for side in (validation, batch)]
    model.train()
    if sketch is not None:
        sides = [sketched(side, sketch) for side in sides]
    return lai.lai_scores(*sides, positions=positions)


def sketched(trace, sketch):
    *others, last = trace.layers
    return lai.Trace([*others, replace(last, output_gradients=last.output_gradients @ sketch.T)])


def matrix(state, width):
    """Return the sketch that a curator's state names as a matrix, `(width, OUTPUTS)`."""
    signs, permutation = state["scorer"]["sketch"]
    found = torch.zeros(width, OUTPUTS, dtype=torch.float64)
    places = torch.arange(OUTPUTS) // -(-OUTPUTS // width)
    return found.index_put_((places, permutation), signs[permutation].double())


CASES = [(width, "tokens", "a set") for width in (1, 2, 4, OUTPUTS)]
CASES += [(2, "flatten", "a set"), (None, "flatten", "a set"), (2, "tokens", "batch+self")]


@pytest.mark.parametrize(("width", "positions", "source"), CASES)
def test_sketched_scores_are_those_of_the_drawn_matrix(width, positions, source):
    """On both sides, where the batch scores itself; with `flatten` of the set's kept traces."""
    model, validation, batch = network(), data(9), data(5)
    estimator = lai_torch.LAI(positions=positions, sketch=width)
    curator = curated(model, validation if source == "a set" else source, estimator=estimator)
    report = curator.score(*batch)[1]
    drawn = None if width is None else matrix(curator.state_dict(), width)
    side = validation if source == "a set" else batch
    expected = scores_of(model, side, batch, drawn, positions)
    torch.testing.assert_close(report.scores, expected, rtol=1e-10, atol=1e-12)
    assert report.positions == positions
    assert (report.cost is None) == (positions == "flatten")


def test_signs_are_signs_and_every_output_has_its_place():
    curator = curated(network(), data(4), estimator=lai_torch.LAI(sketch=2), refresh=1)
    drawn = []
    for _ in range(40):
        curator.score(*data(2))
        drawn.append(curator.state_dict()["scorer"]["sketch"])
    signs, permutations = (torch.stack(part) for part in zip(*drawn, strict=True))
    assert set(signs.flatten().tolist()) == {-1, 1}
    assert bool((permutations.sort(1).values == torch.arange(OUTPUTS)).all())
    assert abs(float(signs.float().mean())) < 4 / 240**0.5  # four standard errors


def test_each_refresh_draws_anew_and_only_that():
    batch, options = data(4), {"estimator": lai_torch.LAI(sketch=2), "policy": torch.zeros_like}
    curator = curated(network(), data(6), refresh=2, **options)
    first, second, third = (curator.step(*batch).scores for _ in range(3))
    assert torch.equal(first, second)
    assert not torch.allclose(second, third)


@pytest.mark.parametrize(
    "options",
    [{"estimator": lai_torch.LAI(sketch=2)}, {"estimator": lai_torch.LAI(positions="mean"), "share": 0.5}],
)
def test_draws_leave_training_as_if_nothing_were_drawn(options):
    def run(**chosen):
        torch.manual_seed(3)
        model, validation, batches = network(), data(6), [data(4) for _ in range(3)]
        everything = {
            "estimator": lai_torch.LAI(positions="mean"),
            "policy": lambda scores: torch.full_like(scores, 1 / 4),
        }
        curator = curated(model, validation, **(everything | chosen))
        for batch in batches:
            curator.step(*batch)
        return [parameter.detach().clone() for parameter in model.parameters()], torch.rand(1)

    (plain, after), (drawn, also) = run(), run(**options)
    assert torch.equal(after, also)
    for one, other in zip(plain, drawn, strict=True):
        assert torch.equal(one, other)


def passes(outputs):
    """Forward multiply-adds a position, and those of LAI's exact pairs of tokens, with biases."""
    return 3 * 5 + 5 * outputs, outputs * (3 + 5 + 1)


def wide(outputs):
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def test_what_exact_pairs_of_tokens_take_is_said_before_they_run():
    once, scoring = passes(40)
    model, validation, batch = wide(40), data(6), data(4)
    curator = curated(model, validation, estimator=lai_torch.LAI(positions="tokens"))
    message = (
        "positions: exact pairs of tokens cost 1.7 forward passes to score a batch, and as much for every "
        "validation batch of that size; sketch=5 costs a quarter of one, positions='mean' less"
    )
    with pytest.warns(UserWarning, match=message):
        report = curator.step(*batch)
    assert report.cost == pytest.approx(scoring / once)
    assert curator.step(*batch).cost == report.cost  # said once


def test_cheap_routes_say_nothing_and_report_what_they_take():
    once, scoring = passes(40)
    model, validation, batch = wide(40), data(6), data(4)
    assert curated(model, validation, estimator=lai_torch.LAI(positions="mean")).step(*batch).cost is None
    (once_narrow, scoring_narrow), narrow = passes(2), wide(2)
    inputs, targets = data(4)
    exact = curated(narrow, (inputs, targets % 2), estimator=lai_torch.LAI(positions="tokens")).step(
        inputs, targets % 2
    )
    assert exact.cost == pytest.approx(scoring_narrow / once_narrow)
    assert exact.cost < 1.0
    sketched = curated(model, validation, estimator=lai_torch.LAI(positions="tokens", sketch=10)).step(*batch)
    assert sketched.cost == pytest.approx(scoring / once / 4)


@holding(lambda: held(mix=nn.Linear(3, 9), head=nn.Linear(3, 40)))
def attending(own, values):
    """Apply a layer of attention: the forward pass grows with the square of the positions."""
    queries, keys, mixed = own.mix(values).chunk(3, -1)
    return own.head(torch.softmax(queries @ keys.mT, -1) @ mixed)


@pytest.mark.usefixtures("_dear")
def test_the_cost_is_that_of_each_length():
    model = attending().double()

    def sized(n, places):
        return torch.randn(n, places, 3, dtype=torch.float64), torch.randint(40, (n, places))

    curator = curated(model, sized(3, 4), estimator=lai_torch.LAI(positions="tokens"))
    for samples, places in [(5, 4), (5, 32), (2, 32), (1, 8), (5, 4)]:
        once = places * (3 * 9 + 2 * 3 * places + 3 * 40)
        scoring = places * 40 * (3 + 3 + 1)
        report = curator.score(*sized(samples, places))[1]
        assert report.cost == pytest.approx(scoring / once)


@pytest.mark.usefixtures("_dear")
@pytest.mark.parametrize("first", [True, False])
def test_chunks_report_what_any_of_them_says(first):
    model, validation, batch = wide(40), data(6), data(5)
    batch[0][slice(0, 2) if first else slice(4, 5)] = torch.nan
    whole, chunked = (
        curated(model, validation, estimator=estimator).score(*batch)[1]
        for estimator in (lai_torch.CalibratedLAI(positions="tokens", chunk=size) for size in (None, 2))
    )
    assert chunked.cost == pytest.approx(whole.cost)
    assert chunked.layer_weights.shape == (2,)


@pytest.mark.usefixtures("_dear")
def test_routes_state_what_the_curator_reports():
    model, batch = wide(40), data(4)
    once, scoring = passes(40)
    found = lai_torch.routes(model, loss, *batch, sketches=[10, 400])
    stated = {(route.positions, route.sketch): route for route in found}
    assert list(stated) == [("tokens", None), ("mean", None), ("flatten", None), ("tokens", 10)]
    assert stated["tokens", None].forwards == pytest.approx(scoring / once)
    assert stated["tokens", 10].forwards == pytest.approx(scoring / once / 4)
    assert stated["mean", None].forwards == pytest.approx(scoring / once / PLACES)
    pairs = 4 * 4 * PLACES * (3 + 5 + 40 + 2)  # every pair's two products, and two biases' at each place
    assert stated["flatten", None].forwards == pytest.approx(pairs / (4 * PLACES * once), rel=0.02)
    summary = lai.summarize(lai_torch.trace(model, loss, *batch), "lai")
    held = sum(part.numel() * part.element_size() for parts in summary.totals for part in parts)
    assert stated["tokens", None].summary_bytes == stated["mean", None].summary_bytes == held
    report = curated(model, batch, estimator=lai_torch.LAI(positions="tokens", sketch=10)).score(*batch)[1]
    assert report.cost == pytest.approx(stated["tokens", 10].forwards)
