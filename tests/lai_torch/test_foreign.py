"""Engines that nothing here can score are refused by name, before they run, with the way that serves."""

import sys

import lai_torch
import pytest
from torch import nn
from torch.distributed.pipelining import Pipe, PipelineStage, ScheduleGPipe

from tests.lai_torch.support import LOSS, curated, data, network

CALLS = {
    "Curator": lambda model: lai_torch.Curator(model, LOSS, None, data(5), group=False).score(*data(4)),
    "trace": lambda model: lai_torch.trace(model, LOSS, *data(4)),
    "coverage": lambda model: lai_torch.coverage(model, LOSS, *data(4)),
    "selfcheck": lambda model: lai_torch.selfcheck(model, LOSS, *data(4)),
    "exact_scores": lambda model: lai_torch.exact_scores(model, LOSS, data(5), data(4)),
    "per_sample_norms": lambda model: lai_torch.per_sample_norms(model, LOSS, data(4)),
}


def kind_of(path, base=nn.Module):
    """Return a class derived from one that calls itself by an engine's module and name."""
    module, _, name = path.rpartition(".")
    return type("Own", (type(name, (base,), {"__module__": module}),), {})


def engine(path):
    """Return an engine whose passes must not run: it has none."""
    return lambda: kind_of(path)()


def with_a_layer():
    layer = kind_of("megatron.core.tensor_parallel.layers.ColumnParallelLinear", nn.Linear)
    return nn.Sequential(network(), layer(3, 3).double())


def taken_apart():
    model = network()
    model[0].weight.ds_id = 0
    return model


def unmade(kind):
    """Return one of torch's pipelines, as far as its class says what it is."""
    return lambda: kind.__new__(kind)


ENGINES = {
    **{
        f"got {path}, .*{way_out}": engine(path)
        for path, way_out in [
            ("deepspeed.runtime.engine.DeepSpeedEngine", r"Curator\(engine\.module, .* to engine\.backward"),
            ("deepspeed.runtime.pipe.engine.PipelineEngine", "fully_shard, or .*score_dataset"),
            ("megatron.core.distributed.DistributedDataParallel", "fully_shard, or .*score_dataset"),
            ("megatron.DistributedDataParallel", "backward passes of their own"),
        ]
    },
    r"got megatron\.core\.tensor_parallel\.layers\.ColumnParallelLinear": with_a_layer,
    r"whole parameters, got those of DeepSpeed's ZeRO stage 3; shard": taken_apart,
    **{
        rf"got torch\.distributed\.pipelining\.\w+\.{kind.__name__}, which runs a part": unmade(kind)
        for kind in (PipelineStage, ScheduleGPipe, Pipe)
    },
}


@pytest.mark.filterwarnings("default")  # torch's own
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("words", ENGINES)
def test_an_engine_is_named_before_it_runs(call, words):
    with pytest.raises(ValueError, match=f"model: expected .*{words}"):
        CALLS[call](ENGINES[words]())


def test_other_layers_of_these_packages_and_of_like_names_serve():
    layer = kind_of("deepspeed.moe.layer.MoE", nn.Linear), kind_of("megatronic.Linear", nn.Linear)
    model = nn.Sequential(layer[0](4, 8), layer[1](8, 3)).double()
    curated(model, data(5)).step(*data(4))
    assert "deepspeed" not in sys.modules
