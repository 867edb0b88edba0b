"""Small JAX models of every kind the adapter must be exact on."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.support.workloads.jax_parts import (
    CLASSES,
    Model,
    apply_block,
    block_params,
    classification,
    classified,
    drawn,
    layer_norm,
    next_token,
    shaped,
    tokens,
)


def mlp(*widths: int, activation: Callable[[Any], Any] = jnp.tanh) -> Model:
    """Dense layers with biases; three without widths."""
    draw, widths = drawn(0), widths or (6, 8, 8, CLASSES)
    params = [{"w": draw(a, b), "b": draw(b)} for a, b in itertools.pairwise(widths)]

    def apply(params: Any, inputs: Any) -> Any:
        for layer in params[:-1]:
            inputs = activation(inputs @ layer["w"] + layer["b"])
        return inputs @ params[-1]["w"] + params[-1]["b"]

    return Model(apply, params, classification, classified(widths[0], classes=widths[-1]))


def _convolved(inputs: Any, kernel: Any, **options: Any) -> Any:
    settings = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lax.conv_general_dilated(inputs, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **settings)


def _frozen_norm(maps: Any, norm: Any, statistics: Any) -> Any:
    return (maps - statistics["mean"]) * lax.rsqrt(statistics["var"] + 1e-5) * norm["gain"] + norm["offset"]


def resnet(
    stages: Sequence[tuple[int, int, int]] = ((4, 4, 1), (4, 8, 2)),
    *,
    stem: int = 3,
    side: int = 6,
    classes: int = CLASSES,
) -> Model:
    """Residual blocks with normalisation by stored statistics; a stem of 7 has a stride and a max-pool.

    `stages` are the channels before and after each block, and its stride; `side` is the images' width.
    """
    draw, first = drawn(2), stages[0][0]

    def kernel(size: int, before: int, after: int) -> Any:
        return draw(size, size, before, after) * np.sqrt(2 / (size * before))

    def norm(width: int) -> dict[str, Any]:
        return {"gain": 1.0 + 0.1 * draw(width), "offset": draw(width)}

    def statistics(width: int) -> dict[str, Any]:
        return {"mean": draw(width), "var": 1.0 + draw(width) ** 2}

    blocks, stored = [], [statistics(first)]
    for before, after, stride in stages:
        block = {"k1": kernel(3, before, after), "n1": norm(after)}
        block |= {"k2": kernel(3, after, after), "n2": norm(after)}
        if stride > 1:
            block["shortcut"] = kernel(1, before, after)
        blocks.append(block)
        stored += [statistics(after), statistics(after)]
    last = stages[-1][1]
    params = {"stem": kernel(stem, 3, first), "norm": norm(first), "blocks": blocks}
    params |= {"w": draw(last, classes), "b": draw(classes)}

    def apply(params: Any, inputs: Any) -> Any:
        strides = (2, 2) if stem == 7 else (1, 1)
        maps = _convolved(inputs, params["stem"], window_strides=strides)
        maps = jax.nn.relu(_frozen_norm(maps, params["norm"], stored[0]))
        if stem == 7:
            maps = lax.reduce_window(maps, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        for index, (block, (_, _, stride)) in enumerate(zip(params["blocks"], stages, strict=True)):
            first, second = stored[2 * index + 1], stored[2 * index + 2]
            own = _convolved(maps, block["k1"], window_strides=(stride, stride))
            own = jax.nn.relu(_frozen_norm(own, block["n1"], first))
            own = _frozen_norm(_convolved(own, block["k2"]), block["n2"], second)
            if "shortcut" in block:
                maps = _convolved(maps, block["shortcut"], window_strides=(stride, stride))
            maps = jax.nn.relu(own + maps)
        return maps.mean((1, 2)) @ params["w"] + params["b"]

    return Model(apply, params, classification, classified(side, side, 3, classes=classes))


def _language_model(
    draw: Callable[..., Any], shape: tuple[int, int, int], blocks: Any, apply_blocks: Callable[..., Any]
) -> Model:
    """Predict tokens of a vocabulary, a length and a width: learned positions, blocks, norm, tied head."""
    vocabulary, length, width = shape
    params = shaped(draw, tokens=(vocabulary, width), places=(length, width), offset=(width,))
    params |= {"blocks": blocks, "gain": 1.0 + 0.1 * draw(width)}

    def apply(params: Any, ids: Any) -> Any:
        values = apply_blocks(params["tokens"][ids] + params["places"], params["blocks"])
        return layer_norm(values, params["gain"], params["offset"]) @ params["tokens"].T

    return Model(apply, params, next_token, tokens(length, vocabulary))


def gpt_scan() -> Model:
    """Blocks in a scan, recomputed; padding masked."""
    draw = drawn(4)

    def apply_blocks(values: Any, blocks: Any) -> Any:
        step = jax.checkpoint(lambda values, block: (apply_block(values, block, 2), None))
        return lax.scan(step, values, blocks)[0]

    blocks = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(block_params(draw, 4) for _ in range(3)))
    return _language_model(draw, (11, 6, 4), blocks, apply_blocks)


def gpt_neo(width: int, *, heads: int, depth: int, length: int, vocabulary: int, reach: int) -> Model:
    """Global attention and such that reaches so far, in turn; blocks unrolled."""
    draw = drawn(10)

    def apply_blocks(values: Any, blocks: Any) -> Any:
        for index, block in enumerate(blocks):
            values = apply_block(values, block, heads, reach if index % 2 else None)
        return values

    blocks = [block_params(draw, width, 4) for _ in range(depth)]
    return _language_model(draw, (vocabulary, length, width), blocks, apply_blocks)


MODELS: dict[str, Callable[[], Model]] = {
    "mlp": mlp,
    "resnet": resnet,
    "gpt_scan": gpt_scan,
}
