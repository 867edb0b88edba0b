"""Ghost on experts, and where batches have records of other parameters: exact, whatever is routed where."""

import lai_torch
import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import MixtralConfig, MixtralForCausalLM

import lai_core as lai
from tests.lai_torch.support import LOSS, by_autograd, curated, labels, randn
from tests.support.torch_modules import held, holding
from tests.support.torch_programs import TIMES, WIDTH, program


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


@holding(lambda: held(matrix=nn.Parameter(torch.randn(4, 4)), last=nn.Linear(4, 3)))
def either_way(own, inputs):
    """Multiply by a square matrix, or by its transpose where there are more than three positions."""
    matrix = own.matrix if inputs.shape[1] < 4 else own.matrix.mT
    return own.last(torch.tanh(inputs @ matrix).mean(1))


def test_a_square_matrix_that_batches_use_either_way_has_one_gradient():
    torch.manual_seed(0)
    model = either_way().double()
    sides = [(randn(6, length, 4), labels(6)) for length in (3, 4)]
    curator = curated(model, sides[0], estimator="ghost", refresh=9)
    curator.score(*sides[0])
    expected = lai_torch.exact_scores(model, LOSS, *sides)
    torch.testing.assert_close(curator.score(*sides[1])[1].scores, expected)
    traces = [lai_torch.trace(model, LOSS, *side, gradients="all") for side in sides]
    with pytest.raises(ValueError, match="expected weight key"):
        lai.ghost_scores(*traces)


def drawn(seed, n):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64), labels(n)


@pytest.mark.parametrize(
    "options", [{}, {"refresh": 3}, {"estimator": lai_torch.Ghost(chunk=2)}, {"backward": "whole"}]
)
@pytest.mark.parametrize("kind", [routed, deep])
def test_ghost_is_exact_whatever_records_a_batch_has(kind, options):
    torch.manual_seed(0)
    model, validation = kind().double(), drawn(99, 7)
    curator = curated(model, validation, **{"estimator": "ghost", "lr": 0.0, **options})
    for seed, n in enumerate((2, 1, 6, 2, 3, 5)):
        batch = drawn(seed, n)
        expected = lai_torch.exact_scores(model, LOSS, validation, batch)
        torch.testing.assert_close(curator.step(*batch).scores, expected)
    again = curated(model, validation, **{"estimator": "ghost", "lr": 0.0, **options})
    again.load_state_dict(curator.state_dict())
    torch.testing.assert_close(again.step(*batch).scores, expected)


WORDS, LENGTH, SAMPLES, EXPERTS = 32, 6, 5, 4
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
}


def loss(outputs, targets):
    words = outputs.logits[:, :-1].transpose(1, 2)
    return functional.cross_entropy(words, targets[:, 1:], reduction="none").mean(1)


def batch(samples=SAMPLES):
    words = torch.randint(WORDS, (samples, LENGTH))
    return {"input_ids": words, "use_cache": False}, words


def mixtral(way):
    config = MixtralConfig(intermediate_size=24, num_local_experts=EXPERTS, num_experts_per_tok=2, **SIZES)
    model = MixtralForCausalLM(config).eval()
    model.set_experts_implementation(way)
    return model if way == "grouped_mm" else model.double()  # whose kernels know no float64


@pytest.mark.parametrize("way", ["eager", "grouped_mm"])
def test_ghost_is_exact_on_experts_and_batches_may_route_otherwise(way):
    model = mixtral(way)
    validation, training = batch(3), batch()
    expected = by_autograd(model, validation, training, loss)
    curator = lai_torch.Curator(model, loss, None, validation, estimator="ghost")
    bound = {"rtol": 1e-9, "atol": 1e-12} if way == "eager" else {"rtol": 1e-3, "atol": 1e-5}
    torch.testing.assert_close(curator.score(*training)[1].scores, expected, **bound)
    later = batch(2)  # by what is known by now
    expected = by_autograd(model, validation, later, loss)
    torch.testing.assert_close(curator.score(*later)[1].scores, expected, **bound)
    found = lai_torch.coverage(model, loss, *training)
    assert found.share == 1.0
    assert found.explained["model.layers.0.mlp.experts.gate_up_proj"] == ("expert",)
    assert lai_torch.selfcheck(model, loss, *training).relative_error < (1e-9 if way == "eager" else 1e-4)


def test_lai_leaves_out_a_layer_whose_rows_no_gradient_assigns_to_samples():
    # 4 rows of sample 1 alone look like 2 of each sample: nothing but the last has a gradient
    inputs = randn(2, 4, 4).double() + torch.tensor([-3.0, 3.0]).view(2, 1, 1)
    with pytest.warns(UserWarning, match=r"'sides\.1\.weight'.*'sides\.0\.weight'.*leaves it out"):
        trace = lai_torch.trace(branching().double(), LOSS, inputs, labels(2))
    assert [layer.weight for layer in trace.layers] == ["body.weight", "head.weight"]


@pytest.mark.filterwarnings("ignore:.*LAI has no readout")
def test_lai_names_an_expert_that_a_part_of_the_validation_set_leaves_idle():
    model, validation = routed().double(), drawn(99, 7)
    with pytest.raises(ValueError, match=r"chunk: expected the same layers.*'2.parts.1.left.weight'"):
        curated(model, validation, estimator=lai_torch.LAI(chunk=1)).step(*drawn(1, 2))
