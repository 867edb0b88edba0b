"""Losses of optax; layers of equinox, flax nnx and flax linen, each between two layers of a small net."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from benchmarks.compatibility.jax_case import CLASSES, TRAINING, VALIDATION, WIDTH, Case, draw, place_between
from benchmarks.compatibility.judge import REASON_LENGTH, UnfitError, squares

FEATURES, POSITIONS, SIDE = 4, 5, 6
Apply = Callable[[Any, Any], Any]
Built = tuple[Apply, Any, tuple[int, ...]]
"""From a layer's parameters and a batch to its output; the parameters; the shape of one sample."""

VECTOR, TOKENS = (FEATURES,), (POSITIONS, FEATURES)
MAP, CHANNELS_FIRST = (SIDE, SIDE, FEATURES), (FEATURES, SIDE, SIDE)


def cases() -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """Yield the suite, the name and a function that builds, of every loss and layer."""
    for name, value in inspect.getmembers(optax.losses, callable):
        if not name.startswith("_") and "make_" not in name:
            yield "jax-optax", f"optax/{name}", partial(_build_loss, value)
    for library, layers in LAYERS.items():
        for name, layer in layers.items():
            yield f"jax-{library}", f"{library}/{name}", partial(_build_layer, layer)


def _build_loss(function: Callable[..., Any]) -> Case:
    """Build the case of a loss on the outputs of two layers, one number a sample."""
    rng = np.random.default_rng(0)
    net = place_between(lambda own, hidden: hidden, {}, 5, rng, outputs=4)
    problem = ""

    def loss(outputs: Any, targets: Any) -> Any:
        values = function(outputs, targets)
        return values if values.ndim < 2 else values.sum(tuple(range(1, values.ndim)))

    for kind in ("numbers", "classes", "shares", "signs"):
        sides = [(draw(rng, n, WIDTH), _targets(rng, kind, n)) for n in (TRAINING, VALIDATION)]
        try:
            value = loss(net["apply"](net["params"], sides[0][0]), sides[0][1])
        except Exception as found:  # what it says of targets that are not its own
            problem = f"{type(found).__name__}: {found}"[:REASON_LENGTH]
            continue
        if value.shape == (TRAINING,) and bool(jnp.isfinite(value).all()):
            return Case(**net, loss=loss, training=sides[0], validation=sides[1])
        problem = f"of shape {value.shape} for {TRAINING} samples, or not finite"
    raise UnfitError(f"no loss of one sample's outputs and targets: {problem}")


def _targets(rng: np.random.Generator, kind: str, n: int) -> Any:
    if kind == "classes":
        return jnp.asarray(rng.integers(0, 4, n))
    if kind == "shares":
        return jax.nn.softmax(draw(rng, n, 4))
    return jnp.sign(draw(rng, n, 4)) if kind == "signs" else draw(rng, n, 4)


def _build_layer(build: Callable[[], Built]) -> Case:
    """Build the case of a layer between two others: it is about the layer's parameters, if it has some."""
    layer, own, shape = build()
    rng, width = np.random.default_rng(0), int(np.prod(shape))
    training, validation = ((draw(rng, n, WIDTH), draw(rng, n, CLASSES)) for n in (TRAINING, VALIDATION))
    trains = bool(jax.tree.leaves(own))
    return Case(
        **place_between(lambda own, rows: layer(own, rows.reshape(-1, *shape)), own, width, rng),
        loss=squares,
        training=training,
        validation=validation,
        about=("own",) if trains else ("embed",),
        only=trains,
    )


def _equinox(
    build: Callable[[Any], Any], shape: tuple[int, ...], call: Callable[[Any, Any], Any] | None = None
) -> Callable[[], Built]:
    def built() -> Built:
        params, static = equinox.partition(build(jax.random.key(0)), equinox.is_inexact_array)

        def apply(params: Any, inputs: Any) -> Any:
            layer = equinox.combine(params, static)
            return jax.vmap(layer if call is None else partial(call, layer))(inputs)

        return apply, params, shape

    return built


def _nnx(build: Callable[[Any], Any], shape: tuple[int, ...]) -> Callable[[], Built]:
    def built() -> Built:
        module = build(nnx.Rngs(0))
        module.eval()
        graph, params, rest = nnx.split(module, nnx.Param, ...)
        return lambda params, inputs: nnx.merge(graph, params, rest)(inputs), _wide(params), shape

    return built


def _linen(module: Any, shape: tuple[int, ...], **options: Any) -> Callable[[], Built]:
    def built() -> Built:
        variables = module.init(jax.random.key(0), jnp.ones((1, *shape)), **options)
        rest = {key: value for key, value in variables.items() if key != "params"}

        def apply(params: Any, inputs: Any) -> Any:
            return module.apply({"params": params, **rest}, inputs, **options)

        return apply, _wide(variables.get("params", {})), shape

    return built


