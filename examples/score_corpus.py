"""Score a corpus by `datasets.map` on several processes, against a validation summary that was saved once."""

import hashlib
import sys
import tempfile
from pathlib import Path

import lai_torch
import torch
from datasets import Dataset, disable_progress_bars
from sklearn.datasets import load_digits

import lai_core as lai
from lai_core import storage

LOSS = torch.nn.CrossEntropyLoss(reduction="none")


def network():
    """Return the model, untrained."""
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


class Scorer:
    """Adds scores and losses to a batch of rows. It travels as a path; each process loads what lies there."""

    def __init__(self, folder):
        self.folder, self.curator = Path(folder), None

    def __getstate__(self):
        """Leave the curator behind: every process makes its own."""
        return {"folder": self.folder, "curator": None}

    def __call__(self, rows):
        """Return the new columns."""
        if self.curator is None:
            torch.set_num_threads(1)  # the processes share the cores
            model = network()
            model.load_state_dict(torch.load(self.folder / "model.pt", weights_only=True))
            summary = storage.load(self.folder / "validation.safetensors", asarray=torch.asarray)
            self.curator = lai_torch.Curator(model, LOSS, None, summary)
        _, report = self.curator.score(torch.tensor(rows["pixels"]), torch.tensor(rows["label"]))
        return {"score": report.scores.tolist(), "loss": report.losses.tolist()}


def prepare(folder):
    """Train a little on digits with 40% wrong labels; save model and summary; return the corpus."""
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
    traced = lai_torch.trace(model, LOSS, pixels[validating], digits[validating])
    storage.save(folder / "validation.safetensors", lai.summarize(traced, "lai"))
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
        corpus = prepare(Path(folder))
        found = []
        for count in (1, processes):
            scored = corpus.map(
                Scorer(folder),
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
