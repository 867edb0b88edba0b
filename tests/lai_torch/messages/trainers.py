"""Mistakes with trainers, samplers and streams over sources: options, sets and losses that do not fit."""

import lai_torch
import torch
from datasets import Dataset
from lai_torch.integrations.lightning import Curation
from lai_torch.integrations.transformers import CuratedTrainer

from lai_core.mixtures import Mixture
from tests.lai_torch.support import LOSS, data, network
from tests.support.workloads.trainers import arguments, collate, language_model, sequences
from tests.support.workloads.transformer_models import transformer

HELD = data(3)


def trainer(settings=None, validation=None, model=None, **options):
    made = {"model": model or language_model(), "args": arguments("trained", **(settings or {}))}
    return CuratedTrainer(**made, validation=sequences(3, 2) if validation is None else validation, **options)


def without_sources():
    made = Curation(LOSS, HELD, sampler=SAMPLER)
    made.curator = lai_torch.Weigher(network(), LOSS, HELD)
    made.objective(data(4))


STREAM = Dataset.from_list(sequences(3, 1)).to_iterable_dataset()
SAMPLER = lai_torch.MixtureSampler([0, 1], Mixture(2), 2)
TRAINERS = {
    "ValueError: …one of the eval_dataset's, ['clean'], got 'clear'": (
        lambda: trainer(validation="clear", eval_dataset={"clean": sequences(3, 2)})
    ),
    "TypeError: backward: expected KeptOptions(auxiliary=...) alone, …got KeptOptions(autocast=": (
        lambda: Curation(LOSS, HELD, backward=lai_torch.KeptOptions(scaler=torch.amp.GradScaler("cpu")))
    ),
    "ValueError: validation: expected a data set, since eval_dataset is no dictionary, got 'clean'": (
        lambda: trainer(validation="clean", eval_dataset=sequences(3, 2))
    ),
    "ValueError: validation: expected at least one sample, got none": lambda: trainer(validation=[]),
    "ValueError: trainer: expected one that trains on whole batches, got CuratedTrainer": (
        lambda: lai_torch.SpikeMonitor(language_model(), LOSS).attach(trainer())
    ),
    "TypeError: validation: expected the data set that samples are to help, …got NoneType; hold one out": (
        lambda: CuratedTrainer(language_model(), arguments("trained"), eval_dataset={"a": sequences(3, 2)})
    ),
    "ValueError: compute_loss_func: expected None, got <function": (
        lambda: trainer(compute_loss_func=lambda *_: None)
    ),
    "ValueError: label_smoothing_factor: expected 0, got 0.1": lambda: trainer(
        {"label_smoothing_factor": 0.1}
    ),
    "TypeError: sampler: expected one whose weights are a Mixture, got list": (
        lambda: Curation(LOSS, HELD, sampler=lai_torch.MixtureSampler([0, 1], [1, 1], 2))
    ),
    "ValueError: sampler: expected a checkpoint of a run with one, got one without; leave sampler out": (
        lambda: Curation(LOSS, HELD, sampler=SAMPLER).load_state_dict({})
    ),
    "ValueError: groups: expected the source of each sample, as a sampler is given": without_sources,
    "ValueError: sample_loss: expected one for a BertForSequenceClassification": (
        lambda: trainer(
            model=transformer("BertForSequenceClassification", intermediate_size=24, num_labels=1)
        )
    ),
    "ValueError: groups: expected every batch to have an entry 'source', got": (
        lambda: trainer(groups="source", data_collator=collate, train_dataset=[{"input_ids": [1, 2]}]).train()
    ),
    "ValueError: groups: expected the name of the entry that says a sample's source": (
        lambda: trainer(mixture=Mixture(2), train_dataset=sequences(3, 1))
    ),
    "TypeError: mixture: expected a train_dataset with a length, got Iter": (
        lambda: trainer(groups="source", mixture=Mixture(2), train_dataset=STREAM)
    ),
    "RuntimeError: …expected to be a callback of the trainer that fits": (
        lambda: Curation(LOSS, data(5)).objective(data(4))
    ),
}


DRAWN = [0, 0, 0, 1, 1, 1, 1, 2, 2, 0, 1, 2]


def sampler(groups=DRAWN, weights=(1, 1, 1), size=4, **options):
    return lambda: lai_torch.MixtureSampler(groups, list(weights), size, **options)


def stream(*sources, **options):
    return lambda: next(iter(lai_torch.MixtureStream([*sources], [1] * len(sources), 4, **options)))


ITERABLE = "expected an iterable that can begin again, or a function that returns one, got"
SOURCES = {
    "ValueError: groups: expected shape (n,), one source a sample, got (0,)": sampler([], [1]),
    "TypeError: groups: expected whole numbers, got torch.float32": sampler([0.0, 1.0], [1, 1]),
    "ValueError: groups: expected numbers from 0, got -1": sampler([0, -1], [1, 1]),
    "TypeError: sources: expected a list of streams in the order of": (
        lambda: lai_torch.MixtureStream({"web": ["a"]}, [1], 4)
    ),
    f"TypeError: sources[1]: {ITERABLE} generator": stream([1], (k for k in range(3))),
    "ValueError: sources[0]: expected an item at least, each time it is iterated, got none": stream([]),
    "ValueError: source: expected a key that items do not have, got 'x'": stream([{"x": 1}], source="x"),
}
MESSAGES = TRAINERS | SOURCES
