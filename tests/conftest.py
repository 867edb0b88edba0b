"""Profiles of hypothesis, the namespaces on which the core is tested, and what every run loads."""

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

pytest_plugins = ["tests.support.ledger_plugin", "tests.support.tiers"]

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# A program of these tests runs once or twice: what takes time is compiling it, half of it for loops fused,
# a tenth for being cut into parts that threads compile.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The first example on a backend pays for its import and, on jax, for compilation: no deadlines.
settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile(
    "ci",
    max_examples=50,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Shapes in the signatures of what computes are checked at every call; the public functions before
# them have their own messages, which a type checker's would hide.
ENGINE = [f"lai_core._engine.{name}" for name in ("gradients", "factors", "outer", "pairs")]
with install_import_hook([*ENGINE, "lai_core.estimators._parameters"], "beartype.beartype"):
    import lai_core  # noqa: F401

import jax  # noqa: E402  # after the environment is set
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib.mlir import ir  # noqa: E402

from tests.support.backends import BACKENDS, Backend  # noqa: E402  # after the environment is set

# All programs in one context: one of its own keeps a megabyte for as long as its program is kept. What is
# compiled while another program is being lowered has its own, or it would be written into that program.
_own_context, _shared_context = mlir.make_ir_context, mlir.make_ir_context()
mlir.make_ir_context = lambda: _own_context() if ir.Context.current else _shared_context


@pytest.fixture(params=BACKENDS, ids=str, scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each array namespace in turn; session-scoped, so that hypothesis may use it."""
    return request.param


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Try a fortieth of the examples on jax, which compiles every operation anew for every new shape."""
    test, callspec = getattr(item, "obj", None), getattr(item, "callspec", None)
    chosen = getattr(test, "_hypothesis_internal_use_settings", None)
    if chosen is None or callspec is None or str(callspec.params.get("backend")) != "jax":
        return (yield)
    fewer = settings(chosen, max_examples=min(chosen.max_examples, max(2, chosen.max_examples // 40)))
    test._hypothesis_internal_use_settings = fewer
    try:
        return (yield)
    finally:
        test._hypothesis_internal_use_settings = chosen


def pytest_collection_finish() -> None:
    """Leave what is there before the first test to no later look at garbage: a million objects each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Drop what was compiled whenever it takes half a gigabyte: that of all tests takes several."""
    global _resident
    if _now_resident() < _resident + 2**29:
        return
    jax.clear_caches()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)  # glibc keeps to itself what is freed between pages in use
    _resident = _now_resident()


def _now_resident() -> int:
    """Return the bytes of memory in use; elsewhere than on Linux, the most so far."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


_resident = _now_resident()
