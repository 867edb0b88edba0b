"""Curation in transformers' Trainer: however a batch is cut, wherever a run stops, it is the same run."""

import math
from functools import partial

import lai_torch
import pytest
import torch
from datasets import Dataset
from lai_torch.integrations.losses import next_token_losses
from lai_torch.integrations.transformers import Curated, CuratedTrainer
from transformers import Trainer

import lai_core as lai
from lai_core.mixtures import Mixture
from tests.support.workloads.launches import in_ways, launch
from tests.support.workloads.torch_processes import largest
from tests.support.workloads.trainers import (
    arguments,
    by_source,
    collate,
    language_model,
    sequences,
    train,
)
from tests.support.workloads.transformer_models import transformer

pytestmark = pytest.mark.filterwarnings("default")  # the trainer's own
BOUND = 1e-12


def made(folder, model=None, *, train_dataset=None, data_collator=collate, settings=None, **options):
    """Return a trainer of one step on noisy sequences, curated on clean ones."""
    settings = {"max_steps": 1, "save_strategy": "no"} | (settings or {})
    return CuratedTrainer(
        model or language_model(),
        arguments(str(folder), **settings),
        train_dataset=train_dataset or sequences(24, 1, noise=0.4),
        validation=sequences(24, 2),
        data_collator=data_collator,
        groups="source",
        **options,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(0, str(tmp_path_factory.mktemp("whole")))


@pytest.mark.slow
def test_processes_of_accelerate(whole, tmp_path):
    dropped, mixed = {"dropout": 0.1}, by_source(0, str(tmp_path / "mixed"))
    ways = [
        (train, each) for each in (dropped, dropped | {"resume": f"{tmp_path}/checkpoint-3"}, {"parts": 2})
    ]
    ways.append((by_source, {"parts": 2}))
    for through, resumed, (parameters, logs), drawn in launch(
        in_ways, 2, str(tmp_path), 2, *ways, timeout=300.0
    ):
        assert largest(parameters, whole[0]) <= BOUND
        kept = [line["curation/score_low"] for line in logs if "loss" in line]
        assert kept == pytest.approx([line["curation/score_low"] for line in whole[1] if "loss" in line])
        assert torch.equal(through[0], resumed[0])
        assert largest(drawn[0], mixed[0]) <= 1e-10
        assert shares_of(drawn[1]) == pytest.approx(shares_of(mixed[1]))


def test_resumed_runs_are_the_same(tmp_path):
    through, _, _ = train(0, str(tmp_path), dropout=0.1)
    resumed, _, trainer = train(0, str(tmp_path), resume=f"{tmp_path}/checkpoint-3", dropout=0.1)
    assert torch.equal(resumed, through)
    assert trainer.curator.steps == 6
    (tmp_path / "checkpoint-6" / "curation.pt").unlink()  # as a kill leaves one that is being written
    resumed, _, _ = train(0, str(tmp_path), resume=True, dropout=0.1)
    assert torch.equal(resumed, through)


def test_bare_checkpoints_are_refused(tmp_path, whole):
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(ValueError, match=r"expected one that a curated run saved, with curation\.pt"):
        whole[2].train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_a_loop_by_hand(tmp_path):
    """Plain torch, one AdamW step at a time on what a curator of its own keeps."""
    rows = sequences(48, 1, noise=0.4)
    settings = {"max_steps": 2, "data_seed": 3, "max_grad_norm": 0.0}
    trainer = made(tmp_path, train_dataset=rows, settings=settings)
    order = [batch["input_ids"] for batch in trainer.get_train_dataloader()]
    trainer.train()
    by_ids = {tuple(row["input_ids"]): row for row in rows}
    model = language_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)

    def loss(outputs, batch):
        found = torch.nn.functional.cross_entropy(
            outputs.logits[:, :-1].transpose(1, 2), batch["labels"][:, 1:], reduction="none"
        )
        return found.sum(1) / (batch["labels"][:, 1:] != -100).sum(1)

    def parts(batch):
        return {name: batch[name] for name in ("input_ids", "attention_mask")}, batch

    known = parts(collate(sequences(24, 2)))
    curator = lai_torch.Curator(model, loss, optimizer, known)
    for ids in order:
        batch = collate([by_ids[tuple(row[row > 0].tolist())] for row in ids])
        curator.step(*parts(batch))
    for found, expected in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_half_precision_scores_in_full(tmp_path):
    def scores(**options):
        trainer = made(tmp_path, language_model().float(), settings={"max_grad_norm": 0.0, **options})
        seen = []
        trainer.shown.add = seen.append
        trainer.train()
        return seen[0].scores, trainer

    plain, _ = scores()
    half, trainer = scores(bf16=True)
    assert largest(half, plain) <= 1e-5
    assert trainer.accelerator.mixed_precision == "bf16"
    assert "_original_forward" in vars(trainer.model)  # training computes under autocast still


