"""Digits with 40% wrong labels in Lightning, by a callback and automatic optimization."""

import sys
import warnings

import lightning.pytorch as pl
import torch
from lai_torch.integrations.lightning import Curation
from sklearn.datasets import load_digits

LOSS = torch.nn.CrossEntropyLoss(reduction="none")


class Digits(pl.LightningModule):
    """Two layers; everything about curation is in the callback."""

    def __init__(self, curation):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.curation = curation

    def forward(self, inputs):
        return self.net(inputs)

    def training_step(self, batch, index):
        return self.curation.objective(batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def main(epochs=30):
    """Train, and return accuracies on clean images, with and without curation."""
    warnings.filterwarnings("ignore", module="lightning")
    torch.manual_seed(0)
    pixels, digits = (torch.tensor(part) for part in load_digits(return_X_y=True))
    pixels = (pixels / 16).float()
    training, validating, testing = torch.randperm(len(digits)).split([1200, 200, 397])
    labels = torch.where(torch.rand(1200) < 0.4, torch.randint(10, (1200,)), digits[training])
    data = torch.utils.data.TensorDataset(pixels[training], labels)
    found = []
    for warmup in (10**9, 0):
        torch.manual_seed(1)
        curation = Curation(LOSS, (pixels[validating], digits[validating]), refresh=5, warmup=warmup)
        module = Digits(curation)
        trainer = pl.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            callbacks=[curation],
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
        )
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=64, shuffle=True))
        found.append(float((module(pixels[testing]).argmax(1) == digits[testing]).float().mean()))
    print("plain {:.1%}, curated {:.1%}".format(*found))
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
