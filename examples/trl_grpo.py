"""A small Qwen in TRL's GRPO, rewarded wrongly for 40% of the prompts: rollouts are scored and weighed."""

import sys
import tempfile

import lai_torch
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

WORDS, ROLLOUTS = 8, 8


def answer(prompt):
    """Return the right answer to a prompt of two numbers: the next one after the first."""
    return str((int(prompt.split()[0]) + 1) % WORDS)


def prompts(count, seed, wrong=0.0):
    """Return prompts, a share of which is rewarded for any other answer than the right one."""
    draw = torch.Generator().manual_seed(seed)
    pairs = torch.randint(WORDS, (count, 2), generator=draw).tolist()
    flips = (torch.rand(count, generator=draw) < wrong).tolist()
    return Dataset.from_list(
        [{"prompt": f"{a} {b}", "wrong": flip} for (a, b), flip in zip(pairs, flips, strict=True)]
    )


def reward(prompts, completions, wrong, **_):
    """Return 1 for the answer that a prompt is rewarded for, else 0."""
    judged = zip(prompts, completions, wrong, strict=True)
    return [float((completion.strip() == answer(prompt)) != flip) for prompt, completion, flip in judged]


def tokenizer():
    words = {str(number): number for number in range(WORDS)} | {"<pad>": WORDS, "<eos>": WORDS + 1}
    made = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")
    made.padding_side = "left"
    return made


def policy_gradient(outputs, targets):
    """Return a rollout's loss: minus its advantage times the mean log-probability of its tokens."""
    length = targets["completion_ids"].shape[1]
    logps = outputs.logits[:, -length - 1 : -1].log_softmax(-1)
    logps = logps.gather(-1, targets["completion_ids"][..., None])[..., 0]
    mask = targets["completion_mask"]
    return -targets["advantages"] * (logps * mask).sum(1) / mask.sum(1).clamp(min=1)


def as_batch(rollouts):
    """Return the model's inputs and the loss's targets of what TRL hands to its loss."""
    ids, masks = (
        torch.cat([rollouts[f"{side}_{what}"] for side in ("prompt", "completion")], 1)
        for what in ("ids", "mask")
    )
    targets = {name: rollouts[name] for name in ("completion_ids", "completion_mask", "advantages")}
    return {"input_ids": ids, "attention_mask": masks}, targets


def solved(questions, made):
    """Return right answers as rollouts with advantage 1."""
    ids = made(list(questions["prompt"]), return_tensors="pt").input_ids
    answers = made([answer(prompt) for prompt in questions["prompt"]], return_tensors="pt").input_ids
    given = {"prompt_ids": ids, "prompt_mask": torch.ones_like(ids), "completion_ids": answers}
    return as_batch(given | {"completion_mask": torch.ones_like(answers), "advantages": torch.ones(len(ids))})


def imitate(model, solved, steps):
    """Train on solved prompts alone."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        policy_gradient(model(**solved[0]), solved[1]).mean().backward()
        optimizer.step()


class WeighedGRPOTrainer(GRPOTrainer):
    """Multiplies each rollout's advantage by its weight: the loss of an on-policy rollout is linear in it."""

    def __init__(self, *args, weigh, **options):
        self.weigh, self.trained = weigh, 0
        super().__init__(*args, **options)

    def _compute_loss(self, model, inputs):
        advantages = inputs["advantages"] * self.weigh(inputs) * len(inputs["advantages"])
        self.trained += int((advantages != 0).sum())
        return super()._compute_loss(model, {**inputs, "advantages": advantages})


def every_rollout(rollouts):
    """Weigh all rollouts alike, as TRL does."""
    return torch.full_like(rollouts["advantages"], 1 / len(rollouts["advantages"]))


def with_variance(rollouts):
    """Weigh alike the rollouts of prompts whose rewards differ: the others have advantage 0."""
    kept = (rollouts["advantages"] != 0).float()
    return kept / kept.sum().clamp(min=1)


def trained(arm, steps, seed):
    """Train by one arm; return the share of right answers and how many rollouts had a gradient."""
    made, test = tokenizer(), prompts(256, 3)
    validation = solved(prompts(16, 2), made)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=WORDS + 2, num_key_value_heads=2, **size))
    imitate(model, validation, 8)
    if arm == "solved prompts alone":
        imitate(model, validation, steps)
        return right(model, made, test), 0
    curator = lai_torch.Curator(model, policy_gradient, None, validation)
    trainer = WeighedGRPOTrainer(
        model,
        reward,
        GRPOConfig(
            output_dir=tempfile.mkdtemp(),
            max_steps=steps,
            num_generations=ROLLOUTS,
            per_device_train_batch_size=8 * ROLLOUTS,
            max_completion_length=1,
            learning_rate=2e-3,
            use_cpu=not torch.cuda.is_available(),
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            seed=seed,
        ),
        train_dataset=prompts(512, 1, wrong=0.4),
        processing_class=made,
        weigh={
            "every rollout": every_rollout,
            "prompts with variance": with_variance,
            "curated": lambda rollouts: curator.score(*as_batch(rollouts))[0],
        }[arm],
    )
    trainer.train()
    return right(model, made, test), trainer.trained


def right(model, made, test):
    """Return the share of prompts whose likeliest answer is right."""
    ids = made(list(test["prompt"]), return_tensors="pt").input_ids.to(model.device)
    with torch.no_grad():
        found = model(ids).logits[:, -1].argmax(-1).tolist()
    return sum(str(one) == answer(prompt) for one, prompt in zip(found, test["prompt"], strict=True)) / len(
        ids
    )


def main(steps=60, seed=0):
    """Train by each arm from the same model, and print what was learnt."""
    found = {}
    for arm in ("solved prompts alone", "every rollout", "prompts with variance", "curated"):
        share, count = trained(arm, steps, seed)
        found[arm] = share, count
        print(f"{arm}: {share:.0%} right, {count} rollouts had a gradient")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
