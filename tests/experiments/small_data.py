"""Small data sets and models in the formats of their makers; what the studies cut to fit them."""

import io
import json
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import tokenizers
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    PreTrainedTokenizerFast,
)

WORDS = ["good", "fine", "bad", "dull", "film", "plot", "actor", "scene", "blue", "glad"]
CUT = {
    "images": {"batch": 10, "epochs": 1, "validation": 20, "part": 16, "width": 4},
    "texts": {"batch": 8, "epochs": 1, "length": 5, "part": 10, "validation": 6},
    "glue": {"batch": 8, "epochs": 5, "length": 5, "part": 10},
    "pile": {"steps": 20, "checkpoints": 2, "batch": 4, "length": 6, "warmup": 2, "tested": 6}
    | {"learning_rate": 0.01, "max_norm": 1e3},  # steps that show in single precision
}
"""What changes of `published.toml`, for sets as small."""


class Python2(pickle._Pickler):
    """Writes as Python 2 did, which made CIFAR's: text and bytes are one; numpy's core has its old name."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_old(self, value: str | bytes) -> None:
        raw = value.encode("latin-1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_old


def write_pickle(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    file = io.BytesIO()
    Python2(file, protocol=2).dump(value)
    path.write_bytes(file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def photographs(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write sixty training images whose shade says their class, a third called something else."""
    random = np.random.default_rng(0)
    right = random.integers(0, 10, 72)
    planes = (25 * right[:, None] + random.integers(0, 10, (72, 3072))).astype(np.uint8)
    for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        part = slice(12 * k, 12 * k + 12)
        held = {b"data": planes[part], b"labels": right[part].tolist(), b"filenames": [b"a.png"] * 12}
        write_pickle(folder / "cifar-10-batches-py" / name, held)
    for name in ("train", "test"):
        held = {b"data": planes[:4], b"fine_labels": [99, 0, 5, 7], b"coarse_labels": [1, 2, 3, 4]}
        write_pickle(folder / "cifar-100-python" / name, held)
    given = np.where(np.arange(60) % 3 == 0, (right[:60] + 1) % 10, right[:60])
    torch.save({"clean_label": right[:60], "worse_label": given}, folder / "CIFAR-10_human.pt")
    return planes, right


def _tokenizer(place: Path, **special: str) -> None:
    """Write a tokenizer that knows words, in the format of a model's folder."""
    known = {word: number for number, word in enumerate([*special.values(), "unknown", *WORDS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="unknown"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(place)


def _neo(folder: Path) -> None:
    _tokenizer(folder / "gpt-neo-125m", eos_token="<|endoftext|>")
    layers = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4}
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_heads": 2, "max_position_embeddings": 8}
    GPTNeoForCausalLM(GPTNeoConfig(**layers, **sizes)).save_pretrained(folder / "gpt-neo-125m")


def _sentences(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    ends = [random.choice(WORDS[4:], 2) for _ in range(count)]
    return [f"{WORDS[2 * (1 - y)]} {a} {b}" for y, (a, b) in zip(labels, ends, strict=True)], labels


def emotions(folder: Path, ending: str = "parquet") -> None:
    """Write a BERT of one layer, and Emotion."""
    _tokenizer(folder / "bert-base-uncased", pad_token="[PAD]")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=20, max_position_embeddings=8, **sizes)
    BertForMaskedLM(config).save_pretrained(folder / "bert-base-uncased")
    (folder / "emotion").mkdir()
    for seed, (split, count) in enumerate({"train": 24, "validation": 12, "test": 12}.items()):
        table = pd.DataFrame(dict(zip(("text", "label"), _sentences(count, seed), strict=True)))
        path = folder / "emotion" / f"{split}-00000-of-00001.{ending}"
        table.to_parquet(path) if ending == "parquet" else table.to_json(path, orient="records", lines=True)


def entailments(folder: Path) -> None:
    """Write a GPT-Neo of two layers, and RTE."""
    _neo(folder)
    (folder / "GLUE" / "RTE").mkdir(parents=True)
    for seed, (split, count) in enumerate({"train": 24, "dev": 17}.items()):
        pairs = zip(*_sentences(count, seed), strict=True)
        rows = [f"{k}\t{text}\tfilm\t{'not_' * int(y)}entailment\n" for k, (text, y) in enumerate(pairs)]
        header = "index\tsentence1\tsentence2\tlabel\n"
        (folder / "GLUE" / "RTE" / f"{split}.tsv").write_text(header + "".join(rows), encoding="utf-8")


def piled(folder: Path) -> None:
    """Write a GPT-Neo of two layers, and a Pile of short texts."""
    _neo(folder)
    for seed, path in enumerate(("train/00.jsonl", "val.jsonl")):
        place = folder / "pile" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps({"text": text}) + "\n" for text in _sentences(1000, seed)[0]))


def packed(**files: bytes) -> bytes:
    """Return an archive."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return found.getvalue()
