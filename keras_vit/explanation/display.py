"""Visualization of heatmaps and of patch features: brightness, and PCA as colours."""

import numpy as np


def brightness(maps: np.ndarray) -> np.ndarray:
    """Returns heatmaps scaled to [0, 1] for display; negative values become 0.

    The scale of a map goes from its 2nd to its 98th percentile, and values outside are clipped.
    Trained models give a few patches values far above the rest (arXiv 2309.16588); on a scale up
    to the maximum, the rest would be black.

    Args:
        maps: maps of patches or pixels, `(..., rows, columns)`.

    Returns:
        The maps, float32 of the same shape; a map of equal values is 0.
    """
    maps = np.maximum(maps, 0).astype("float32")
    low, high = np.percentile(maps, (2, 98), axis=(-2, -1), keepdims=True)
    high = np.where(high > low, high, maps.max(axis=(-2, -1), keepdims=True))
    return np.clip((maps - low) / np.maximum(high - low, 1e-12), 0, 1).astype("float32")


def patch_colours(patches: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Returns a colour for each patch: the first three principal components (PCA) as RGB.

    Similar features get similar colours, within an image and across images, because one PCA is
    fitted to all images. The features are scaled to length 1 first, so that a few patches of large
    norm do not dominate.

    Args:
        patches: features of the patches, `(batch, rows, columns, hidden_size)`, such as
            `model.tokens(images).patches`.
        mask: bool `(batch, rows, columns)`, the patches to fit and to colour, such as the result
            of `foreground`; None for all.

    Returns:
        Colours in [0, 1], float32 `(batch, rows, columns, 3)`; black outside the mask.
    """
    mask = np.ones(patches.shape[:3], bool) if mask is None else mask
    parts = _components(patches[mask])[:, :3]  # (patches in the mask, up to 3)
    low, high = np.percentile(parts, (2, 98), axis=0)
    colours = np.zeros((*mask.shape, 3), "float32")
    colours[mask, : parts.shape[1]] = np.clip((parts - low) / np.maximum(high - low, 1e-12), 0, 1)
    return colours


def foreground(patches: np.ndarray) -> np.ndarray:
    """Returns which patches show an object and not the background.

    The sign of the first principal component separates them, as in DINOv2's paper (arXiv
    2304.07193, section 7.5). The sign with fewer patches on the border of the images is the object.

    Args:
        patches: as for `patch_colours`; all images take part in one fit.

    Returns:
        bool `(batch, rows, columns)`.
    """
    first = _components(patches.reshape(-1, patches.shape[-1]))[:, 0].reshape(patches.shape[:3])
    is_object = first > 0
    border = np.ones(patches.shape[1:3], bool)
    border[1:-1, 1:-1] = False
    return is_object if is_object[:, border].mean() < 0.5 else ~is_object


def _components(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors in the axes of their principal components, the first ones first."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    unit = unit - unit.mean(axis=0)
    _, axes = np.linalg.eigh(unit.T @ unit)
    return unit @ axes[:, ::-1]
