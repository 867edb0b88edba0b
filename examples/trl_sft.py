"""A small Qwen in TRL's SFTTrainer, by its loss that builds no logits; 40% of the text is noise."""

import sys
import tempfile

import lai_torch
import torch
from datasets import Dataset
from lai_torch.integrations.trl import CuratedSFTTrainer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig

WORDS, LENGTH = 128, 16


def texts(count, seed, noise=0.0):
    """Return texts that count upwards, or are noise (`source` 1)."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        start, step = torch.randint(WORDS, (), generator=draw), torch.randint(1, 4, (), generator=draw)
        ids = (start + step * torch.arange(LENGTH)) % WORDS
        noisy = bool(torch.rand((), generator=draw) < noise)
        if noisy:
            ids = torch.randint(WORDS, (LENGTH,), generator=draw)
        found.append({"text": " ".join(map(str, ids.tolist())), "source": int(noisy)})
    return Dataset.from_list(found)


def tokenizer():
    words = {str(number): number for number in range(WORDS)} | {"<pad>": WORDS, "<eos>": WORDS + 1}
    made = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def main(epochs=2):
    """Train, and print what was kept."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=WORDS + 2, num_key_value_heads=2, **size)
    trainer = CuratedSFTTrainer(
        Qwen2ForCausalLM(config),
        SFTConfig(
            output_dir=tempfile.mkdtemp(),
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            logging_steps=6,
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=texts(384, 1, noise=0.4),
        validation=texts(64, 2),
        processing_class=tokenizer(),
        curation={"estimator": lai_torch.LAI(positions="tokens", sketch=16, chunk=16), "refresh": 5},
    )
    trainer.train()
    kept = [line["curation/kept"] for line in trainer.state.log_history if "curation/kept" in line]
    print(f"kept {kept[-1]:.0%}")
    return kept[-1], trainer


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
