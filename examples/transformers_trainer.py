"""A small GPT-2 in transformers' Trainer, on one process or by torchrun on many; 40% of the text is noise."""

import sys
import tempfile

import lai_torch
import torch
from lai_torch.integrations.transformers import CuratedTrainer
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

WORDS, LENGTH = 128, 16


def sequences(count, seed, noise=0.0):
    """Return sequences that count upwards, or are noise (`source` 1)."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        start, step = torch.randint(WORDS, (), generator=draw), torch.randint(1, 4, (), generator=draw)
        ids = (start + step * torch.arange(LENGTH)) % (WORDS - 1) + 1
        noisy = bool(torch.rand((), generator=draw) < noise)
        if noisy:
            ids = torch.randint(1, WORDS, (LENGTH,), generator=draw)
        found.append({"input_ids": ids, "labels": ids, "source": int(noisy)})
    return found


def main(epochs=2):
    """Train, and print what was kept."""
    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    trainer = CuratedTrainer(
        GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, **size)),
        TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            logging_steps=6,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=sequences(384, 1, noise=0.4),
        validation=sequences(64, 2),
        groups="source",
        curation={"estimator": lai_torch.LAI(positions="tokens", sketch=16), "refresh": 5},
    )
    trainer.train()
    last = [line for line in trainer.state.log_history if "curation/kept" in line][-1]
    clean, noise = (last[f"curation/dropped/{source}"] for source in (0, 1))
    print(f"kept {last['curation/kept']:.0%}; dropped {clean:.0%} of the clean, {noise:.0%} of the noise")
    return clean, noise


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
