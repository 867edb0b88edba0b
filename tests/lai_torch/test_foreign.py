"""Engines that nothing here can score are refused by name, with the way that serves instead."""

import sys

import lai_torch
import pytest
import torch
from torch import nn
from torch.distributed.pipelining import Pipe, PipelineStage, ScheduleGPipe

from tests.lai_torch.support import LOSS, curated, data, network

CALLS = {
    "Curator": lambda model, loss=LOSS: lai_torch.Curator(model, loss, None, data(5), group=False).score(
        *data(4)
    ),
    "trace": lambda model, loss=LOSS: lai_torch.trace(model, loss, *data(4)),
    "coverage": lambda model, loss=LOSS: lai_torch.coverage(model, loss, *data(4)),
    "selfcheck": lambda model, loss=LOSS: lai_torch.selfcheck(model, loss, *data(4)),
    "exact_scores": lambda model, loss=LOSS: lai_torch.exact_scores(model, loss, data(5), data(4)),
    "per_sample_norms": lambda model, loss=LOSS: lai_torch.per_sample_norms(model, loss, data(4)),
}


class Engine(nn.Module):
    """Stands in for an engine around a model; its passes must not run."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        raise AssertionError


def kind_of(path, base):
    """Return a class derived from one that calls itself by an engine's module and name."""
    module, _, name = path.rpartition(".")
    return type("Own", (type(name, (base,), {"__module__": module}),), {})


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("path", "way_out"),
    [
        ("deepspeed.runtime.engine.DeepSpeedEngine", r"Curator\(engine\.module, .* to engine\.backward"),
        ("deepspeed.runtime.pipe.engine.PipelineEngine", "fully_shard, or .*score_dataset"),
        ("megatron.core.distributed.DistributedDataParallel", "fully_shard, or .*score_dataset"),
        ("megatron.DistributedDataParallel", "backward passes of their own"),
    ],
)
def test_an_engine_is_named_before_it_runs(call, path, way_out):
    with pytest.raises(ValueError, match=rf"model: expected .* whole, got {path}, .*{way_out}"):
        CALLS[call](kind_of(path, Engine)(network()))


@pytest.mark.parametrize("call", CALLS)
def test_a_layer_of_an_engine_inside_a_model_is_named(call):
    layer = kind_of("megatron.core.tensor_parallel.layers.ColumnParallelLinear", nn.Linear)
    with pytest.raises(
        ValueError, match=r"got megatron\.core\.tensor_parallel\.layers\.ColumnParallelLinear"
    ):
        CALLS[call](nn.Sequential(network(), layer(3, 3).double()))


@pytest.mark.parametrize("call", CALLS)
def test_parameters_that_zero_3_has_taken_apart_are_named(call):
    model = network()
    model[0].weight.ds_id = 0
    with pytest.raises(ValueError, match=r"whole parameters, got those of DeepSpeed's ZeRO stage 3; shard"):
        CALLS[call](model)


@pytest.fixture
def staged(tmp_path):
    """Put torch's own pipeline of one stage together, on one process."""
    torch.distributed.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    stage = PipelineStage(network(), 0, 1, torch.device("cpu"), input_args=(data(2)[0],))
    yield {"stage": stage, "schedule": ScheduleGPipe(stage, 2, loss_fn=LOSS)}
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("default")  # torch's own
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("which", ["stage", "schedule"])
def test_torchs_pipelines_are_named(call, which, staged):
    with pytest.raises(ValueError, match=r"got torch\.distributed\.pipelining\.\w+\.\w+, which runs a part"):
        CALLS[call](staged[which])


def test_a_traced_pipe_is_named():
    with pytest.raises(ValueError, match=r"got torch\.distributed\.pipelining\._IR\.Pipe"):
        lai_torch.trace(Pipe.__new__(Pipe), LOSS, *data(4))


def test_other_layers_of_these_packages_and_of_like_names_serve():
    layer = kind_of("deepspeed.moe.layer.MoE", nn.Linear), kind_of("megatronic.Linear", nn.Linear)
    model = nn.Sequential(layer[0](4, 8), layer[1](8, 3)).double()
    curated(model, data(5)).step(*data(4))
    assert "deepspeed" not in sys.modules