def _wide(params: Any) -> Any:
    """Return parameters in float64: flax makes them in float32."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)


def _scanned(layer: Any, rows: Any) -> Any:
    return jax.lax.scan(lambda state, row: (layer(row, state), None), jnp.zeros(3), rows)[0]


_eqx = equinox.nn
EQUINOX = {
    "Linear": _equinox(lambda key: _eqx.Linear(FEATURES, 3, key=key), VECTOR),
    "MLP": _equinox(lambda key: _eqx.MLP(FEATURES, 3, 5, 2, key=key), VECTOR),
    "Conv1d": _equinox(lambda key: _eqx.Conv1d(POSITIONS, 3, 2, key=key), TOKENS),
    "Conv2d": _equinox(lambda key: _eqx.Conv2d(FEATURES, 3, 3, key=key), CHANNELS_FIRST),
    "ConvTranspose2d": _equinox(lambda key: _eqx.ConvTranspose2d(FEATURES, 3, 3, key=key), CHANNELS_FIRST),
    "LayerNorm": _equinox(lambda key: _eqx.LayerNorm(FEATURES), VECTOR),
    "RMSNorm": _equinox(lambda key: _eqx.RMSNorm(FEATURES), VECTOR),
    "GroupNorm": _equinox(lambda key: _eqx.GroupNorm(2, FEATURES), CHANNELS_FIRST),
    "PReLU": _equinox(lambda key: _eqx.PReLU(0.25), VECTOR),
    "GRUCell": _equinox(
        lambda key: _eqx.GRUCell(FEATURES, 3, key=key), VECTOR, lambda cell, row: cell(row, jnp.zeros(3))
    ),
    "LSTMCell": _equinox(
        lambda key: _eqx.LSTMCell(FEATURES, 3, key=key),
        VECTOR,
        lambda cell, row: cell(row, (jnp.zeros(3), jnp.zeros(3)))[0],
    ),
    "GRUCell, scanned": _equinox(lambda key: _eqx.GRUCell(FEATURES, 3, key=key), TOKENS, _scanned),
    "MultiheadAttention": _equinox(
        lambda key: _eqx.MultiheadAttention(2, FEATURES, key=key), TOKENS, lambda layer, x: layer(x, x, x)
    ),
    "Embedding": _equinox(
        lambda key: _eqx.Embedding(7, FEATURES, key=key), VECTOR, lambda layer, x: layer(jnp.argmax(x)) + x
    ),
    "MaxPool2d": _equinox(lambda key: _eqx.MaxPool2d(2, 2), CHANNELS_FIRST),
    "AvgPool2d": _equinox(lambda key: _eqx.AvgPool2d(2, 2), CHANNELS_FIRST),
    "RotaryPositionalEmbedding": _equinox(lambda key: _eqx.RotaryPositionalEmbedding(FEATURES), TOKENS),
}
# without recurrent layers of flax, whose state stays in float32
NNX = {
    "Linear": _nnx(lambda rngs: nnx.Linear(FEATURES, 3, rngs=rngs), VECTOR),
    "LinearGeneral": _nnx(lambda rngs: nnx.LinearGeneral(TOKENS, 3, axis=(-2, -1), rngs=rngs), TOKENS),
    "Einsum": _nnx(lambda rngs: nnx.Einsum("ntf,fg->ntg", (FEATURES, 3), rngs=rngs), TOKENS),
    "Conv": _nnx(lambda rngs: nnx.Conv(FEATURES, 3, (3, 3), rngs=rngs), MAP),
    "ConvTranspose": _nnx(lambda rngs: nnx.ConvTranspose(FEATURES, 3, (3, 3), rngs=rngs), MAP),
    "LayerNorm": _nnx(lambda rngs: nnx.LayerNorm(FEATURES, rngs=rngs), VECTOR),
    "RMSNorm": _nnx(lambda rngs: nnx.RMSNorm(FEATURES, rngs=rngs), VECTOR),
    "GroupNorm": _nnx(lambda rngs: nnx.GroupNorm(FEATURES, num_groups=2, rngs=rngs), MAP),
    "BatchNorm": _nnx(lambda rngs: nnx.BatchNorm(FEATURES, rngs=rngs), MAP),
    "LoRA": _nnx(lambda rngs: nnx.LoRA(FEATURES, 2, 3, rngs=rngs), VECTOR),
    "PReLU": _nnx(lambda rngs: nnx.PReLU(), VECTOR),
    "MultiHeadAttention": _nnx(
        lambda rngs: nnx.MultiHeadAttention(2, FEATURES, decode=False, rngs=rngs), TOKENS
    ),
}
LINEN = {
    "Dense": _linen(linen.Dense(3), VECTOR),
    "DenseGeneral": _linen(linen.DenseGeneral(3, axis=(-2, -1)), TOKENS),
    "Einsum": _linen(linen.Einsum((FEATURES, 3), "ntf,fg->ntg"), TOKENS),
    "Conv": _linen(linen.Conv(3, (3, 3)), MAP),
    "ConvLocal": _linen(linen.ConvLocal(3, (3, 3)), MAP),
    "ConvTranspose": _linen(linen.ConvTranspose(3, (3, 3)), MAP),
    "LayerNorm": _linen(linen.LayerNorm(), VECTOR),
    "RMSNorm": _linen(linen.RMSNorm(), VECTOR),
    "GroupNorm": _linen(linen.GroupNorm(2), MAP),
    "InstanceNorm": _linen(linen.InstanceNorm(), MAP),
    "BatchNorm": _linen(linen.BatchNorm(use_running_average=True), MAP),
    "WeightNorm": _linen(linen.WeightNorm(linen.Dense(3)), VECTOR),
    "SpectralNorm": _linen(linen.SpectralNorm(linen.Dense(3)), VECTOR, update_stats=False),
    "PReLU": _linen(linen.PReLU(), VECTOR),
    "MultiHeadDotProductAttention": _linen(linen.MultiHeadDotProductAttention(2, deterministic=True), TOKENS),
}
LAYERS: dict[str, dict[str, Callable[[], Built]]] = {"equinox": EQUINOX, "nnx": NNX, "linen": LINEN}
