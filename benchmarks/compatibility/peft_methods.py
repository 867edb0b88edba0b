"""Every method of peft, on one small language model."""

import copy
import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.compatibility.architectures import BOUNDS, default_dtype, language_batch, per_token
from benchmarks.compatibility.judge import build_first
from benchmarks.compatibility.torch_case import Case
from tests.support.workloads.transformer_models import transformer

VOCABULARY = 48
COMMON = {
    "task_type": "CAUSAL_LM",
    "target_modules": ["q_proj", "v_proj"],
    "r": 4,
    "num_virtual_tokens": 3,
    "n_frequency": 10,
    "total_step": 10,
}
"""Given to every method whose configuration has the field."""
ONLY: dict[str, dict[str, Any]] = {
    "ADAPTION_PROMPT": {"target_modules": None, "adapter_len": 3, "adapter_layers": 2},
    "BOFT": {"boft_block_size": 4},
    "C3A": {"block_size": 4},
    "CPT": {"cpt_token_ids": [4, 5, 6], "cpt_mask": [1, 1, 1], "cpt_tokens_type_mask": [1, 2, 2]},
    "IA3": {"feedforward_modules": []},
    "LN_TUNING": {"target_modules": ["input_layernorm"]},
    "MULTITASK_PROMPT_TUNING": {"num_tasks": 2},
    "OFT": {"r": 0, "oft_block_size": 4},
    "POLY": {"n_tasks": 2, "n_skills": 2, "n_splits": 2},
    "P_TUNING": {"encoder_hidden_size": 8},
    "ROAD": {"group_size": 4},
    "TRAINABLE_TOKENS": {"target_modules": ["embed_tokens"], "token_indices": list(range(4, 40))},
    "VBLORA": {"vector_length": 4, "num_vectors": 8, "topk": 2},
}
"""What one method's configuration asks for beyond that."""


def cases() -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """Yield the suite, the name and a function that builds, of each method."""
    for kind in importlib.import_module("peft.mapping").PEFT_TYPE_TO_CONFIG_MAPPING:
        builds = [functools.partial(_case, kind.value, dtype) for dtype in BOUNDS]
        yield "peft", kind.value, functools.partial(build_first, builds)


def _case(method: str, dtype: torch.dtype) -> Case:
    peft = importlib.import_module("peft")
    mapping = importlib.import_module("peft.mapping").PEFT_TYPE_TO_CONFIG_MAPPING
    kind = next(config for name, config in mapping.items() if name.value == method)
    asked = COMMON | ONLY.get(method, {})
    fields = {field.name for field in dataclasses.fields(kind)}
    with torch.random.fork_rng(devices=[]), default_dtype(torch.float32):
        torch.manual_seed(0)
        model = peft.get_peft_model(
            copy.deepcopy(_built()), kind(**{k: v for k, v in asked.items() if k in fields})
        )
        model = model.to(dtype).eval()
        for parameter in model.parameters():
            if parameter.requires_grad:  # many start at zero, where half of the gradients vanish
                parameter.data += 0.05 * torch.randn_like(parameter)
    generator = torch.Generator().manual_seed(1)
    training, validation = (language_batch(model, n, generator, _more(method, n)) for n in (3, 2))
    return Case(model=model, loss=per_token, training=training, validation=validation, bound=BOUNDS[dtype])


def _more(method: str, samples: int) -> dict[str, Tensor]:
    """Return the further inputs of methods that train several tasks at once."""
    tasks = method in {"MULTITASK_PROMPT_TUNING", "POLY"}
    return {"task_ids": torch.arange(samples) % 2} if tasks else {}


@functools.cache
def _built() -> nn.Module:
    torch.manual_seed(0)
    ends = {"use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {"length": 32, "vocabulary": VOCABULARY, "intermediate_size": 32}
    return transformer("LlamaForCausalLM", **sizes, **ends, attn_implementation="eager")
