"""The paper's own settings (`published.toml`) as tasks, where their data, their models and a GPU are."""

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.data import published as data
from experiments.data.digits import Batch, flip_labels
from experiments.data.published import Texts, find
from experiments.methods import Task
from experiments.methods.base import optimizer_of
from workloads.torch_parts import resnet18

SETTINGS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
MEAN, SPREAD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
"""Of CIFAR-10's training images, by colour."""
WHERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def config(*kinds: str) -> dict[str, Any]:
    """Return a study's settings: those of `images`, `texts`, `glue` or `pile`."""
    return {
        "seeds": list(range(5)),
        "settings": [name for kind in kinds for name in SETTINGS[kind].get("sets", {})],
        "published": {kind: SETTINGS[kind] for kind in kinds},
        "device": WHERE.type,
    }


def images(seed: int, *, name: str) -> Task:
    """Return images with the labels that people gave them; right ones to validate and to test on."""
    own = SETTINGS["images"]
    classes, kind = (own["sets"][name][key] for key in ("classes", "labels"))
    (inputs, right), tested = (data.images(classes, test=test) for test in (False, True))
    given = data.human_labels(classes, kind, right)
    order = np.random.default_rng((seed, 7)).permutation(len(right))
    held, training = order[: own["validation"]], order[own["validation"] :]

    def seen(planes: np.ndarray, labels: np.ndarray) -> Batch:
        middle, spread = (torch.tensor(of).view(3, 1, 1) for of in (MEAN, SPREAD))
        return ((torch.from_numpy(planes).float() / 255.0 - middle) / spread).to(WHERE), _labels(labels)

    def network(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return resnet18(width=own.get("width", 64), classes=classes, stem="3x3")

    decay = {key: own[key] for key in ("momentum", "weight_decay")}
    return Task(
        seen(inputs[training], given[training]),
        seen(inputs[held], right[held]),
        seen(*tested),
        torch.from_numpy(given[training] != right[training]).float(),
        network,
        optimizer=optimizer_of(torch.optim.SGD, **decay),
        **{key: own[key] for key in ("learning_rate", "batch", "epochs", "share", "part")},
    )


def texts(seed: int, name: str, own: dict[str, Any]) -> list[Texts]:
    """Return what is trained, validated and tested on.

    Emotion is split as it comes; of 20 Newsgroups some training texts are held out; half of a GLUE task's
    `dev` is validated on, and half tested on.
    """

    def cut(found: Texts, first: int) -> list[Texts]:
        written, labels = found
        order = np.random.default_rng((seed, 8)).permutation(len(labels))
        return [([written[row] for row in rows], labels[rows]) for rows in (order[:first], order[first:])]

    if name == "Emotion-N":
        return [data.emotion(split) for split in ("train", "validation", "test")]
    if name == "20News-N":
        found = data.newsgroups("train")
        held, training = cut(found, min(own["validation"], len(found[1]) // 2))
        return [training, held, data.newsgroups("test")]
    task = own["sets"][name]["task"]
    found = data.glue(task, "dev")
    return [data.glue(task, "train"), *cut(found, (len(found[1]) + 1) // 2)]


def sentences(seed: int, *, name: str) -> Task:
    """Return a task of texts: for BERT with flipped labels, for GPT-Neo as it is given."""
    own = SETTINGS["texts" if name in SETTINGS["texts"]["sets"] else "glue"]
    parts, classes = texts(seed, name, own), own["sets"][name].get("classes", 2)
    right, count = parts[0][1], len(parts[1][1])
    given = flip_labels(right, own.get("wrong", 0.0), np.random.default_rng((seed, 7)), classes)
    place = find(own["model"])
    pad, read = reader(place, own["length"])
    labelled = zip(parts, (given, parts[1][1], parts[2][1]), strict=True)
    return Task(
        *((read(written).to(WHERE), _labels(labels)) for (written, _), labels in labelled),
        torch.from_numpy(given != right).float(),
        partial(classifier, place=place, classes=classes, pad=pad),
        optimizer=optimizer_of(torch.optim.AdamW, weight_decay=own["weight_decay"]),
        share=min(1.0, own.get("validation", count) / count),
        valid=lambda ids: ids != pad,
        **{key: own[key] for key in ("learning_rate", "batch", "epochs", "part")},
    )


def reader(place: Path, length: int) -> tuple[int, Callable[[list[str]], Tensor]]:
    """Return the padding's number, and what makes texts `(n, length)` tokens, by a model's own tokenizer."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(place), local_files_only=True)
    if tokenizer.pad_token is None:  # GPT-Neo's has none, and its end of a text stands in no text
        tokenizer.pad_token = tokenizer.eos_token
    options = {"truncation": True, "max_length": length, "padding": "max_length", "return_tensors": "pt"}
    return int(tokenizer.pad_token_id), lambda written: tokenizer(written, **options)["input_ids"]


class Logits(nn.Module):
    """A language model, or a classifier of texts that sees no padding, which returns logits alone."""

    def __init__(self, model: nn.Module, pad: int | None = None) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, ids: Tensor) -> Tensor:
        """Return the classes' logits, `(n, classes)`, or the next tokens', `(n, t, vocabulary)`."""
        if self.pad is None:
            return self.model(input_ids=ids, use_cache=False).logits
        return self.model(input_ids=ids, attention_mask=(ids != self.pad).long()).logits


def classifier(seed: int, *, place: Path, classes: int, pad: int) -> nn.Module:
    """Return a pre-trained model with a prediction layer whose weights are drawn."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        str(place), num_labels=classes, pad_token_id=pad, local_files_only=True
    )
    return Logits(model, pad)


def task(name: str) -> Callable[[int], Task]:
    """Return what makes a task of the paper's tables from a seed."""
    return partial(images if name in SETTINGS["images"]["sets"] else sentences, name=name)


def _labels(labels: np.ndarray) -> Tensor:
    return torch.tensor(labels, device=WHERE)  # a copy: a table's own may be read-only
