"""Mistakes with the trainers: options that a trainer has by another name, sets and losses that do not fit."""

import lai_torch
import torch
from lai_torch.integrations._options import check_own_keywords, curator_options
from lai_torch.integrations.lightning import Curation
from lai_torch.integrations.transformers import CuratedTrainer

import lai_core as lai
from lai_core.mixtures import Mixture
from tests.lai_torch.support import LOSS, data, network
from workloads.trainers import arguments, language_model, sequences

HELD = data(3)


def curation(**options):
    return curator_options("CuratedTrainer", options)


def trainer(settings=None, validation=None, **options):
    made = {"model": language_model(), "args": arguments("trained", **(settings or {}))}
    return CuratedTrainer(**made, validation=sequences(3, 2) if validation is None else validation, **options)


def without_sources():
    made = Curation(LOSS, HELD, sampler=SAMPLER)
    made.curator = lai_torch.Curator(network(), LOSS, None, HELD)
    made.objective(data(4))


SAMPLER = lai_torch.MixtureSampler([0, 1], Mixture(2), 2)
KEYWORD = "the trainer got an unexpected keyword argument"
MESSAGES = {
    "ValueError: …no max_norm in curation, …pass TrainingArguments(max_grad_norm=": (
        lambda: curation(max_norm=0.5)
    ),
    "ValueError: …pass TrainingArguments(gradient_accumulation_steps=": lambda: curation(accumulate=2),
    "ValueError: …no backward in curation, got backward='whole'": lambda: curation(backward="whole"),
    "ValueError: …fp16=True": (lambda: curation(backward=lai_torch.Kept(scaler=torch.amp.GradScaler("cpu")))),
    "TypeError: …it belongs to estimator=lai_torch.LAI(positions=": lambda: curation(positions="mean"),
    "TypeError: …it belongs to TrainingArguments(max_grad_norm=": lambda: curation(max_grad_norm=1),
    "TypeError: …loss: expected none in curation, …pass sample_loss=": lambda: curation(loss=LOSS),
    "TypeError: policy: …keep_top (missing a required argument": lambda: curation(policy=lai.keep_top),
    "ValueError: refresh: expected a whole number, 1 or more, got 0": lambda: curation(refresh=0),
    "ValueError: …'midpoint' needs the optimizer's learning rates": lambda: curation(estimator="midpoint"),
    "TypeError: …pass curation={'estimator': ...}": lambda: check_own_keywords({"estimator": "lai"}),
    "TypeError: …'max_norm'; pass TrainingArguments(max_grad_norm=": (
        lambda: check_own_keywords({"max_norm": 1.0})
    ),
    "TypeError: …'lr'; it belongs to the optimizer": lambda: check_own_keywords({"lr": 1.0}),
    "TypeError: curation: expected a mapping of options": lambda: curator_options("CuratedTrainer", ["lai"]),
    "ValueError: …Trainer(gradient_clip_val=": lambda: Curation(LOSS, HELD, group=None, max_norm=1.0),
    "ValueError: …it takes the trainer's processes": lambda: Curation(LOSS, HELD, group=False),
    "TypeError: …it belongs to …LAI(positions=": lambda: Curation(LOSS, HELD, postions="mean"),
    "TypeError: validation: expected (inputs, targets), …got int": lambda: Curation(LOSS, 3),
    "ValueError: …one of the eval_dataset's, ['clean'], got 'clear'": (
        lambda: trainer(validation="clear", eval_dataset={"clean": sequences(3, 2)})
    ),
    "TypeError: validation: expected the data set that samples are to help, …got NoneType; hold one out": (
        lambda: CuratedTrainer(language_model(), arguments("trained"), eval_dataset={"a": sequences(3, 2)})
    ),
    "ValueError: …pass TrainingArguments(max_grad_norm=": lambda: trainer(curation={"max_norm": 1.0}),
    f"TypeError: {KEYWORD} 'max_norm'; pass TrainingArguments(max_grad_norm=": lambda: trainer(max_norm=1.0),
    f"TypeError: {KEYWORD} 'estimator'; pass curation=": lambda: trainer(estimator="lai"),
    "ValueError: gradient_accumulation_steps: expected 1 with 'preconditioned_lai', …got 2": (
        lambda: trainer({"gradient_accumulation_steps": 2}, curation={"estimator": "preconditioned_lai"})
    ),
    "ValueError: compute_loss_func: expected None, got <function": (
        lambda: trainer(compute_loss_func=lambda *_: None)
    ),
    "ValueError: label_smoothing_factor: expected 0, got 0.1": lambda: trainer(
        {"label_smoothing_factor": 0.1}
    ),
    "TypeError: sampler: expected a MixtureSampler or a MixtureStream, got Mixture": (
        lambda: Curation(LOSS, HELD, sampler=Mixture(2))
    ),
    "TypeError: sampler: expected one whose weights are a Mixture, got list": (
        lambda: Curation(LOSS, HELD, sampler=lai_torch.MixtureSampler([0, 1], [1, 1], 2))
    ),
    "ValueError: sampler: expected a checkpoint of a run with one, got one without; leave sampler out": (
        lambda: Curation(LOSS, HELD, sampler=SAMPLER).load_state_dict({})
    ),
    "ValueError: groups: expected the source of each sample, as a sampler is given": without_sources,
    "RuntimeError: …expected to be a callback of the trainer that fits": (
        lambda: Curation(LOSS, data(5)).objective(data(4))
    ),
}
