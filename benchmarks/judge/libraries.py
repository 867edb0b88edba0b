"""What each library says of a case, asked as its documentation asks.

An adapter returns `(n, n)`, the inner products of the samples' gradients, and the names of the parameters
that the library says it explains.
It imports its library itself: the others run without.
"""

import logging
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import lai_torch
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.judge.zoo import CASES, COUPLED, Case, N, read

Answer = tuple[Tensor, Iterable[str]]


class ExplainsNoneError(Exception):
    """A library gave no gradient of any parameter, and said so by giving none."""


def ask_lai_torch(case: Case) -> Answer:
    """Ask for all trainable parameters."""
    batch = case.inputs, case.targets
    return lai_torch.per_sample_inner_products(case.model, case.losses, batch, batch), case.trainable


def ask_torch_func(case: Case) -> Answer:
    """Ask for `vmap(grad(loss))`, as torch's tutorial of per-sample gradients does."""

    def loss(parameters: dict[str, Tensor], sample: Tensor, target: Tensor) -> Tensor:
        outputs = functional_call(case.model, (parameters, frozen), (sample[None],))
        return case.losses(outputs, target[None]).sum()

    named = {name: parameter.detach() for name, parameter in case.trainable.items()}
    frozen = {name: p for name, p in case.model.named_parameters() if not p.requires_grad}
    frozen |= dict(case.model.named_buffers())
    return products(vmap(grad(loss), in_dims=(None, 0, 0))(named, case.inputs, case.targets)), named


def ask_opacus(case: Case) -> Answer:
    """Ask as `PrivacyEngine` does: validate, and read gradients by its optimizer, which misses none."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator

    ModuleValidator.validate(case.model, strict=True)
    wrapped = GradSampleModule(case.model, loss_reduction="sum")
    step = torch.optim.SGD([*case.trainable.values()], lr=1.0)
    optimizer = DPOptimizer(step, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=N)
    case.losses(wrapped(case.inputs), case.targets).sum().backward()
    return products(dict(zip(case.trainable, optimizer.grad_samples, strict=True))), case.trainable


def ask_backpack(case: Case) -> Answer:
    """Ask for `grad_batch`, which is missing where there is none; in float32, as its embedding requires."""
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad

    inputs = case.inputs.float() if case.inputs.is_floating_point() else case.inputs
    case = Case(case.model.float(), inputs, case.targets)
    model, loss = extend(case.model), extend(nn.CrossEntropyLoss(reduction="sum"))
    with backpack(BatchGrad()):
        loss(read(model(case.inputs)), case.targets).backward()
    found = {name: p.grad_batch for name, p in case.trainable.items() if hasattr(p, "grad_batch")}
    return products(found), found


def ask_captum(case: Case) -> Answer:
    """Ask for `TracInCP` over all layers."""
    from captum.influence import TracInCP

    frozen = any(not p.requires_grad for p in case.model.parameters())
    layers = list(holders_of(case, nn.Module)) if frozen else None
    found = TracInCP(case.model, *checkpoint_of(case), layers, loss_fn=case.losses, batch_size=N)
    return found.influence((case.inputs, case.targets)), case.trainable


def ask_kronfluence(case: Case) -> Answer:
    """Ask for pairwise scores without a Hessian, over the linear layers and convolutions that train."""
    from kronfluence import Analyzer, FactorArguments, ScoreArguments, Task, prepare_model

    layers = holders_of(case, nn.Linear, nn.Conv2d)

    class Summed(Task):
        def compute_train_loss(self, batch: Any, model: nn.Module, sample: bool = False) -> Tensor:
            return case.losses(model(batch[0]), batch[1]).sum()

        def compute_measurement(self, batch: Any, model: nn.Module) -> Tensor:
            return self.compute_train_loss(batch, model)

        def get_influence_tracked_modules(self) -> list[str]:
            return [*layers]

    task, data, kind = Summed(), TensorDataset(case.inputs, case.targets), next(case.model.parameters()).dtype
    kinds = dict.fromkeys(("score_dtype", "per_sample_gradient_dtype", "precondition_dtype"), kind)
    with tempfile.TemporaryDirectory() as folder:
        options = {"cpu": True, "log_level": logging.ERROR, "disable_tqdm": True, "output_dir": folder}
        analyzer = Analyzer("judged", prepare_model(case.model, task), task, **options)
        analyzer.fit_all_factors(
            "none", data, factor_args=FactorArguments(strategy="identity", has_shared_parameters=True)
        )
        analyzer.compute_pairwise_scores(
            *("inner", "none", data, data),
            per_device_query_batch_size=N,
            per_device_train_batch_size=N,
            score_args=ScoreArguments(damping_factor=0.0, **kinds),
        )
        return analyzer.load_pairwise_scores("inner")["all_modules"], names_of(case, layers.values())


def ask_dattri(case: Case) -> Answer:
    """Ask for TracIn at one checkpoint of weight 1, without its default random projection."""
    from dattri.algorithm.tracin import TracInAttributor
    from dattri.task import AttributionTask

    def loss(parameters: dict[str, Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        outputs = functional_call(case.model, parameters, (batch[0][None],))
        return case.losses(outputs, batch[1][None]).sum()

    task = AttributionTask(loss_func=loss, model=case.model, checkpoints=case.model.state_dict())
    loader = DataLoader(TensorDataset(case.inputs, case.targets), batch_size=N)
    attributor = TracInAttributor(task=task, weight_list=torch.ones(1), normalized_grad=False)
    attributor.projector_kwargs = None
    return attributor.attribute(loader, loader), case.trainable


def ask_dattri_llm(case: Case) -> Answer:
    """Ask for the inner products of the layers that have gradients by sample."""
    from dattri_llm import REGISTER_ALL, HookManager, HookManagerCallback, HookManagerConfig

    class Kept(HookManagerCallback):
        gradient: Any = None

        def on_step_end(self, record: Any) -> None:
            self.gradient = record.gradient

    kept = Kept()
    config = HookManagerConfig(linear_io=REGISTER_ALL)
    with HookManager(case.model, config=config, callbacks=[kept]).collect(deregister_on_exit=True):
        case.losses(case.model(case.inputs), case.targets).sum().backward()
    if kept.gradient is None:
        raise ExplainsNoneError
    layers = kept.gradient.similarity(kept.gradient)
    modules = [case.model.get_submodule(name.partition("@")[0]) for name in layers]  # "@2": its second call
    return sum(layers.values()), names_of(case, modules)


def products(rows: dict[str, Tensor]) -> Tensor:
    if not rows:
        raise ExplainsNoneError
    whole = torch.cat([part.flatten(1) for part in rows.values()], 1)
    return whole @ whole.T


def holders_of(case: Case, *kinds: type[nn.Module]) -> dict[str, Any]:
    """Return the modules of these kinds, not derived from them, that hold a parameter that trains."""
    return {
        name: module
        for name, module in case.model.named_modules()
        if (type(module) in kinds or nn.Module in kinds)
        and any(parameter.requires_grad for parameter in module.parameters(recurse=False))
    }


def names_of(case: Case, modules: Iterable[nn.Module]) -> list[str]:
    """Return the parameters that modules hold themselves, by the model's names."""
    held = {id(parameter) for module in modules for parameter in module.parameters(recurse=False)}
    return [name for name, parameter in case.trainable.items() if id(parameter) in held]


