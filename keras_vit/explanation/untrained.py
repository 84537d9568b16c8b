"""A judgement of filters and positions: do the weights of a model look trained?"""

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.model import VisionTransformer


def looks_untrained(model: VisionTransformer) -> list[str]:
    """Returns a sentence for each part whose weights look untrained.

    Trained filters are smooth and trained positions resemble their neighbours; a conversion that
    mixes up the order of axes destroys both properties. A sentence is a warning and no proof: a
    training on few images leaves rough filters, too.
    """
    sentences = []
    if model.config.resnet is None and min(model.config.patch_size) >= 8:
        kernel = _numpy(model.get_layer("patch_embedding").kernel).astype("float64")
        likeness = _correlate_neighbours(np.moveaxis(kernel, -1, 0))
        if likeness < 0.2:
            sentences.append(
                f"Neighbouring weights of the filters correlate by {likeness:.2f}; trained ones "
                "by more than 0.2."
            )
    grid = model.config.source_grid
    if model.config.position == "learned" and grid is not None and min(grid) >= 4:
        similar = position_similarity(model)
        near = np.concatenate(
            [
                np.einsum("rcrc->rc", similar[:, :-1, :, 1:]).ravel(),
                np.einsum("rcrc->rc", similar[:-1, :, 1:, :]).ravel(),
            ]
        ).mean()
        rise = float(near - similar.mean())
        if rise < 0.05:
            sentences.append(
                f"Neighbouring positions are more alike than others by {rise:.2f} (cosine); "
                "trained ones by more than 0.05."
            )
    return sentences


def position_similarity(model: VisionTransformer) -> np.ndarray:
    """Returns the cosine similarity of the position embeddings (Figure 7, centre; Figure 10).

    Returns:
        float32 `(rows, columns, rows, columns)` on the grid of the stored embeddings.

    Raises:
        ConfigError: the model has no position embeddings.
    """
    config = model.config
    if config.position == "none" or config.source_grid is None:
        turned = " turns queries and keys instead (rope)" if config.rope else " has none"
        raise ConfigError(
            f"Position embeddings can be compared where there are some; the model{turned}."
        )
    rows, columns = config.source_grid
    layer = model.get_layer("position_embedding")
    table = _numpy(layer._embedding_of(rows, columns, config.hidden_size))[0]
    table = table[-rows * columns :].astype("float64")
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-30)
    return (unit @ unit.T).reshape(rows, columns, rows, columns).astype("float32")


def _correlate_neighbours(kernels: np.ndarray) -> float:
    """Returns the mean correlation of neighbouring weights in rows and columns of each filter."""
    kernels = kernels - kernels.mean(axis=(1, 2), keepdims=True)
    pairs = ((kernels[:, :-1], kernels[:, 1:]), (kernels[:, :, :-1], kernels[:, :, 1:]))
    return float(np.mean([(a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()) for a, b in pairs]))


def _numpy(tensor: object) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
