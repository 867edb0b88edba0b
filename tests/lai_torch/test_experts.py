"""Expert layers have records of their own: exact, whatever is routed where, at the cost of dense layers."""

import lai_torch
import pytest
import torch
from lai_torch._recording.record import record
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

import lai_core as lai

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


def gradients(model, inputs, targets):
    """Return each sample's gradient by plain autograd, `(n, parameters)`."""
    found = []
    for sample in range(len(targets)):
        one = {**inputs, "input_ids": inputs["input_ids"][sample : sample + 1]}
        total = loss(model(**one), targets[sample : sample + 1]).sum()
        parts = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
        pairs = zip(parts, model.parameters(), strict=True)
        found.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]))
    return torch.stack(found)


@pytest.mark.parametrize("way", ["eager", "grouped_mm"])
def test_ghost_is_exact_on_experts_and_batches_may_route_otherwise(way):
    model = mixtral(way)
    validation, training = batch(3), batch()
    expected = gradients(model, *training) @ gradients(model, *validation).sum(0)
    curator = lai_torch.Curator(model, loss, None, validation, estimator="ghost")
    bound = {"rtol": 1e-9, "atol": 1e-12} if way == "eager" else {"rtol": 1e-3, "atol": 1e-5}
    torch.testing.assert_close(curator.score(*training)[1].scores, expected, **bound)
    later = batch(2)  # by what is known by now
    expected = gradients(model, *later) @ gradients(model, *validation).sum(0)
    torch.testing.assert_close(curator.score(*later)[1].scores, expected, **bound)
    found = lai_torch.coverage(model, loss, *training)
    assert found.share == 1.0
    assert found.explained["model.layers.0.mlp.experts.gate_up_proj"] == ("expert",)
    assert lai_torch.selfcheck(model, loss, *training).relative_error < (1e-9 if way == "eager" else 1e-4)


def operations(model, data):
    """Return what recording every layer costs, in forward passes, once the model is known."""
    known = record(model, loss, *data, every_layer=True).known
    with FlopCounterMode(display=False) as forward:
        model(**data[0])
    with FlopCounterMode(display=False) as recorded:
        record(model, loss, *data, every_layer=True, known=known)
    return recorded.get_total_flops() / forward.get_total_flops()


def test_recording_experts_costs_what_recording_dense_layers_does():
    data = batch(8)
    dense = LlamaForCausalLM(LlamaConfig(intermediate_size=48, **SIZES)).double().eval()
    assert operations(mixtral("eager"), data) <= 1.01 * operations(dense, data)


def test_lai_sees_of_experts_what_it_saw_before():
    model, data = mixtral("eager"), batch()
    with pytest.warns(UserWarning, match="LAI has no readout"):
        output = lai_torch.trace(model, loss, *data)
    every = lai_torch.trace(model, loss, *data, gradients="all")
    assert sum(isinstance(layer, lai.ExpertTrace) for layer in every.layers) == 4 * EXPERTS
    torch.testing.assert_close(lai.lai_scores(every, every), lai.lai_scores(output, output))


class Routes(nn.Module):
    """Experts on tokens that lie in an order of the caller's, each read and used as the caller says."""

    def __init__(self, use, *, first):
        super().__init__()
        self.gate, self.use, self.first = nn.Linear(4, 3), use, first
        self.experts, self.head = nn.Parameter(torch.randn(3, 4, 4)), nn.Linear(4, 3)

    def forward(self, inputs):
        tokens = inputs if self.first else inputs.transpose(0, 1)
        rows = tokens.reshape(-1, 4)
        chosen = self.gate(rows).argmax(1)
        out = torch.zeros_like(rows)
        for number in chosen.unique():
            (places,) = torch.where(chosen == number)
            out = out.index_add(0, places, self.use(rows[places], self.experts[number]))
        out = out.reshape(tokens.shape)
        return self.head((out if self.first else out.transpose(0, 1)).sum(1))


USES = {
    "linear": functional.linear,
    "matmul": torch.matmul,
    "turned round": lambda rows, matrix: functional.linear(rows.flip(0), matrix).flip(0),
    "scaled": lambda rows, matrix: functional.linear(rows, 2 * matrix),
    "twice": lambda rows, matrix: functional.linear(functional.linear(rows, matrix).tanh(), matrix),
    "added up, too": lambda rows, matrix: functional.linear(rows, matrix) + matrix.sum(),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_what_the_rule_does_not_fit_is_exact_all_the_same(use, first):
    """Where rows are not whose they are taken for, the proof says so, and backward passes take over."""
    model = Routes(use, first=first).double()
    data = torch.randn(5, 3, 4, dtype=torch.float64), torch.arange(5) % 3
    each = nn.CrossEntropyLoss(reduction="none")
    assert lai_torch.selfcheck(model, each, *data).relative_error < 1e-12
