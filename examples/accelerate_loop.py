"""A loop of one's own under accelerate, on one process or by `accelerate launch` on many."""

import sys

import lai_torch
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits

LOSS = torch.nn.CrossEntropyLoss(reduction="none")


def main(epochs=30):
    """Train on digits with 40% wrong labels; return accuracies on clean images, without curation and with."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    training, validating, testing = torch.randperm(len(digits)).split([1200, 200, 397])
    labels = torch.where(torch.rand(1200) < 0.4, torch.randint(10, (1200,)), digits[training])
    data = torch.utils.data.TensorDataset(pixels[training], labels)
    found = []
    for warmup in (10**9, 0):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        curator = lai_torch.Curator(
            model,
            LOSS,
            optimizer,
            (pixels[validating], digits[validating]),
            refresh=5,
            warmup=warmup,
            max_norm=1.0,
        )
        for _ in range(epochs):
            for inputs, targets in loader:
                curator.step(inputs, targets)
        guessed = model(pixels[testing].to(accelerator.device)).argmax(1).cpu()
        found.append(float((guessed == digits[testing]).float().mean()))
    accelerator.print("plain {:.1%}, curated {:.1%}".format(*found))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
