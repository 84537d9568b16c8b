"""Changes arrays of a file for a model of another image size or another head, in NumPy.

Four changes are possible, and the user asks for each of them: position embeddings move to another
grid, patches get another size, the head is replaced, and the representation layer is left out.
Every other array must match.
"""

import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.interpolate import resampling_matrix
from keras_vit.text import log


def resize_positions(
    embedding: np.ndarray,
    source: tuple[int, int],
    target: tuple[int, int],
    prefix: int,
    method: str = "bilinear_align_corners",
) -> np.ndarray:
    """Resizes position embeddings to another patch grid.

    Rows of the tokens in front of the patches are not changed. Source: `interpolate_posembed` of
    `vit_jax/checkpoint.py`, with which the default agrees to 1e-7; unlike the source, this
    function also resizes to another grid with the same number of positions.

    Args:
        embedding: `(1, prefix + rows * columns, hidden_size)`.
        source, target: grids (rows, columns).
        prefix: number of rows that belong to tokens in front of the patches.
        method: see `keras_vit.Numerics.position_resize`.

    Returns:
        float32 `(1, prefix + target rows * columns, hidden_size)`.
    """
    if source == target:
        return embedding
    head, grid = embedding[:, :prefix], embedding[0, prefix:]
    grid = grid.reshape(*source, -1).astype(np.float64)
    by_row = resampling_matrix(source[0], target[0], method)
    by_column = resampling_matrix(source[1], target[1], method)
    grid = np.einsum("ri,ijm,cj->rcm", by_row, grid, by_column, optimize=True)
    grid = grid.reshape(1, target[0] * target[1], -1).astype(np.float32)
    return np.concatenate([head.astype(np.float32), grid], axis=1)


def resize_patches(kernel: np.ndarray, target: tuple[int, int]) -> np.ndarray:
    """Resizes the projection of patches so that resized patches get the tokens of the old ones.

    The kernel is multiplied by the pseudo-inverse of the matrix by which a bilinear resize
    (half-pixel, without antialias) acts on a patch, transposed. The inner products stay the same
    where patches grow; where patches shrink, it is the nearest kernel (FlexiViT, Beyer et al. 2023,
    arXiv 2212.08013, section 3.4; `resample_patchemb` of `big_vision/models/proj/flexi/vit.py`).

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


def adapt(path: str, array: np.ndarray, stored: ViTConfig, wanted: ViTConfig) -> np.ndarray | None:
    """Returns the array for the weight `path` of the wanted model, or None to leave it out.

    Args:
        path: path of the weight.
        array: the array of the file.
        stored, wanted: configurations of the file and of the model.
    """
    if path.startswith("head/") and replaces_head(stored, wanted):
        return None
    if path.startswith("pre_logits/") and wanted.representation_size is None:
        return None
    if path == "position_embedding/embedding" and stored.source_grid != wanted.source_grid:
        return resize_positions(
            array,
            stored.source_grid,
            wanted.source_grid,
            stored.num_prefix_positions,
            wanted.numerics.position_resize,
        )
    if path == "patch_embedding/kernel" and stored.patch_size != wanted.patch_size:
        return resize_patches(array, wanted.patch_size)
    return array


def adapted_dtype(path: str, dtype: np.dtype, stored: ViTConfig, wanted: ViTConfig) -> np.dtype:
    """Returns the type that `adapt` gives an array of this type."""
    grids = stored.source_grid != wanted.source_grid
    patches = stored.patch_size != wanted.patch_size
    resized = {"position_embedding/embedding": grids, "patch_embedding/kernel": patches}
    return np.dtype("float32") if resized.get(path) else dtype


def replaces_head(stored: ViTConfig, wanted: ViTConfig) -> bool:
    """Whether the stored head cannot serve the wanted model."""
    width = (stored.num_classes, stored.representation_size)
    return width != (wanted.num_classes, wanted.representation_size)


def announce(path: str, stored: ViTConfig, wanted: ViTConfig) -> None:
    """Logs one line for each difference between the model and the file."""
    if replaces_head(stored, wanted):
        if wanted.num_classes:
            log.info(
                "%s: new head with zero weights for %d classes; the file has %s.",
                path,
                wanted.num_classes,
                f"{stored.num_classes} classes" if stored.num_classes else "no head",
            )
        else:
            log.info("%s: the head (%d classes) is left behind.", path, stored.num_classes)
    if stored.representation_size is not None and wanted.representation_size is None:
        log.info("%s: pre_logits is left behind, as before fine-tuning.", path)
    if stored.patch_size != wanted.patch_size:
        log.info(
            "%s: the projection of patches resized from %dx%d to %dx%d pixels.",
            path,
            *stored.patch_size,
            *wanted.patch_size,
        )
    if wanted.position == "learned" and stored.source_grid != wanted.source_grid:
        log.info(
            "%s: position embeddings resized from %dx%d to %dx%d (%s).",
            path,
            *stored.source_grid,
            *wanted.source_grid,
            wanted.numerics.position_resize,
        )
    if wanted.image_size and any(wanted.remainder_of(wanted.image_size)):
        log.info("%s: pixels that fill no patch are dropped, as by the reference.", path)
