"""Adapts the configuration and the arrays of a file to the model that a caller asks for.

The caller can ask for five changes: resize the position embeddings to another grid, resize the
patch embedding, replace the head, remove the representation layer, and add a layer scale with a
given value. All other arrays must match.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.facts import flatten_arguments
from keras_vit.checkpoints.reading import Checkpoint, CheckpointInfo
from keras_vit.config import Prediction, ViTConfig
from keras_vit.config.rules import pair
from keras_vit.config.weights import lexicon
from keras_vit.errors import CheckpointError, shown
from keras_vit.models.building import Reading
from keras_vit.support.interpolation import resampling_matrix
from keras_vit.support.text import log

POSITIONS, PATCHES = "position_embedding/embedding", "patch_embedding/kernel"
TABLE = "/table"
"""Suffix of the paths of relative position biases."""

_SCALES = ("attention_scale/gamma", "mlp_scale/gamma")
"""Suffixes of the paths of weights that a caller may add, because their initial value is known."""
OUTPUTS = ("task", "classifier_activation", "rescale")
"""Arguments of the model about its outputs and inputs, which a checkpoint may state too."""
_READING = (*Reading.__annotations__, "position_grid", "class_names", "protocol", *OUTPUTS)
"""Arguments of `from_preset` that are not fields of the model's configuration."""


