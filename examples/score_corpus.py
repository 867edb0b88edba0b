"""Score a corpus by `datasets.map` on several processes, against a validation set that was saved once."""

import functools
import hashlib
import sys
import tempfile
from pathlib import Path

import lai_torch
import torch
from datasets import Dataset, disable_progress_bars
from sklearn.datasets import load_digits

LOSS = torch.nn.CrossEntropyLoss(reduction="none")


def network(path=None):
    """Return the model, untrained or as it lies in a file, where the processes share the cores."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    if path is not None:
        torch.set_num_threads(1)
        model.load_state_dict(torch.load(path, weights_only=True))
    return model


def prepare(folder):
    """Train a little on digits with 40% wrong labels; save model and validation set; return the corpus."""
    torch.manual_seed(0)
    pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    training, validating = torch.randperm(len(digits))[:1500].split([1200, 300])
    wrong = torch.rand(1200) < 0.4
    labels = torch.where(wrong, torch.randint(10, (1200,)), digits[training])
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(3):
        for rows in torch.randperm(1200).split(50):
            optimizer.zero_grad()
            LOSS(model(pixels[training[rows]]), labels[rows]).mean().backward()
            optimizer.step()
    torch.save(model.state_dict(), folder / "model.pt")
    validation = pixels[validating], digits[validating]
    lai_torch.Scorer(model, LOSS, validation).save(folder / "validation.safetensors")
    columns = {"pixels": pixels[training].tolist(), "label": labels.tolist()}
    return Dataset.from_dict({**columns, "wrong": wrong.tolist()})


def fingerprint(folder):
    """Return what the scores depend on, by which `datasets` knows what it has cached."""
    files = (folder / name for name in ("model.pt", "validation.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:32]


def main(processes=2):
    """Score the corpus on one process and on several; return both columns of scores."""
    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        corpus, found = prepare(Path(folder)), []
        load = functools.partial(network, Path(folder) / "model.pt")
        saved = Path(folder) / "validation.safetensors"
        scorer = lai_torch.Scorer(load, LOSS, saved, collate=("pixels", "label"))
        for count in (1, processes):
            scored = corpus.map(
                scorer,
                batched=True,
                batch_size=100,
                num_proc=count,
                new_fingerprint=f"{fingerprint(Path(folder))}{count}",
            )
            found.append(scored["score"][:])
    harmful = [wrong for wrong, score in zip(corpus["wrong"], found[0], strict=True) if score < 0]
    print(f"{len(harmful)} harmful samples, {sum(harmful) / len(harmful):.0%} of them with a wrong label")
    print(f"scores of 1 and {processes} processes are", "the same" if found[0] == found[1] else "different")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
