"""A whole run on 40% wrong labels: schedule, clipping, bfloat16, compile, checkpoints, TensorBoard."""

import sys
import tempfile
from pathlib import Path

import lai_torch
import torch
from sklearn.datasets import load_digits

LOSS = torch.nn.CrossEntropyLoss(reduction="none")  # one number a sample
BATCH, SAMPLES = 60, 1200


def digits(seed=0):
    """Return a training set with wrong labels, a clean validation set, and a test set."""
    torch.manual_seed(seed)
    pixels, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    training, validation, test = torch.randperm(len(labels)).split([SAMPLES, 200, 397])
    given = torch.where(torch.rand(SAMPLES) < 0.4, torch.randint(10, (SAMPLES,)), labels[training])
    return (pixels[training], given), *((pixels[rows], labels[rows]) for rows in (validation, test))


class Perceptron(torch.nn.Module):
    """A hidden layer of 128 units; torch compiles no bare `Sequential`."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

    def forward(self, pixels):
        return self.layers(pixels)


def train(checkpoint, log, epochs=20, total=20, **options):
    """Train up to an epoch, from the checkpoint where there is one; return the accuracy on the test set.

    `log(name, value, step)` is a SummaryWriter's `add_scalar`; `total` is the schedule's number of epochs.
    """
    training, validation, test = digits()
    torch.manual_seed(1)
    model = Perceptron()
    model.compile(backend="inductor" if torch.cuda.is_available() else "aot_eager")  # needs no C++ compiler
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=total * SAMPLES // BATCH)
    curator = lai_torch.Curator(
        model,
        LOSS,
        optimizer,
        validation,
        estimator="lai",
        refresh=5,  # trace the validation set every fifth step
        max_norm=1.0,  # clip the update's gradient
        backward=lai_torch.KeptOptions(autocast=torch.bfloat16),  # train in bfloat16, score in float32
        **options,
    )
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "curator": curator}
    begun = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        begun = saved.pop("epoch")
        for name, state in saved.items():
            parts[name].load_state_dict(state)
    for epoch in range(begun, epochs):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(BATCH):
            report = curator.step(training[0][rows], training[1][rows])
            scheduler.step()
            for name, value in report.metrics().items():
                log(name, value, report.step)
        model.eval()
        with torch.no_grad():
            accuracy = float((model(test[0]).argmax(1) == test[1]).float().mean())
        model.train()
        log("test/accuracy", accuracy, report.step)
        states = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"epoch": epoch + 1, **states}, checkpoint)
    return accuracy


def main(epochs=20):
    """Train without curation and with; return both accuracies on clean images."""
    with tempfile.TemporaryDirectory() as folder:
        plain = train(Path(folder, "plain.pt"), lambda *_: None, epochs, epochs, warmup=10**9)
        curated = train(Path(folder, "curated.pt"), lambda *_: None, epochs, epochs)
    print(f"plain {plain:.1%}, curated {curated:.1%}")
    return plain, curated


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
