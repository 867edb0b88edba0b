"""Ghost on experts, and where batches have records of other parameters: exact, whatever is routed where."""

import lai_torch
import pytest
import torch
from torch import nn

import lai_core as lai
from tests.lai_torch.support import LOSS, by_autograd, curated, drawn, labels, randn
from tests.support.torch_modules import Part, held, holding
from tests.support.torch_programs import TIMES, WIDTH, program
from tests.support.workloads.torch_oracle import per_sample_gradients
from tests.support.workloads.torch_parts import next_token
from tests.support.workloads.transformer_models import language_model, transformer


@holding(lambda: held(body=nn.Linear(4, 4).double(), head=nn.Linear(4, 3).double()))
def deep(own, inputs):
    """Go through one layer until every sample is done."""
    done = torch.zeros(len(inputs), dtype=torch.bool)
    for _ in range(5):
        inputs = torch.where(done[:, None], inputs, torch.tanh(own.body(inputs)))
        done = done | (inputs[:, 0].detach() > 0)
        if bool(done.all()):
            break
    return own.head(inputs)


def routed():
    """Send rows to two experts each, and samples to one of two."""
    parts = "top_two", "routed"
    behind = program(1, made_of=(*parts, "cross_entropy", "mean", "")).model
    return nn.Sequential(nn.Linear(4, TIMES * WIDTH), nn.Unflatten(1, (TIMES, WIDTH)), behind)


@holding(
    lambda: held(
        body=nn.Linear(4, 4), sides=nn.ModuleList(nn.Linear(4, 4) for _ in range(2)), head=nn.Linear(4, 3)
    )
)
def branching(own, inputs):
    """Send each sample, all its positions, to one of two layers, and read its last position."""
    hidden = torch.tanh(own.body(inputs))
    right, found = inputs.sum((1, 2)) > 0, torch.zeros_like(hidden)
    for rows, layer in zip((right, ~right), own.sides, strict=True):
        if rows.any():
            found[rows] = layer(hidden[rows])
    return own.head(torch.tanh(found)[:, -1])


@pytest.mark.parametrize(
    "options", [{}, {"refresh": 3}, {"estimator": lai_torch.Ghost(chunk=2)}, {"backward": "whole"}]
)
@pytest.mark.parametrize("kind", [routed, deep])
def test_ghost_is_exact_whatever_is_routed(kind, options):
    torch.manual_seed(0)
    model, validation = kind().double(), drawn(7, 99)
    curator = curated(model, validation, **{"estimator": "ghost", "lr": 0.0, **options})
    for seed, n in enumerate((2, 1, 6, 2, 3, 5)):
        batch = drawn(n, seed)
        expected = lai_torch.exact_scores(model, LOSS, validation, batch)
        torch.testing.assert_close(curator.step(*batch).scores, expected)
    again = curated(model, validation, **{"estimator": "ghost", "lr": 0.0, **options})
    again.load_state_dict(curator.state_dict())
    torch.testing.assert_close(again.step(*batch).scores, expected)


@pytest.mark.parametrize("estimator", [lai_torch.Ghost(), lai_torch.Ghost(chunk=1)])
def test_branches_of_one_row_are_exact(estimator):
    """They have one graph, and parameters of their own; a branch that no row of a part reaches has none."""
    model, inputs = branching().double(), randn(4, 3, 4).double()
    inputs *= inputs.sum((1, 2), keepdim=True).sign()  # all to one side
    validation, targets = (inputs[:1], labels(1)), labels(4)
    curator = curated(model, validation, estimator=estimator, lr=0.0)
    for sides in ([1], [1], [-1], [-1, 1, 1, -1]):
        batch = inputs[-len(sides) :] * torch.tensor(sides).double().view(-1, 1, 1), targets[: len(sides)]
        expected = lai_torch.exact_scores(model, LOSS, validation, batch)
        torch.testing.assert_close(curator.score(*batch)[1].scores, expected)


@holding(lambda: held(body=nn.Linear(4, 4), head=nn.Linear(4, 3)))
def chosen(own, inputs):
    """Compute some of the positions alone."""
    found, these = inputs.clone(), inputs[..., 0] > 0
    found[these] = torch.tanh(own.body(inputs[these]))
    return own.head(found.mean(1))


