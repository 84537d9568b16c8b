"""The methods of explanation: each takes images and classes, and returns maps over the patches.

A score is the model's own output for the class: the logit, or the probability of a model with
`classifier_activation="softmax"`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_vit.config import Prediction
from keras_vit.config.rules import COUNT
from keras_vit.errors import ConfigError
from keras_vit.explanation.attention import (
    attention_maps,
    attention_rollout,
    probe_weights,
    read_tokens,
    share_tokens,
)
from keras_vit.explanation.gradients import compile_call, gradient
from keras_vit.layers.quantisation import quantised_parts
from keras_vit.models import inference
from keras_vit.models.graph import Stages
from keras_vit.models.tokens import check_stages, compute_grid, image_axes
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import AnyMethod

OneBatch = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(images, result of `weigh_outputs`) -> map `(batch, rows, columns)` or pixels."""


def attention(
    model: VisionTransformer, stage: str | None = None, head: int | None = None
) -> OneBatch:
    """Attention of the head's input to the patches, in one block or in the pooling."""
    stage = _choose_stage(model, stage, "attention")
    of_pool = stage == "pool/attention"
    heads = model.get_layer("pool").num_heads if of_pool else model.config.num_heads
    if head is not None and head not in range(heads):
        raise ConfigError(f"head={head!r}: {stage} has the heads 0 to {heads - 1}.")
    chosen = slice(None) if head is None else [int(head)]

    def run(images: np.ndarray, chosen_class: np.ndarray) -> np.ndarray:
        if of_pool:
            read = probe_weights(model, images, len(images))[:, chosen].mean(axis=1)
        else:
            (weights,) = attention_maps(model, images, stage, len(images), prepared=True).values()
            shares = read_tokens(model, images, len(images), prepared=True)
            read = np.einsum("bt,btk->bk", shares, weights[:, chosen].mean(axis=1))
        return _patches(model, images, read)

    return run


