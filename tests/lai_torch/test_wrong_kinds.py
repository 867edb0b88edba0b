"""What is handed over by mistake, and engines that nothing here can score, are named with the way out."""

import re
import subprocess
import sys

import lai_torch
import pytest
import torch
from torch import nn
from torch.distributed.pipelining import Pipe, PipelineStage, ScheduleGPipe

from tests.lai_torch.support import HALF, LOSS, curated, data, network


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_steps_alone_need_gradients(off):
    curator = curated(network(), data(5))
    with off():
        with pytest.raises(ValueError, match=re.escape(f"a call under torch.{off.__name__}(); leave it")):
            curator.step(*data(4))
        curator.score(*data(4))
    assert curator.step(*data(4)).updated


def test_fifty_empty_steps_are_told(monkeypatch):
    """As many in a row, here five, and once: one that keeps something begins the count anew."""
    assert lai_torch.curator.EMPTY == 50
    monkeypatch.setattr(lai_torch.curator, "EMPTY", 5)
    curator, batch = curated(network(), data(5), estimator="lli"), data(4)
    for kept in (False, True, False):
        curator.policy = HALF if kept else torch.zeros_like
        for _ in range(4):
            curator.step(*batch)  # warnings are errors
    with pytest.warns(UserWarning, match="policy: nothing was kept in 5 steps in a row, so that nothing"):
        curator.step(*batch)
    for _ in range(6):
        curator.step(*batch)


def test_what_is_printed_is_a_line():
    curator = curated(network(), data(40), estimator=lai_torch.LAI(chunk=2))
    report = curator.step(*data(4))
    assert repr(curator) == "Curator(LAI(chunk=2), validation=tuple, steps=1, skipped=0)"
    line = r"Report\(step=0, samples=4, kept=\d, dropped=0, loss=\S+, (updated|skipped), backward='kept'\)"
    assert re.fullmatch(line, repr(report))
    trace = lai_torch.trace(network(), LOSS, *data(4))
    assert repr(trace.layers[1]) == (
        "LayerTrace(activations=(4, 8), output_gradients=(4, 3), bias=True, weight='2.weight', name='2')"
    )


@pytest.mark.parametrize(("name", "extra"), [("lai_torch", "torch"), ("lai_jax", "jax")])
def test_adapters_name_their_extra(name, extra):
    code = f"import sys; sys.modules[{extra!r}] = None; import {name}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"which is not installed; pip install 'lai-core[{extra}]' adds it" in found.stderr


CALLS = {
    "Curator": lambda model: lai_torch.Curator(model, LOSS, None, data(5), process_group=False).score(
        *data(4)
    ),
    "trace": lambda model: lai_torch.trace(model, LOSS, *data(4)),
    "exact_scores": lambda model: lai_torch.exact_scores(model, LOSS, data(5), data(4)),
    "PerSampleNorms": lambda model: lai_torch.PerSampleNorms(model, LOSS).forward(*data(4)),
}


def kind_of(path, base=nn.Module):
    """Return a class derived from one that calls itself by an engine's module and name."""
    module, _, name = path.rpartition(".")
    return type("Own", (type(name, (base,), {"__module__": module}),), {})


def with_a_layer():
    layer = kind_of("megatron.core.tensor_parallel.layers.ColumnParallelLinear", nn.Linear)
    return nn.Sequential(network(), layer(3, 3).double())


def taken_apart():
    model = network()
    model[0].weight.ds_id = 0
    return model


ENGINES = {
    **{
        f"got {path}, .*{way_out}": lambda path=path: kind_of(path)()
        for path, way_out in [
            ("deepspeed.runtime.engine.DeepSpeedEngine", r"Curator\(engine\.module, .* to engine\.backward"),
            ("deepspeed.runtime.pipe.engine.PipelineEngine", "fully_shard, or .*score_dataset"),
            ("megatron.DistributedDataParallel", "backward passes of their own"),
        ]
    },
    r"got megatron\.core\.tensor_parallel\.layers\.ColumnParallelLinear": with_a_layer,
    r"whole parameters, got those of DeepSpeed's ZeRO stage 3; shard": taken_apart,
    **{
        rf"got torch\.distributed\.pipelining\.\w+\.{kind.__name__}, which runs a part": lambda kind=kind: (
            kind.__new__(kind)
        )
        for kind in (PipelineStage, ScheduleGPipe, Pipe)
    },
}


@pytest.mark.filterwarnings("default")  # torch's own
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("words", ENGINES)
def test_engines_are_named_unrun(call, words):
    with pytest.raises(ValueError, match=f"model: expected .*{words}"):
        CALLS[call](ENGINES[words]())