@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 1, 1), (3, 3, 3)])
def test_as_many_positions_as_samples(counts):
    """They look like one a sample, in a batch that is read after a summary without that."""
    model = chosen().double()

    def batch(counts):
        inputs = randn(len(counts), 4, 4).double()
        for row, count in zip(inputs, counts, strict=True):
            row[:, 0] = -1 - row[:, 0].abs()
            row[:count, 0] *= -1
        return inputs, labels(len(counts))

    validation, given = batch(counts), batch((0, 2, 1, 1))
    curator = curated(model, validation, estimator="ghost", lr=0.0, refresh=9)
    expected = lai_torch.exact_scores(model, LOSS, validation, given)
    for _ in range(3):
        torch.testing.assert_close(curator.step(*given).scores, expected)


@holding(
    lambda: held(
        sides=nn.ModuleList(nn.Linear(4, 4) for _ in range(3)),
        base=nn.Linear(4, 4),
        down=nn.Linear(4, 2),
        up=nn.Linear(2, 4),
        head=nn.Linear(4, 3),
    )
)
def adapted(own, inputs):
    """Route rows to three layers, and add a pair of low rank, of which the second matrix begins at zero."""
    found = torch.zeros_like(inputs)
    chosen = inputs[..., :3].argmax(-1)
    for number, side in enumerate(own.sides):
        rows = chosen == number
        if rows.any():
            found[rows] = side(inputs[rows])
    return own.head((own.base(found) + own.up(own.down(found))).mean(1))


@pytest.mark.parametrize("seed", range(4))
def test_matrices_that_begin_at_zero(seed):
    """No gradient reaches the first one in a summary; none tells where its samples lie."""
    torch.manual_seed(seed)
    model = adapted().double()
    nn.init.zeros_(model.up.weight)
    validation = torch.randn(12, 5, 4).double(), labels(12)
    curator = curated(model, validation, estimator="ghost", refresh=3)
    for step in range(5):
        batch = torch.randn(8, 5, 4).double(), labels(8)
        scores, before = lai_torch.exact_scores(model, LOSS, validation, batch), step % 3 == 0
        found = curator.step(*batch).scores
        if before:  # later ones are along the gradient of an earlier step
            torch.testing.assert_close(found, scores)


@pytest.mark.parametrize("way", ["eager", "grouped_mm"])
def test_ghost_is_exact_on_mixtral(way):
    bound = {"rtol": 1e-9, "atol": 1e-12} if way == "eager" else {"rtol": 1e-3, "atol": 1e-5}
    sizes = {"intermediate_size": 24, "num_local_experts": 4, "num_key_value_heads": 2}
    model = transformer("MixtralForCausalLM", **sizes, num_experts_per_tok=2)
    model.set_experts_implementation(way)
    model = model if way == "grouped_mm" else model.double()  # whose kernels know no float64
    validation, *batches = (
        (case.inputs, case.targets) for case in (language_model(model, n) for n in (3, 5, 2))
    )
    curator = lai_torch.Curator(model.eval(), next_token, None, validation, estimator="ghost")
    for given in batches:  # which are routed otherwise
        expected = by_autograd(model, validation, given, next_token)
        torch.testing.assert_close(curator.score(*given)[1].scores, expected, **bound)
    found = lai_torch.coverage(model, next_token, *given)
    assert found.fraction == 1.0
    assert found.explained["model.layers.0.mlp.experts.gate_up_proj"] == ("expert",)


@holding(lambda: held(bank=nn.Parameter(torch.randn(2, 4, 4)), head=nn.Linear(4, 3)))
def idle(own, inputs):
    """Go through one matrix of a bank, and some rows by the other one to nothing."""
    rows = (inputs[:, 0] > 0).nonzero().squeeze(1)
    off = torch.relu(-(inputs[rows] @ own.bank[1]).abs() - 1)
    return own.head((inputs @ own.bank[0]).index_add(0, rows, off))


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
def test_idle_matrices_of_a_bank():
    trace = lai_torch.trace(idle().double(), LOSS, *drawn(6, 3))
    assert [layer.name for layer in trace.layers] == ["head"]