def rollout(model: VisionTransformer) -> OneBatch:
    """Attention through all blocks (Abnar and Zuidema 2020)."""

    def run(images: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        maps = attention_maps(model, images, batch_size=len(images), prepared=True)
        shares = read_tokens(model, images, len(images), prepared=True)
        return attention_rollout(maps, compute_grid(model, images), shares)

    return run


def relevance(model: VisionTransformer) -> OneBatch:
    """Gradient times attention (Chefer, Gur and Wolf 2021, arXiv 2103.15679, Eqs. 5 and 6).

    R = 1 before the first block; each block adds the mean over heads of (dy/dA * A)+ times R. The
    result is the row of R that the head reads: the class token's, or the mean of rows. For
    attention pooling, it is the mean over the probe's heads of (dy/dA * A)+ times R.
    """
    _refuse_quantised(model, "relevance")
    names = _stages(model, "attention")
    depth, pool = model.config.num_layers, model.get_layer("pool")

    def of_batch(images: Any, chosen: Any) -> Any:
        rows, columns = compute_grid(model, images)
        batch, tokens = images.shape[0], rows * columns + model.config.num_prefix_tokens
        shapes = [(batch, model.config.num_heads, tokens, tokens)] * depth
        if model.config.pool.is_map:
            shapes.append((batch, pool.num_heads, 1, tokens - pool.skip))
        gradients, weights = _slopes(model, images, chosen, dict(zip(names, shapes, strict=True)))
        seen = [ops.mean(ops.relu(g * a), axis=1) for g, a in zip(gradients, weights, strict=True)]
        total = ops.eye(tokens, dtype="float32")[None]
        for step in seen[:depth]:
            total = total + step @ total
        if model.config.pool.is_map:
            row = ops.pad(seen[-1], [(0, 0), (0, 0), (pool.skip, 0)])
        else:
            row = ops.convert_to_tensor(share_tokens(model.config, tokens))[None, None]
        return (row @ total)[:, 0]

    read = compile_call(model, of_batch)
    return lambda images, chosen: _patches(model, images, read(images, chosen))


def gradcam(model: VisionTransformer, stage: str | None = None) -> OneBatch:
    """Grad-CAM (Selvaraju et al. 2017) on the tokens that enter a block.

    Channels are weighted by their mean gradient over the patches, and their sum is clipped at zero.
    The method uses tokens that enter a block: if the head reads the class token, the patches that
    leave the last block have no gradient.
    """
    _refuse_quantised(model, "gradcam")
    name = _choose_stage(model, stage, "input")
    prefix = model.config.num_prefix_tokens

    def of_batch(images: Any, chosen: Any) -> Any:
        rows, columns = compute_grid(model, images)
        shape = (images.shape[0], rows * columns + prefix, model.config.hidden_size)

        (slopes,), (tokens,) = _slopes(model, images, chosen, {name: shape})
        channels = ops.mean(slopes[:, prefix:], axis=1, keepdims=True)
        return ops.relu(ops.sum(ops.cast(tokens[:, prefix:], "float32") * channels, axis=-1))

    run = compile_call(model, of_batch)
    return lambda images, chosen: run(images, chosen).reshape(-1, *compute_grid(model, images))


def integrated_gradients(
    model: VisionTransformer, steps: int = 32, baseline: Any = None
) -> OneBatch:
    """Integrated gradients (Sundararajan et al. 2017), summed over channels, signed.

    The integral from the baseline to the image is a sum over the middles of `steps` equal parts.
    """
    _refuse_quantised(model, "integrated_gradients")
    COUNT.check("steps", steps)
    start = _baseline(model, baseline)
    channels = -1 if model.data_format == "channels_last" else 1

    def of_batch(images: Any, chosen: Any) -> Any:
        def score(sources: list[Any]) -> tuple[Any, list[Any]]:
            return _score(model, sources[0], chosen), []

        return gradient(score, [images])[0][0]

    slopes = compile_call(model, of_batch)

    def run(images: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        way = np.float32(images - start)
        total = np.zeros(images.shape, "float64")
        for k in range(steps):
            total += slopes(start + np.float32((k + 0.5) / steps) * way, chosen)
        return (total / steps * way).sum(axis=channels).astype("float32")

    return run


def occlusion(model: VisionTransformer, baseline: Any = None) -> OneBatch:
    """The decrease of the score when a patch is covered (Zeiler and Fergus 2014)."""
    pixels = _baseline(model, baseline)

    def score(images: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return (inference.run(model, images) * chosen).sum(axis=-1)

    def rows_first(images: np.ndarray) -> np.ndarray:
        return np.moveaxis(images, image_axes(model), (1, 2))

    def run(images: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        rows, columns = compute_grid(model, images)
        high, wide = model.config.stride
        cover, whole = np.broadcast_to(pixels, images.shape), score(images, chosen)
        falls = np.zeros((len(images), rows, columns), "float32")
        for r, c in np.ndindex(rows, columns):
            inside = np.s_[:, r * high : (r + 1) * high, c * wide : (c + 1) * wide]
            covered = images.copy()
            rows_first(covered)[inside] = rows_first(cover)[inside]
            falls[:, r, c] = whole - score(covered, chosen)
        return falls

    return run


def random(model: VisionTransformer, seed: int = 0) -> OneBatch:
    """Uniform random numbers, a baseline for other methods."""
    rng = np.random.default_rng(seed)
    return lambda images, chosen: rng.random(
        (len(images), *compute_grid(model, images)), dtype="float32"
    )


def centre(model: VisionTransformer) -> OneBatch:
    """1 in the middle of the image, falling to 0 in the corners: objects are often central."""

    def run(images: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        rows, columns = compute_grid(model, images)
        y, x = ((np.arange(n) + 0.5) * 2 / n - 1 for n in (rows, columns))
        map_ = 1 - np.sqrt((y[:, None] ** 2 + x**2) / 2)
        return np.tile(map_.astype("float32"), (len(images), 1, 1))

    return run


class Method(NamedTuple):
    """A method, whether it needs a class, and whether its map has a value for each pixel."""

    make: Callable[..., OneBatch]
    asks_class: bool = True
    per_pixel: bool = False


METHODS: dict[AnyMethod, Method] = {
    "attention": Method(attention, asks_class=False),
    "rollout": Method(rollout, asks_class=False),
    "relevance": Method(relevance),
    "gradcam": Method(gradcam),
    "integrated_gradients": Method(integrated_gradients, per_pixel=True),
    "occlusion": Method(occlusion),
    "random": Method(random, asks_class=False),
    "centre": Method(centre, asks_class=False),
}


def weigh_outputs(prediction: Prediction, classes: np.ndarray) -> np.ndarray:
    """Returns the factors of the outputs whose sum is the score of each image's class.

    They are one-hot rows, float32 `(batch, num_classes)`; of one logit for two classes, 1 for the
    second class and -1 for the first.
    """
    rows = [[-1], [1]] if prediction.is_binary else np.eye(prediction.num_classes)
    return np.asarray(rows, "float32")[classes]


def _score(model: VisionTransformer, images: Any, chosen: Any, **further: Any) -> Any:
    """Returns the sum over a batch of the outputs of the chosen classes, a float32 scalar.

    Args:
        model: a model with one prediction per image.
        images: a tensor of images.
        chosen: the result of `weigh_outputs`.
        **further: further arguments of the call of the model.
    """
    outputs = ops.cast(model(images, training=False, **further), "float32")
    return ops.sum(outputs * chosen)


def _slopes(
    model: VisionTransformer, images: Any, chosen: Any, shapes: dict[str, tuple[int, ...]]
) -> tuple[list[Any], list[Any]]:
    """Returns the gradients of the score by stages of the given shapes, and their values.

    Raises:
        ConfigError: a stage is the weights of an attention layer that the user has replaced, or
            the user's own `call` takes no stages.
    """
    model._check_stages(list(shapes))

    def score(changes: list[Any]) -> tuple[Any, list[Any]]:
        stages = Stages(list(shapes), dict(zip(shapes, changes, strict=True)))
        total = _score(model, images, chosen, stages=stages)
        return total, [stages.values[name] for name in shapes]

    return gradient(score, [ops.zeros(shape, "float32") for shape in shapes.values()])


def _stages(model: VisionTransformer, kind: str) -> list[str]:
    return [name for name in model._graph.stage_names() if name.endswith(f"/{kind}")]


def _choose_stage(model: VisionTransformer, stage: str | None, kind: str) -> str:
    stages = _stages(model, kind)
    check_stages([] if stage is None else [stage], stages)
    return stages[-1] if stage is None else stage


def _baseline(model: VisionTransformer, baseline: Any) -> np.ndarray:
    """Returns the given pixel or image, or a black pixel, to be broadcast over a batch."""
    if baseline is None:
        mean, std = (np.atleast_1d(np.float32(x)) for x in model.preprocessor.normalisation)
        pixel = -mean / std if model.preprocessor.scaled else np.zeros_like(mean)
        return pixel if model.data_format == "channels_last" else pixel[:, None, None]
    start = np.asarray(baseline, "float32")
    shape = model.input_shape[1:]
    odd = start.ndim > 3 or any(
        side not in (1, expected) and expected is not None
        for side, expected in zip(start.shape[::-1], shape[::-1], strict=False)
    )
    if odd:
        raise ConfigError(f"baseline has the shape {start.shape}; expected that of an image.")
    return start


def _patches(model: VisionTransformer, images: np.ndarray, read: np.ndarray) -> np.ndarray:
    """Returns the values of the patches in their grid, without the tokens before them."""
    return read[:, model.config.num_prefix_tokens :].reshape(-1, *compute_grid(model, images))


def _refuse_quantised(model: VisionTransformer, method: str) -> None:
    if parts := quantised_parts(model.layers):
        raise ConfigError(
            f"method={method!r} needs gradients, and the quantised {next(iter(parts))} has none: "
            "explain the model from before its quantisation, or choose attention, rollout or "
            "occlusion."
        )
