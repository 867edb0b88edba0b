"""Mistakes with a curator: what it is made of, what a step is given, what it resumes from."""

import copy
import functools
import math

import lai_torch
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import TensorDataset

import lai_core as lai
from tests.lai_torch.support import LOSS, data, network, sgd

SINGLE = torch.randn(4, 4), torch.arange(4) % 3


def made(validation=None, *, model=None, loss=LOSS, optimizer=sgd, **options):
    model = network() if model is None else model
    optimizer = optimizer(model) if optimizer is sgd else optimizer
    return lai_torch.Curator(model, loss, optimizer, data(3) if validation is None else validation, **options)


def stepped(validation=None, **options):
    return made(validation, **options).step(*data(4))


def summarized(positions="tokens"):
    return lai.summarize(lai_torch.trace(network(), LOSS, *data(3)), "lai", positions=positions)


def resumed(changed):
    """Load the state of a curator of the same kind, changed by a function."""
    curator = made()
    curator.load_state_dict(changed(curator.state_dict()))


def unbounded(estimator):
    inputs, targets = data(4)
    inputs[:, 0] = math.inf
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    stepped((inputs, targets), model=model, estimator=estimator)


def frozen(estimator):
    model = network()
    curator = made(model=model, estimator=estimator)
    model.requires_grad_(False)
    return curator


FROZEN_HEAD = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3).requires_grad_(False)).double()
ONE_OF = "expected one that holds parameters of the model"
MADE = {
    f"ValueError: optimizer: {ONE_OF}, got one that holds none": lambda: made(optimizer=sgd(network())),
    "ValueError: optimizer: expected one that steps on gradients, got LBFGS, which needs a closure": (
        lambda: lai_torch.Curator(m := network(), LOSS, torch.optim.LBFGS(m.parameters()), data(3))
    ),
    "ValueError: …needs the optimizer's learning rates, got None": (
        lambda: made(optimizer=None, estimator="midpoint")
    ),
    "ValueError: optimizer: expected an optimizer to step with, got None": lambda: stepped(optimizer=None),
    "TypeError: model: expected a torch.nn.Module, got": lambda: made(model=abs, optimizer=None),
    "TypeError: loss: expected a function loss(outputs, targets)": lambda: made(loss="mse"),
    "TypeError: policy: …got keep_top (missing a required argument: 'frac": lambda: made(policy=lai.keep_top),
    "TypeError: policy: …got keep_positive …; give it the rest, such as the sizes of the parts, as": (
        lambda: made(estimator=lai_torch.LAI(parts=3), policy=lai_torch.Scheduled(lai.keep_positive, bool))
    ),
    "ValueError: …the policy asks for the losses of a validation set": (
        lambda: made(summarized(), policy=lai_torch.KeepBelowLoss(0.9))
    ),
    "TypeError: validation: expected (inputs, targets), a mapping, a loader of such": (
        lambda: made(torch.ones(3))
    ),
    "ValueError: inputs: expected a mapping with keys that the model takes, ['input'], got": (
        lambda: made().step(dict(zip("xy", data(4), strict=True)))
    ),
    "TypeError: validation: …got TensorDataset; of a data set pass torch.utils.data.DataLoader(dataset": (
        lambda: made(TensorDataset(*data(5)))
    ),
    "TypeError: validation: …got (ndarray, ndarray); pass torch.as_tensor": (
        lambda: made(tuple(one.numpy() for one in data(5)))
    ),
    "TypeError: validation: …got tuple; pass one whose collate_fn returns such": (
        lambda: stepped(iter([(*data(4), 1)]))
    ),
    "ValueError: validation: expected at least one batch from the loader, got none": lambda: stepped([]),
    "ValueError: validation: expected at least one sample with a finite loss, got none": (
        lambda: stepped((math.nan * data(4)[0], data(4)[1]))
    ),
    "ValueError: validation: expected finite activations and gradients of each sample with": [
        functools.partial(unbounded, estimator) for estimator in ("lai", "ghost", "gate_lai")
    ],
    "ValueError: …cannot leave a sample out of its own score": lambda: made("batch", estimator="exact"),
    "ValueError: validation_fraction: expected a fraction in (0, 1], got 0.0": lambda: made(
        validation_fraction=0.0
    ),
    "ValueError: validation_fraction: expected 1.0 unless validation is (inputs, targets)": (
        lambda: made([data(3)], validation_fraction=0.5)
    ),
    "ValueError: max_norm: expected a finite number > 0.0, got 0.0": lambda: made(max_norm=0.0),
    "ValueError: backward: 'selective' expects one of 'lai', 'lli'": (
        lambda: made(backward="selective", estimator="ghost")
    ),
    "ValueError: …autocast: 'whole' trains on the pass that is scored": (
        lambda: made(backward="whole", estimator=lai_torch.LAI(autocast=torch.bfloat16))
    ),
    "ValueError: chunk: backward='whole' runs the whole batch at once": (
        lambda: made(estimator=lai_torch.LAI(chunk=3), backward="whole")
    ),
    "ValueError: parts: expected a validation set to cut, got 'batch'": (
        lambda: made("batch", estimator=lai_torch.LAI(parts=2))
    ),
    "ValueError: estimator: …got 'LAI'; did you mean 'lai'?": lambda: made(estimator="LAI"),
    "ValueError: …estimator 'exact' has no ValidationSummary": lambda: made(summarized(), estimator="exact"),
    "ValueError: …'calibrated_lai' is calibrated on validation samples; pass": (
        lambda: made("batch", estimator="calibrated_lai")
    ),
    "ValueError: validation: expected a summary for 'ghost', got one for 'lai'": (
        lambda: made(summarized(), estimator="ghost")
    ),
    "ValueError: positions: expected 'mean', how the summary reads them, got 'tok": (
        lambda: made(summarized("mean"), estimator=lai_torch.LAI(positions="tokens"))
    ),
    "ValueError: sketch: expected a validation set to sketch, got a Validation": (
        lambda: made(summarized(), estimator=lai_torch.LAI(sketch=2))
    ),
    "ValueError: …sketch: expected at most the last layer's 3 outputs, got 7": (
        lambda: stepped(estimator=lai_torch.LAI(sketch=7))
    ),
    "TypeError: optimizer: expected a torch.optim.Optimizer, got the class SGD; make one, such as": (
        lambda: made(optimizer=torch.optim.SGD)
    ),
    "TypeError: generator: expected a torch.Generator on the CPU": lambda: made(generator=3),
    "TypeError: policy: expected a function such as lai_core.keep_positive, got 'keep_positive'": (
        lambda: made(policy="keep_positive")
    ),
    "TypeError: policy: …got the class GroupFloor; call it": lambda: made(policy=lai_torch.GroupFloor),
    "TypeError: estimator: …got the class LAI; call it": lambda: made(estimator=lai_torch.LAI),
    "ValueError: state: expected a whole number of 'steps', 0 or more, got -1": (
        lambda: resumed(lambda state: state | {"steps": -1})
    ),
}