@holding(lambda: held(body=nn.Linear(4, 4, bias=False), head=nn.Linear(4, 3)))
def looped(own, inputs):
    return own.head(torch.cat([torch.relu(own.body(row[None])) for row in inputs]))


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
def test_single_units_look_like_samples():
    """A row of which one unit is alive, of as many as there are samples; and one whose units all died."""
    model = looped().double()
    with torch.no_grad():
        model.body.weight.copy_(torch.eye(4))
    inputs = torch.eye(4, dtype=torch.float64) - torch.tensor([0.5, 0.5, 2.0, 0.5]).double()[:, None]
    sides = [(inputs, labels(4)), (inputs.abs(), labels(4))]
    traces = [lai_torch.trace(model, LOSS, *side, gradients="all") for side in sides]
    torch.testing.assert_close(lai.ghost_scores(*traces), by_autograd(model, *sides))
    assert [layer.name for layer in lai_torch.trace(model, LOSS, *sides[0]).layers] == ["head"]


def test_rows_that_no_gradient_assigns():
    # 4 rows of sample 1 alone look like 2 of each sample: nothing but the last has a gradient
    inputs = randn(2, 4, 4).double() + torch.tensor([-3.0, 3.0]).view(2, 1, 1)
    with pytest.warns(UserWarning, match=r"'sides\.1\.weight'.*'sides\.0\.weight'.*leaves it out"):
        trace = lai_torch.trace(branching().double(), LOSS, inputs, labels(2))
    assert [layer.weight for layer in trace.layers] == ["body.weight", "head.weight"]


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize(("few", "many"), [("validation", "batch"), ("batch", "validation")])
def test_experts_are_left_out_once_known(few, many, chunk):
    model, inputs = branching().double(), randn(4, 4, 4).double() + torch.tensor([3, 3, -3, 3]).view(4, 1, 1)
    sides = {many: (inputs, labels(4)), few: (inputs[:2], labels(4)[:2])}  # two samples that go one way
    known = [lai_torch.trace(model, LOSS, *sides[name]) for name in ("validation", "batch")]
    dense = [lai.Trace([one for one in trace.layers if "sides" not in one.name]) for trace in known]
    assert sorted(len(trace.layers) for trace in known) == [2, 3]
    curator = curated(model, sides["validation"], estimator=lai_torch.LAI(chunk=chunk, positions="mean"))
    for _ in range(2):
        scores = curator.score(*sides["batch"])[1].scores
        torch.testing.assert_close(scores, lai.lai_scores(*dense, positions="mean"))
    estimator = lai_torch.CalibratedLAI(positions="mean")
    calibrated = curated(model, sides["validation"], estimator=estimator)
    for _ in range(2):
        report = calibrated.score(*sides["batch"])[1]
        assert report.layer_weights.shape == (2,)
        assert bool(torch.isfinite(report.scores).all())


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
def test_idle_experts_of_a_part():
    model, validation = routed().double(), drawn(7, 99)
    with pytest.raises(ValueError, match=r"chunk: expected the same layers.*'2.parts.1.left.weight'"):
        curated(model, validation, estimator=lai_torch.LAI(chunk=1)).step(*drawn(2, 1))


def test_products_of_batches_with_other_experts():
    model, sides = routed().double(), (drawn(7, 99), drawn(1, 0))
    rows = [per_sample_gradients(model, LOSS, *side, len(side[1])) for side in sides]
    found = lai_torch.per_sample_inner_products(model, LOSS, *sides)
    torch.testing.assert_close(found, rows[0] @ rows[1].T)
    products = rows[0] @ rows[0].T  # of batches of one with one another
    given = model, LOSS, sides[0], tuple(side[:1] for side in sides[0])
    table = lai_torch.top_samples(*given, top=7, batch_size=1, progress=False).to_pylist()
    for each in table:
        assert each["score"] == pytest.approx(float(products[0, each["id"]]))


def test_batches_without_last_layers_are_exact():
    def gated(own, inputs):
        rows = (inputs[:, 0] > 0).nonzero().squeeze(1)
        return own.offset.expand(len(inputs), 3).index_add(0, rows, own.body(inputs[rows]))

    model = Part(gated, body=nn.Linear(4, 3), offset=nn.Parameter(torch.zeros(3))).double()
    curator = curated(model, drawn(7, 99), estimator="ghost", lr=0.0)
    for seed in range(4):
        expected = lai_torch.exact_scores(model, LOSS, drawn(7, 99), drawn(2, seed))
        torch.testing.assert_close(curator.step(*drawn(2, seed)).scores, expected)