def checkpoint_of(case: Case) -> tuple[Any, ...]:
    """Return what captum takes of a run: its data, its one checkpoint, and how to load it."""

    def load(model: nn.Module, state: dict[str, Tensor]) -> float:
        model.load_state_dict(state)
        return 1.0

    return TensorDataset(case.inputs, case.targets), [case.model.state_dict()], load


@dataclass(frozen=True)
class Library:
    """A library: how it is asked, and what its documentation says it is for."""

    ask: Callable[[Case], Answer]
    package: str
    scope: str
    source: str
    outside: frozenset[str] = frozenset()  # cases that this leaves out


HELD_BY_NO_LAYER = {
    "a layer's weight in F.linear",
    "a transposed parameter in a matmul",
    "a parameter in an einsum",
    "a low-rank addition to a weight",
    "a custom Function of a parameter",
    "tied weights, by a function",
    "one class token for all",
    "weight normalisation",
}
ALL_COUPLED = {name for name in CASES if name.startswith(COUPLED)}
NO_BATCHING = {
    "dropout, training mode",
    "a custom Function of activations",
    "a custom Function of a parameter",
    "experts that take some rows",
}
TIED = {"tied weights, as modules"}
RECURRENT, DROPOUT = {"nn.LSTM", "nn.GRU"}, {"dropout, training mode"}
ATTENTION, BATCH_NORM = (
    {"nn.MultiheadAttention"},
    {"BatchNorm, eval mode", "coupled: BatchNorm, training mode"},
)
LIBRARIES = {
    "lai_torch": Library(
        ask_lai_torch,
        "lai-core",
        "any model that couples no samples",
        "per-sample-gradients.md",
    ),
    "torch.func": Library(
        ask_torch_func,
        "torch",
        "functions of one sample that `vmap` can batch: no shapes that depend on data, no random numbers "
        "without a flag, custom Functions with `setup_context`",
        "https://docs.pytorch.org/docs/stable/func.ux_limitations.html",
        frozenset(ALL_COUPLED | NO_BATCHING),
    ),
    "opacus": Library(
        ask_opacus,
        "opacus",
        "modules without buffers (BatchNorm invalidates per-sample gradients); its own attention and "
        "recurrent layers in place of torch's",
        "https://github.com/pytorch/opacus/tree/main/opacus/grad_sample",
        frozenset(ALL_COUPLED | BATCH_NORM | ATTENTION | RECURRENT),
    ),
    "BackPACK": Library(
        ask_backpack,
        "backpack-for-pytorch",
        "linear, convolution, BatchNorm, RNN, LSTM and embedding modules; losses that are sums of "
        "independent functions",
        "https://docs.backpack.pt/en/master/extensions.html",
        frozenset(ALL_COUPLED | HELD_BY_NO_LAYER | ATTENTION | {"LayerNorm", "GroupNorm", "nn.GRU"}),
    ),
    "captum": Library(
        ask_captum,
        "captum",
        "`TracInCP`: models whose layers are attributes, whose output is a tensor",
        "https://captum.ai/api/influence.html",
        frozenset(DROPOUT | {"outputs in a dictionary"}),
    ),
    "kronfluence": Library(
        ask_kronfluence,
        "kronfluence",
        "nn.Linear and nn.Conv2d modules, in eval mode",
        "https://github.com/pomonam/kronfluence#getting-started",
        frozenset(DROPOUT | BATCH_NORM | HELD_BY_NO_LAYER | TIED | ATTENTION | RECURRENT),
    ),
    "dattri": Library(
        ask_dattri,
        "dattri",
        "functions of one sample that `vmap` can batch, in eval mode",
        "https://github.com/TRAIS-Lab/dattri",
        frozenset(ALL_COUPLED | NO_BATCHING),
    ),
    "dattri-llm": Library(
        ask_dattri_llm,
        "dattri-llm",
        "linear, convolution, embedding and normalisation layers; each use of a weight for itself",
        "https://pypi.org/project/dattri-llm/",
        frozenset(HELD_BY_NO_LAYER | TIED | ATTENTION | RECURRENT | {"a layer used twice"}),
    ),
}
