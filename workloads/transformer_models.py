"""Small random configurations of transformers' models, each with a batch and a loss per sample."""

import torch
from torch import Tensor, nn

from workloads.torch_parts import CLASSES, Case, LowRank, classification, labels, next_token

SAMPLES = 4


def padded_ids(vocabulary: int, length: int) -> tuple[Tensor, Tensor]:
    """Token ids and their mask; later samples end earlier."""
    ids = torch.randint(1, vocabulary, (SAMPLES, length))
    mask = torch.arange(length) < (length - torch.arange(SAMPLES).unsqueeze(1) % 3)
    return ids * mask, mask.long()


def language_model(model: nn.Module) -> Case:
    """Next-token loss on padded sequences."""
    ids, mask = padded_ids(model.config.vocab_size, 9)
    return Case(
        model,
        next_token,
        {"input_ids": ids, "attention_mask": mask, "use_cache": False},
        ids.masked_fill(mask == 0, -100),
    )


def gpt2() -> Case:
    """GPT-2: tied head, learned positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return language_model(
        GPT2LMHeadModel(
            GPT2Config(
                vocab_size=31, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
            )
        )
    )


def gpt_neo() -> Case:
    """GPT-Neo: global and local attention, tied head."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=31,
        max_position_embeddings=16,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    return language_model(GPTNeoForCausalLM(config))


def llama() -> Case:
    """Llama: RMSNorm, rotary positions, grouped-query attention."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=31,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
    )
    return language_model(LlamaForCausalLM(config))


def bert() -> Case:
    """BERT for classification."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=31,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        num_labels=CLASSES,
    )
    ids, mask = padded_ids(31, 9)
    inputs = {"input_ids": ids, "attention_mask": mask}
    return Case(BertForSequenceClassification(config), classification, inputs, labels(SAMPLES))


def t5_encoder() -> Case:
    """T5's encoder: relative position bias, no biases."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=31, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = T5EncoderModel(config), nn.Linear(16, CLASSES)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.head(self.body(input_ids, attention_mask=attention_mask).last_hidden_state.mean(1))

    ids, mask = padded_ids(31, 9)
    return Case(Classifier(), classification, {"input_ids": ids, "attention_mask": mask}, labels(SAMPLES))


def vit() -> Case:
    """Vision transformer: patches by convolution, class token, position table."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        num_labels=CLASSES,
    )
    inputs = {"pixel_values": torch.randn(SAMPLES, 3, 16, 16)}
    return Case(ViTForImageClassification(config), classification, inputs, labels(SAMPLES))


def convnext() -> Case:
    """ConvNeXt: depthwise convolutions, layer scale, channels-last linear layers."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        hidden_sizes=[8, 12, 16, 20], depths=[1, 1, 1, 1], num_labels=CLASSES, layer_scale_init_value=0.5
    )
    inputs = {"pixel_values": torch.randn(SAMPLES, 3, 32, 32)}
    return Case(ConvNextForImageClassification(config), classification, inputs, labels(SAMPLES))


def lora() -> Case:
    """GPT-2 with every weight frozen but low-rank adapters on attention and the norms' gains."""
    case = gpt2()
    case.model.requires_grad_(False)
    for block in case.model.transformer.h:
        for name, width in (("c_attn", 48), ("c_proj", 16)):
            conv1d = getattr(block.attn, name)
            base = nn.Linear(16, width)
            base.load_state_dict({"weight": conv1d.weight.T, "bias": conv1d.bias})
            setattr(block.attn, name, LowRank(base, 2))
        block.ln_1.requires_grad_(True)
    return case