def complete_fields(stored: ViTConfig, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the caller's fields, and further fields that follow from them.

    Another number of classes means a new, linear head. Positions are resized to the caller's
    image size, unless the model resizes them for each image.
    """
    follow: dict[str, Any] = {}
    if "image_size" in fields:
        kind = flatten_arguments(fields).get("stem.kind", stored.stem.kind)
        keeps = fields["image_size"] is None or kind == "packed"
        follow["position_grid"] = stored.source_grid if keeps else None
    num_classes = fields.get("num_classes", stored.num_classes)
    if num_classes != stored.num_classes:
        follow["head"] = "linear"
    if stored.dense is not None and not (num_classes and fields.get("dense", True)):
        follow["pool"] = {"kind": "token" if stored.tokens.class_tokens else "gap"}
    return {**follow, **fields}


def complete_outputs(
    info: CheckpointInfo, config: ViTConfig, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments `OUTPUTS` of the model: the caller's, or else the checkpoint's.

    The task belongs to the head. If the checkpoint returns probabilities, so does the model, with
    the activation of its task.
    """
    given = {name: arguments[name] for name in OUTPUTS if name in arguments}
    facts = {name: getattr(info, name) for name in OUTPUTS} | given
    have, want = ((own.num_classes, own.dense_task) for own in (info.config, config))
    if have != want and "task" not in given:
        facts["task"] = config.dense_task or "single_label"
    if info.classifier_activation and "classifier_activation" not in given:
        prediction = Prediction(config.num_classes, facts["task"])
        facts["classifier_activation"] = prediction.activation
    return facts


def adapt_config(checkpoint: Checkpoint, arguments: Mapping[str, Any]) -> ViTConfig:
    """Returns the configuration of the model that a caller asks for, and logs the changes.

    Args:
        checkpoint: the open checkpoint.
        arguments: the caller's arguments; they take precedence over the file's configuration.

    Raises:
        CheckpointError: the image size is unknown, or the file has no such representation layer.
    """
    stored, path = checkpoint.info.config, checkpoint.info.path
    fields = {name: value for name, value in arguments.items() if name not in _READING}
    if checkpoint.info.undetermined:
        raise CheckpointError(
            f"{path}: {stored.num_positions} positions are not a square grid, so the image_size is "
            "unknown. Give image_size=(height, width) with this number of patches, or "
            "position_grid=(rows, columns) of the stored positions."
        )
    if pair("patch_size", fields.get("patch_size", stored.patch_size)) != stored.patch_size:
        if stored.stem.is_resnet:
            raise CheckpointError(
                f"{path}: patch_size={shown(fields['patch_size'])}, but the file has "
                f"{stored.patch_size}. The patches of a hybrid, which are cells of a feature map, "
                "cannot be resized."
            )
        if stored.image_size is not None:
            fields["position_grid"] = None
    width = fields.get("representation_size")
    if width is not None and width != stored.representation_size:
        raise CheckpointError(
            f"{path}: representation_size={width}, but the file has "
            f"{stored.representation_size}. representation_size=None removes the layer."
        )
    config = stored.replace(**complete_fields(stored, fields))
    for word in lexicon.LEXICON:
        has, had = word.is_held_by(config), word.is_held_by(stored)
        lost = ("pre_logits/", "mask_token/") if had else ()
        is_fresh = has and word.path.endswith(_SCALES)
        if has != had and not word.path.startswith(("head/", *lost)) and not is_fresh:
            holder = "the file has" if had else "the requested model has"
            raise CheckpointError(f"{path}: only {holder} a weight {word.path}.")
    for change in _changes(stored, config):
        log.info("%s: %s", path, change)
    return config


def resize_positions(
    embedding: np.ndarray,
    source: tuple[int, int],
    target: tuple[int, int],
    prefix: int,
    method: str = "bilinear_align_corners",
) -> np.ndarray:
    """Resizes position embeddings to another patch grid.

    Rows of the tokens before the patches are not changed. Source: `interpolate_posembed` of
    `vit_jax/checkpoint.py`, which the default matches to 1e-7; unlike the source, this
    function also resizes to another grid with the same number of positions.

    Args:
        embedding: `(1, prefix + rows * columns, hidden_size)`.
        source, target: grids (rows, columns).
        prefix: number of rows that belong to tokens before the patches.
        method: see `keras_vit.ViTConfig.position_resize`.

    Returns:
        float32 `(1, prefix + target rows * columns, hidden_size)`.
    """
    if source == target:
        return embedding
    head, grid = embedding[:, :prefix], embedding[0, prefix:]
    grid = grid.reshape(*source, -1).astype(np.float64)
    ends = 2 * [max(target)] if method == "bilinear_longer_side" else target
    by_row, by_column = (
        resampling_matrix(have, end, method)[:want]
        for have, end, want in zip(source, ends, target, strict=True)
    )
    grid = np.einsum("ri,ijm,cj->rcm", by_row, grid, by_column, optimize=True)
    grid = grid.reshape(1, target[0] * target[1], -1).astype(np.float32)
    return np.concatenate([head.astype(np.float32), grid], axis=1)


def resize_distances(
    table: np.ndarray, source: tuple[int, int], target: tuple[int, int]
) -> np.ndarray:
    """Resizes a table of relative position biases to the distances of another patch grid.

    The rows of the old table are assigned distances that grow geometrically up to the
    largest distance of the new grid, so that close patches keep their biases. The new rows are
    interpolated linearly. Rows of tokens before the patches are not changed. Source:
    `resize_rel_pos_bias_table` of timm, after BEiT's fine-tuning.

    Args:
        table: `(distances, heads)`.
        source, target: grids (rows, columns) of patches.

    Returns:
        float32 `(target distances, heads)`.
    """
    if source == target:
        return table
    sides = [2 * side - 1 for side in source]
    inner, others = table[: math.prod(sides)], table[math.prod(sides) :]
    by_row, by_column = map(_distance_matrix, source, target)
    grid = inner.reshape(*sides, -1).astype(np.float64)
    grid = np.einsum("ri,ijh,cj->rch", by_row, grid, by_column, optimize=True)
    return np.concatenate([grid.reshape(-1, table.shape[1]), others]).astype(np.float32)


def _distance_matrix(source: int, target: int) -> np.ndarray:
    """Returns the matrix that resizes the biases along a side of `source` patches to `target`."""
    if source == 1:  # the only distance is 0
        return np.ones((2 * target - 1, 1))
    ratio_below, ratio_above = 1.01, 1.5
    while ratio_above - ratio_below > 1e-6:
        ratio = (ratio_below + ratio_above) / 2
        furthest = (1 - ratio ** (source - 1)) / (1 - ratio)
        if furthest > target - 1:
            ratio_above = ratio
        else:
            ratio_below = ratio
    distances = np.cumsum(ratio ** np.arange(source - 1.0))
    have = np.concatenate([-distances[::-1], [0.0], distances])
    want = np.arange(1.0 - target, target)
    return np.stack([np.interp(want, have, row) for row in np.eye(len(have))], axis=1)


def resize_patches(kernel: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Resizes the patch embedding, so that resized patches are projected to the same tokens.

    The kernel is multiplied by the transposed pseudo-inverse of the matrix of a bilinear resize
    (half-pixel, without antialias). For larger patches, tokens are equal; for smaller patches, this
    is the best approximation (FlexiViT, Beyer et al. 2023, arXiv 2212.08013, section 3.4;
    `resample_patchemb` of `big_vision/models/proj/flexi/vit.py`).

    Args:
        kernel: `(rows, columns, channels, hidden_size)`.
        target: sides (rows, columns) of the new patches in pixels.

    Returns:
        float32 `(target rows, target columns, channels, hidden_size)`.
    """
    # The matrix of a grid is the Kronecker product of its axes' matrices; so is its inverse.
    by_row, by_column = (
        np.linalg.pinv(resampling_matrix(old, new, "bilinear_half_pixel").T)
        for old, new in zip(kernel.shape[:2], target, strict=True)
    )
    kernel = kernel.astype(np.float64)
    resized = np.einsum("ri,ijcm,sj->rscm", by_row, kernel, by_column, optimize=True)
    return resized.astype(np.float32)


def adapt_array(
    path: str, array: np.ndarray, stored: ViTConfig, config: ViTConfig
) -> np.ndarray | None:
    """Returns the array for the weight `path` of the model, or None if the model does not have it.

    Args:
        path: path of the weight.
        array: the array of the file.
        stored, config: configurations of the file and of the model.
    """
    is_kept = config.dense is not None and not path.startswith("head/output/")
    if path.startswith("head/") and replaces_head(stored, config) and not is_kept:
        return None
    lost = {"pre_logits/": config.representation_size, "mask_token/": config.tokens.mask or None}
    if any(path.startswith(start) and value is None for start, value in lost.items()):
        return None
    if not _is_resized(path, stored, config):
        return array
    if path == PATCHES:
        return resize_patches(array, config.patch_size)
    if path.endswith(TABLE):
        return resize_distances(array, stored.table_grid, config.table_grid)
    prefix, method = stored.num_prefix_positions, config.position_resize
    return resize_positions(array, stored.source_grid, config.source_grid, prefix, method)


def add_scales(stored: ViTConfig, config: ViTConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Yields path and array of every layer scale that the caller adds to the blocks of a file."""
    if stored.block.layer_scale is None:
        for weight in lexicon.weights(config):
            if weight.path.endswith(_SCALES):
                yield weight.path, np.full(weight.shape, config.block.layer_scale, np.float32)


def adapt_dtype(path: str, dtype: np.dtype, stored: ViTConfig, config: ViTConfig) -> np.dtype:
    """Returns the dtype of the result of `adapt_array` for an array of this dtype."""
    return np.dtype("float32") if _is_resized(path, stored, config) else dtype


def _is_resized(path: str, stored: ViTConfig, config: ViTConfig) -> bool:
    if path == POSITIONS:
        return stored.source_grid != config.source_grid
    if path == PATCHES:
        return stored.patch_size != config.patch_size
    return path.endswith(TABLE) and stored.table_grid != config.table_grid


def replaces_head(stored: ViTConfig, config: ViTConfig) -> bool:
    """Whether the model needs a new head, or none."""
    have, want = (
        (own.num_classes, own.representation_size, own.dense is None) for own in (stored, config)
    )
    return have != want


def _changes(stored: ViTConfig, config: ViTConfig) -> Iterator[str]:
    """Yields a sentence for each difference between the model and the file."""
    if replaces_head(stored, config):
        old = f"{stored.num_classes} classes" if stored.num_classes else "no head"
        if config.num_classes:
            new = f"new head with zero weights for {config.num_classes} classes"
            yield f"{new}; the file has {old}."
        else:
            yield f"the head ({old}) is removed."
    if stored.representation_size is not None and config.representation_size is None:
        yield "pre_logits is removed, as usual for fine-tuning."
    if stored.tokens.mask and not config.tokens.mask:
        yield "the mask token, which inference does not use, is removed."
    if stored.patch_size != config.patch_size:
        change = _sides(stored.patch_size, config.patch_size)
        yield f"patch embedding resized {change} pixels."
    if any(True for _ in add_scales(stored, config)):
        yield "layer scale added to the blocks, with the given value."
    if config.has_learned_positions and stored.source_grid != config.source_grid:
        change = _sides(stored.source_grid, config.source_grid)
        yield f"position embeddings resized {change} ({config.position_resize})."
    if config.relative_position_bias and stored.table_grid != config.table_grid:
        change = _sides(stored.table_grid, config.table_grid)
        yield f"relative position bias resized {change} patches."


def _sides(old: tuple[int, int], new: tuple[int, int]) -> str:
    return "from {}x{} to {}x{}".format(*old, *new)
