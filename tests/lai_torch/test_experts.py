"""Expert layers have records of their own: exact, whatever is routed where, at the cost of dense layers."""

import lai_torch
import pytest
import torch
from torch.nn import functional
from transformers import MixtralConfig, MixtralForCausalLM

import lai_core as lai
from tests.lai_torch.exact_support import by_autograd

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


def test_lai_sees_of_experts_what_it_saw_before():
    model, data = mixtral("eager"), batch()
    with pytest.warns(UserWarning, match="LAI has no readout"):
        output = lai_torch.trace(model, loss, *data)
    every = lai_torch.trace(model, loss, *data, gradients="all")
    assert sum(isinstance(layer, lai.ExpertTrace) for layer in every.layers) == 4 * EXPERTS
    torch.testing.assert_close(lai.lai_scores(every, every), lai.lai_scores(output, output))