def labelled(rows):
    return collate(rows) | {"labels": torch.tensor([row["input_ids"][0] % 3 for row in rows])}


def with_several(rows):
    """Collate sequences of which each may be of several classes."""
    classes = torch.tensor([row["input_ids"][:3] for row in rows]) % 2
    return collate(rows) | {"labels": classes.double()}


def pictured(rows):
    first = torch.tensor([row["input_ids"][:4] for row in rows])
    pictures = torch.nn.functional.one_hot(first, 64).view(-1, 1, 16, 16).expand(-1, 3, -1, -1)
    return {"pixel_values": pictures.double(), "labels": first[:, 0] % 3}


@pytest.mark.parametrize(
    ("kind", "collated", "options"),
    [
        ("BertForSequence", labelled, {}),
        ("BertForSequence", with_several, {}),
        ("ViTForImage", pictured, {"image_size": 16, "patch_size": 4}),
    ],
)
def test_classifiers_train_on_own_losses(tmp_path, kind, collated, options):
    """Where all samples are kept, as the plain trainer does."""
    curated = partial(CuratedTrainer, validation=sequences(24, 2), curation={"policy": lai.keep_all})
    settings = arguments(str(tmp_path), max_steps=2, save_strategy="no", optim="sgd")
    found = []
    for trainer in (curated, Trainer):
        torch.manual_seed(0)
        sizes = {"vocabulary": 64, "intermediate_size": 24, "num_labels": 3, "dropout": False} | options
        model = transformer(f"{kind}Classification", **sizes).double()
        trainer(model, settings, train_dataset=sequences(48, 1), data_collator=collated).train()
        found.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert largest(*found) <= BOUND


def test_evaluation_takes_new_groups(tmp_path):
    """And training does not: its reports could not name them."""
    texts = [{**row, "source": ("web", "code")[at % 2]} for at, row in enumerate(sequences(24, 1))]
    other = Dataset.from_list([{**row, "source": "new"} for row in sequences(4, 3)])
    trainer = made(tmp_path, train_dataset=Dataset.from_list(texts), eval_dataset=other)
    trainer.train()
    assert math.isfinite(trainer.evaluate()["eval_loss"])
    assert math.isfinite(trainer.predict(other).metrics["test_loss"])
    with pytest.raises(ValueError, match="groups: expected one of 'code', 'web', got 'new'"):
        trainer.data_collator([other[0]])


def shares_of(logs):
    return [line["curation/share/0"] for line in logs if "curation/share/0" in line]


def test_mixtures_resume_within_an_epoch(tmp_path):
    through, logs, run = by_source(0, str(tmp_path), dropout=0.1)
    assert shares_of(logs)[0] == 0.5 < shares_of(logs)[-1]
    assert 6 % run._mixing.sampler.batches  # the checkpoint is in the middle of one
    resumed, _, _ = by_source(0, str(tmp_path), resume=f"{tmp_path}/checkpoint-6", dropout=0.1)
    assert torch.equal(resumed, through)


@pytest.mark.slow
def test_sources_that_are_text(tmp_path):
    numbers, logs, _ = by_source(0, str(tmp_path / "numbers"))
    names = {"names": ["web", "code", "good"], "fixed": {"good": 4}}
    named, lines, _ = by_source(0, str(tmp_path), mixture=Mixture({"web": 1.0, "code": 1.0}), **names)
    assert torch.equal(named, numbers)
    assert [line["curation/share/web"] for line in lines if "curation/share/web" in line] == shares_of(logs)
    assert any("curation/dropped/good" in line for line in lines)


def test_uncalled_losses_are_refused(tmp_path):
    class Penalised(Trainer):
        def compute_loss(self, *arguments, **options):
            return 2 * super().compute_loss(*arguments, **options)

    class CuratedPenalised(Curated, Penalised):
        pass

    given = {"validation": sequences(24, 2), "train_dataset": sequences(24, 1), "data_collator": collate}
    with pytest.raises(ValueError, match=r"^compute_loss: expected the library's own, got that of Penalised"):
        CuratedPenalised(language_model(), arguments(str(tmp_path)), **given)
    CuratedPenalised(language_model(), arguments(str(tmp_path)), sample_loss=next_token_losses, **given)


def test_labels_of_another_name(tmp_path):
    def renamed(rows):
        batch = collate(rows)
        return batch | {"answers": batch.pop("labels")}

    def loss(outputs, batch):
        return next_token_losses(outputs, {"labels": batch["answers"]})

    def trainer(**options):
        return made(tmp_path, data_collator=renamed, settings={"label_names": ["answers"]}, **options)

    curated = trainer(sample_loss=loss)
    curated.train()
    assert curated.curator.validation[0].keys() == {"input_ids", "attention_mask"}
    with pytest.raises(ValueError, match="batch: expected an entry 'labels', got"):
        trainer().train()