OPTIONS = {
    "ValueError: autocast: expected torch.bfloat16 or None": [
        lambda wrong=wrong: lai_torch.LAI(autocast=wrong) for wrong in (torch.float16, "bfloat16", True)
    ],
    "TypeError: valid: expected a function from a batch's inputs": lambda: lai_torch.LAI(
        valid=torch.ones(6, 4)
    ),
    "TypeError: autocast: expected a floating-point type": lambda: lai_torch.KeptOptions(autocast="bfloat16"),
}

GIVEN = {
    "ValueError: …GroupFloor expects them with every batch": (
        lambda: stepped(policy=lai_torch.GroupFloor(0.5, lai.keep_positive))
    ),
    "ValueError: auxiliary: expected a floating-point tensor of shape (": (
        lambda: stepped(backward=lai_torch.KeptOptions(auxiliary=lambda outputs, _: outputs))
    ),
    "ValueError: …more than 1 value per channel": (
        lambda: made(model=network(nn.BatchNorm1d(8)), warmup=1).step(*data(1))
    ),
    "ValueError: …'calibrated_lai' expects layers whose weight is a parameter, '1": (
        lambda: made(model=network(weight_norm(nn.Linear(8, 8))), estimator="calibrated_lai").score(*data(4))
    ),
    "ValueError: batches: expected at least one": lambda: made().weigh([]),
    "TypeError: groups: expected a tensor for each batch, a list of text for each, or none at all, got": (
        lambda: made().weigh([data(2), data(2)], groups=[torch.arange(2), ["a", "b"]])
    ),
    "ValueError: groups: expected those of each batch (2), got 1": (
        lambda: made().weigh([data(4), data(4)], groups=[torch.arange(4)])
    ),
    "ValueError: …reads an optimizer step in one part, got 2 micro-batches": (
        lambda: made("batch").weigh([data(4), data(4)])
    ),
    "TypeError: curator: expected no copy of one, …hand over state_dict()": lambda: copy.deepcopy(made()),
    "ValueError: model: expected at least one trainable parameter to step": (
        lambda: frozen("ghost").step(*data(4))
    ),
    "ValueError: model: expected the loss to depend on a trainable": (
        lambda: frozen("ghost").score(*data(4))
    ),
    "ValueError: …'lli' reads the last layer alone, '1', so that every score": (
        lambda: stepped(model=FROZEN_HEAD, estimator="lli")
    ),
    "ValueError: state: expected what state_dict of a curator returned, got one without 'routed'": (
        lambda: resumed(lambda state: {name: state[name] for name in state if name != "routed"})
    ),
    "ValueError: state: expected that of a curator with estimator 'lai', got": (
        lambda: resumed(lambda _: made(estimator="ghost").state_dict())
    ),
}


def weighing(policy):
    return lambda: stepped(policy=policy)


def under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        made(SINGLE, backward="whole", model=network().float()).step(*SINGLE)


def while_accelerate_accumulates():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(model := network(), sgd(model))
    curator = made(model=model, optimizer=optimizer)
    with accelerator.accumulate(model):
        curator.step(*data(6))


STEPPED = {
    "ValueError: …inside accelerator.accumulate(), where it does not at every batch; …Curator(accumulate=)": (
        while_accelerate_accumulates
    ),
    "ValueError: …'whole' …autocast lose three digits": under_autocast,
    "TypeError: …expected weights as a floating-point tensor, got torch.bool": weighing(lambda s: s > 0),
    "TypeError: …one per sample, got list": weighing(lambda s: s.tolist()),
    "ValueError: …tensor of shape (4,), got (3,)": weighing(lambda s: s[:3]),
    "ValueError: …finite and not negative, got -1": weighing(lambda s: -torch.ones_like(s)),
    "TypeError: groups: expected a tensor of whole numbers": lambda: made().step(*data(4), groups=[0] * 4),
    "TypeError: groups: expected whole numbers": lambda: made().step(*data(4), groups=torch.ones(4)),
    "ValueError: groups: expected shape (4,), got (2,)": lambda: made().step(*data(4), groups=torch.ones(2)),
    "ValueError: ids: expected one per sample (4), got 3": lambda: made().step(*data(4), ids="abc"),
}
MESSAGES = MADE | OPTIONS | GIVEN | STEPPED
