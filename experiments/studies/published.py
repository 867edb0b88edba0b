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
from experiments.data.digits import flip_labels
from experiments.data.published import Texts, find
from experiments.methods import Task
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


def sgd(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Return stochastic gradient descent with the momentum and decay of the images."""
    own = SETTINGS["images"]
    decay = own["weight_decay"]
    return torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=own["momentum"], weight_decay=decay)


def adamw(model: nn.Module, learning_rate: float, *, weight_decay: float) -> torch.optim.Optimizer:
    """Return Adam with a decay of its own."""
    return torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)


def images(seed: int, *, name: str, folder: Path | None = None, **changed: Any) -> Task:
    """Return images with the labels that people gave them; right ones to validate and to test on."""
    own = SETTINGS["images"] | changed
    classes, kind = (own["sets"][name][key] for key in ("classes", "labels"))
    inputs, right = data.images(classes, test=False, folder=folder)
    given = data.human_labels(classes, kind, right, folder)
    order = np.random.default_rng((seed, 7)).permutation(len(right))
    held, training = order[: own["validation"]], order[own["validation"] :]

    def seen(planes: np.ndarray) -> Tensor:
        middle, spread = (torch.tensor(of).view(3, 1, 1) for of in (MEAN, SPREAD))
        return ((torch.from_numpy(planes).float() / 255.0 - middle) / spread).to(WHERE)

    tested = data.images(classes, test=True, folder=folder)
    return Task(
        training=(seen(inputs[training]), _labels(given[training])),
        validation=(seen(inputs[held]), _labels(right[held])),
        test=(seen(tested[0]), _labels(tested[1])),
        wrong=torch.from_numpy(given[training] != right[training]).float(),
        network=partial(_residual, classes=classes, width=own.get("width", 64)),
        optimizer=sgd,
        **{key: own[key] for key in ("learning_rate", "batch", "epochs", "share", "part")},
    )


def _residual(seed: int, *, classes: int, width: int) -> nn.Module:
    torch.manual_seed(seed)
    return resnet18(width=width, classes=classes, stem="3x3")


def newsgroups(seed: int, folder: Path | None) -> list[Texts]:
    """Return 20 Newsgroups, of whose training texts some are held out."""
    (written, labels), tested = (data.newsgroups(split, folder) for split in ("train", "test"))
    order = np.random.default_rng((seed, 8)).permutation(len(labels))
    count = min(SETTINGS["texts"]["validation"], len(labels) // 2)
    parts = [([written[row] for row in rows], labels[rows]) for rows in (order[count:], order[:count])]
    return [*parts, tested]


def emotion(seed: int, folder: Path | None) -> list[Texts]:
    """Return Emotion, which is split as it comes."""
    return [data.emotion(split, folder) for split in ("train", "validation", "test")]


def glue(seed: int, folder: Path | None, *, task: str) -> list[Texts]:
    """Return a task of GLUE, half of whose `dev` is validated on, and half tested on."""
    written, labels = data.glue(task, "dev", folder)
    halves = np.array_split(np.random.default_rng((seed, 8)).permutation(len(labels)), 2)
    held = [([written[row] for row in rows], labels[rows]) for rows in halves]
    return [data.glue(task, "train", folder), *held]


def sentences(seed: int, *, name: str, folder: Path | None = None, **changed: Any) -> Task:
    """Return a task of texts: for BERT with flipped labels, for GPT-Neo as it is given."""
    kind = "texts" if name in SETTINGS["texts"]["sets"] else "glue"
    own = SETTINGS[kind] | changed
    of = own["sets"][name]
    make: dict[str, Callable[..., list[Texts]]] = {"20News-N": newsgroups, "Emotion-N": emotion}
    parts = make[name](seed, folder) if name in make else glue(seed, folder, task=of["task"])
    (_, right), classes = parts[0], of.get("classes", 2)
    given = flip_labels(right, own.get("wrong", 0.0), np.random.default_rng((seed, 7)), classes)
    place = find(own["model"], folder)
    pad, read = reader(place, own["length"])
    training, validation, test = (
        (read(written).to(WHERE), _labels(labels))
        for (written, _), labels in zip(parts, (given, parts[1][1], parts[2][1]), strict=True)
    )
    return Task(
        training=training,
        validation=validation,
        test=test,
        wrong=torch.from_numpy(given != right).float(),
        network=partial(classifier, place=place, classes=classes, pad=pad),
        optimizer=partial(adamw, weight_decay=own["weight_decay"]),
        share=min(1.0, own.get("validation", len(parts[1][1])) / len(parts[1][1])),
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


class Padded(nn.Module):
    """A classifier of texts that sees no padding, and returns logits alone."""

    def __init__(self, model: nn.Module, pad: int) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits, `(n, classes)`."""
        return self.model(input_ids=ids, attention_mask=(ids != self.pad).long()).logits


def classifier(seed: int, *, place: Path, classes: int, pad: int) -> nn.Module:
    """Return a pre-trained model with a prediction layer whose weights are drawn."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        str(place), num_labels=classes, pad_token_id=pad, local_files_only=True
    )
    return Padded(model, pad)


def task(name: str) -> Callable[[int], Task]:
    """Return what makes a task of the paper's tables from a seed."""
    return partial(images if name in SETTINGS["images"]["sets"] else sentences, name=name)


def _labels(labels: np.ndarray) -> Tensor:
    return torch.tensor(labels, device=WHERE)  # a copy: a table's own may be read-only
