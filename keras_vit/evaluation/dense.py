"""A class for every pixel: a linear layer on the patches of a frozen model.

The layer is the least-squares fit to the classes of all labelled pixels, where a pixel has the
features of its patch. The fit needs patches alone: the target of a patch is the share of each class
in its labelled area, and its weight is this area times the class weights. Features are whitened and
the bias is not regularised, as in `least_squares`.

A prediction resizes the logits of the patches bilinearly to the pixels, for the whole image at once
or for windows that overlap by a third, as DINOv2's evaluation does (arXiv 2304.07193).
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from keras_vit.checkpoints.containers import beside, open_arrays
from keras_vit.config import ViTConfig
from keras_vit.config.rules import COUNT
from keras_vit.errors import CheckpointError, ConfigError, expect_model, shown
from keras_vit.evaluation.extraction import gather, hash_images, list_sources
from keras_vit.evaluation.label_maps import check_maps, label_map, measure_areas, read_map
from keras_vit.images import Preprocessor
from keras_vit.images.resampling import read_size
from keras_vit.models.inference import run
from keras_vit.models.tokens import block_index
from keras_vit.models.vision_transformer import VisionTransformer

_HEAD = "decode_head."
_HEADS = {
    "segmentation": (
        *("conv_seg.weight", "conv_seg.bias"),
        *("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"),
    ),
    "depth": ("conv_depth.weight", "conv_depth.bias"),
}
"""Task -> names of the arrays of a linear head behind `decode_head.`, its convolution first."""
_BN_EPSILON = 1e-5
"""The constant of torch's BatchNorm."""


class DenseScores(NamedTuple):
    """Quality of label maps, over all pixels that are not ignored.

    Args:
        miou: mean over classes of `iou`.
        iou: for each class, the pixels of the class that are predicted so, divided by the pixels
            that are of the class, or predicted so, or both; None for a class that is in neither.
        accuracy: share of pixels whose class is right.
    """

    miou: float
    iou: tuple[float | None, ...]
    accuracy: float


@dataclasses.dataclass(frozen=True, eq=False)
class PatchLayer:
    """A linear layer on the patches of a frozen model.

    Args:
        blocks: numbers of the blocks whose outputs are the features.
        class_token: whether the class tokens of these blocks follow the features of each patch.
        kernel, bias: float64 `(width, outputs)` and `(outputs,)`.
    """

    kind: ClassVar[str] = "/norm"
    """End of the names of the stages that the layer reads; see `graph.Stages`."""

    blocks: tuple[int, ...]
    class_token: bool
    kernel: np.ndarray
    bias: np.ndarray

    def logits(
        self, model: VisionTransformer, sources: Sequence[Any], sliding: bool, batch_size: int
    ) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
        """Yields for each of `list_sources` its size and its logits, `(rows, columns, outputs)`."""
        config = model.config
        window, grid = _check_model(model, self.class_token)
        width = config.hidden_size * len(self.blocks) * (1 + self.class_token)
        if width != len(self.kernel) or max(self.blocks) >= config.num_layers:
            raise ConfigError(
                f"The probe reads {len(self.kernel)} features of the blocks {self.blocks}; this "
                f"model has {config.num_layers} blocks, and {width} features in as many blocks."
            )
        COUNT.check("batch_size", batch_size)
        stages = _stages(self.blocks, self.kind)
        for start in range(0, len(sources), batch_size):
            sizes, plans, windows = [], [], []
            for source in sources[start : start + batch_size]:
                picture = model.preprocessor.decode(source)
                sizes.append(read_size(picture))
                target = _whole_patches(sizes[-1], window, config.stride) if sliding else window
                squash = _squash(model, target)
                pixels = squash.scale(squash.resize(picture))
                places, shape = _windows(target, grid, config.stride)
                plans.append((places, shape))
                for row, column in places:
                    top, left = row * config.stride[0], column * config.stride[1]
                    windows.append(pixels[top : top + window[0], left : left + window[1]])
            outputs = run(model, model.preprocessor.stack(windows), stages, batch_size)
            tokens = _tokens(outputs, stages, config, self.class_token)
            logits = _columns(tokens, self.class_token) @ self.kernel + self.bias
            if not np.isfinite(logits).all():
                raise ConfigError("The logits are not finite: a weight or a pixel is not finite.")
            logits = iter(logits.reshape(len(windows), *grid, -1))
            for own, (places, shape) in zip(sizes, plans, strict=True):
                total, count = np.zeros((*shape, len(self.bias))), np.zeros((*shape, 1))
                for row, column in places:
                    part = slice(row, row + grid[0]), slice(column, column + grid[1])
                    total[part] += next(logits)
                    count[part] += 1
                yield own, total / count


@dataclasses.dataclass(frozen=True, eq=False)
class DenseProbe(PatchLayer):
    """A linear classifier of the patches of a frozen model.

    Args:
        blocks: numbers of the blocks whose outputs, behind the model's last norm, are the features.
        class_token: whether the class tokens of these blocks follow the features of each patch.
        kernel, bias: float64 `(width, classes)` and `(classes,)`.
        ignore: the value of pixels without a class.
    """

    ignore: int = 255

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        model: VisionTransformer,
        *,
        blocks: Sequence[int] | None = None,
        allow_pickle_weights: bool = False,
    ) -> "DenseProbe":
        """Reads a linear head of segmentation, such as DINOv2's `..._ade20k_linear_head.pth`.

        The file has `decode_head.conv_seg.weight` `(classes, width, 1, 1)` and `bias`, and
        `decode_head.bn.*`, the batch norm before it, which becomes part of the kernel.

        Args:
            path: a `.safetensors` file, or a `.pth` file with `allow_pickle_weights`.
            model: the encoder that the head was trained on.
            blocks: the blocks that the head reads; None for as many last blocks as its width
                has room for.
            allow_pickle_weights: as for `keras_vit.checkpoints.load`.

        Raises:
            CheckpointError: the file cannot be read, is no linear head, or belongs to another
                encoder.
        """
        count, arrays = read_head(path, "segmentation", model, blocks, allow_pickle_weights)
        kernel, bias, gamma, beta, mean, variance = arrays
        scale = gamma / np.sqrt(variance + _BN_EPSILON)
        places = range(-count, 0) if blocks is None else blocks
        chosen = tuple(block_index(model, block) for block in places)
        return cls(chosen, False, scale[:, None] * kernel, bias + (beta - mean * scale) @ kernel)

    def predict(
        self,
        model: VisionTransformer,
        images: Any,
        size: tuple[int, int] | None = None,
        sliding: bool = False,
        batch_size: int = 8,
    ) -> list[np.ndarray]:
        """Returns a label map for each image, int32 `(height, width)`.

        Args:
            model: the model that the probe was fitted to.
            images: images as for `model.preprocessor`, of any sizes.
            size: (height, width) of the label maps; None for each image's own.
            sliding: False to squash the image to the model's size. True to move a window of the
                model's size over the image, enlarged if it is smaller, and average the logits.
            batch_size: images, and windows, per step.

        Raises:
            ConfigError: an image cannot be read, or the model is another.
        """
        grids = self.logits(model, list_sources(model, images), sliding, batch_size)
        return [label_map(logits, size or own) for own, logits in grids]

    def evaluate(
        self,
        model: VisionTransformer,
        images: Any,
        label_maps: Any,
        sliding: bool = False,
        batch_size: int = 8,
    ) -> DenseScores:
        """Returns mean intersection over union and pixel accuracy; arguments as for `predict`.

        Args:
            label_maps: as for `dense_probe`.

        Raises:
            ConfigError: the label maps do not fit the images or the classes.
        """
        classes = len(self.bias)
        sources = list_sources(model, images)
        check_maps(sources, label_maps, classes, self.ignore)
        confusion = np.zeros(classes**2, np.int64)
        grids = self.logits(model, sources, sliding, batch_size)
        for k, (own, logits) in enumerate(grids):
            truth = read_map(label_maps[k], k)
            is_labelled = truth != self.ignore
            pairs = classes * truth[is_labelled] + label_map(logits, own)[is_labelled]
            confusion += np.bincount(pairs, minlength=classes**2)
        table = confusion.reshape(classes, classes)
        right, either = np.diag(table), table.sum(axis=0) + table.sum(axis=1) - np.diag(table)
        iou = [int(r) / int(e) if e else None for r, e in zip(right, either, strict=True)]
        mean = float(np.mean([share for share in iou if share is not None]))
        return DenseScores(mean, tuple(iou), float(right.sum() / table.sum()))


def dense_probe(
    model: VisionTransformer,
    images: Any,
    label_maps: Any,
    *,
    blocks: Sequence[int] = (-1,),
    class_token: bool = False,
    num_classes: int | None = None,
    ignore: int = 255,
    class_weights: Sequence[float] | None = None,
    l2: float = 10.0,
    batch_size: int = 32,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> DenseProbe:
    """Fits a linear layer on the patches of a frozen model to label maps (semantic segmentation).

    Images are squashed to the model's size, without a crop.

    Args:
        model: a `VisionTransformer` of a fixed size. It is not changed.
        images: images as for `model.preprocessor`: a list of paths, an array of pixels.
        label_maps: a class for each pixel of each image: integers `(images, height, width)`, or
            a list of such maps, or of paths of PNG files whose values are the classes (with a
            palette, its indices).
        blocks: the blocks whose outputs, behind the last norm, are the features; negative numbers
            count from the end.
        class_token: whether the class token is added to the features of each patch.
        num_classes: number of classes; None for the largest in the label maps.
        ignore: the value of pixels without a class.
        class_weights: a weight for the pixels of each class; None for 1.
        l2: strength of the regularisation, for whitened features and one row per patch.
        batch_size: images per step.
        cache: a folder that keeps the features, as for `keras_vit.evaluation.features`.
        progress: whether a bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: the label maps are more or fewer than the images, of another size, or have
            values beyond the classes; the features are the same in all patches; the model has no
            such block, no class token, or no fixed size.
    """
    window, grid = _check_model(model, class_token)
    chosen = tuple(block_index(model, block) for block in blocks)
    if not chosen or not 0 < l2 < np.inf:
        raise ConfigError(
            f"blocks={blocks!r}, l2={l2!r}: expected one block or more, and a positive l2."
        )
    sources = list_sources(model, images)
    classes = check_maps(sources, label_maps, num_classes, ignore)
    weights = np.ones(classes) if class_weights is None else np.asarray(class_weights)
    are_numbers = weights.shape == (classes,) and weights.dtype.kind in "fiu"
    if not are_numbers or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ConfigError(
            f"class_weights: expected {classes} numbers from 0, one per class; found "
            f"{shown(class_weights, quoted=False)}."
        )
    squash = _squash(model, window)
    stages = _stages(chosen, DenseProbe.kind)
    name = ""
    if cache is not None:
        name = f"dense-{hash_images(squash, sources)}-{'token-' * class_token}patches"

    def reduce(outputs: dict[str, np.ndarray]) -> np.ndarray:
        return _tokens(outputs, stages, model.config, class_token)

    batches = (images for _, images in squash.batches(sources, batch_size))
    values, _ = gather(model, stages, reduce, batches, batch_size, cache, progress, name)
    areas = (
        weights * measure_areas(read_map(labels, k), grid, classes, ignore)
        for k, labels in enumerate(label_maps)
    )
    patches = (_columns(tokens, class_token) for tokens in values)
    return DenseProbe(chosen, class_token, *_solve(zip(patches, areas, strict=True), l2), ignore)


def read_head(
    path: str | os.PathLike[str],
    task: str,
    model: VisionTransformer,
    blocks: Sequence[int] | None,
    allow_pickle_weights: bool,
) -> tuple[int, list[np.ndarray]]:
    """Returns the number of blocks that a linear head reads, and its arrays in float64.

    The first two arrays are kernel `(width, outputs)` and bias of its convolution.

    Args:
        path: a file.
        task: `"segmentation"`, or `"depth"`, whose heads read class tokens too.
        model: the encoder that the head was trained on.
        blocks: blocks that were chosen, or None.
        allow_pickle_weights: as for `keras_vit.checkpoints.load`.

    Raises:
        CheckpointError: the file cannot be read, is no linear head for the task, or its width does
            not fit the blocks.
    """
    expected = [_HEAD + name for name in _HEADS[task]]
    with open_arrays(path, allow_pickle_weights=allow_pickle_weights) as file:
        reader = beside(file, expected[0])
        names = sorted(reader.shapes)
        if missing := set(expected) - set(names):
            raise CheckpointError(
                f"{path}: expected a linear head of {task}, which has {shown(min(missing))}; "
                f"found {shown(names[:5], quoted=False)}. DenseProbe reads heads of segmentation, "
                "DepthProbe heads of depth; DPT and Mask2Former are not supported."
            )
        kernel, bias, *further = (reader.read(name).astype("float64") for name in expected)
    for name, array in zip(expected, (kernel, bias, *further), strict=True):
        low = 0 if name.endswith("var") else -np.inf
        if not np.isfinite(array).all() or (array < low).any() or 0 in array.shape:
            raise CheckpointError(f"{path}: {name} is empty, not finite or a negative variance.")
    if kernel.shape[2:] != (1, 1) or bias.shape != kernel.shape[:1]:
        raise CheckpointError(
            f"{path}: {expected[0]} has shape {kernel.shape}, expected (outputs, width, 1, 1) for "
            f"a bias of shape {bias.shape}."
        )
    if any(array.shape != kernel.shape[1:2] for array in further):
        raise CheckpointError(
            f"{path}: {_HEAD}bn has arrays of shape {[array.shape for array in further]}, expected "
            f"{kernel.shape[1:2]}, the width of {expected[0]}."
        )
    hidden_size, width = model.config.hidden_size, kernel.shape[1]
    of_block, tokens = hidden_size, ""
    if task == "depth":
        of_block, tokens = 2 * hidden_size, ", patch and class token"
    count = width // of_block if blocks is None else len(blocks)
    if width != count * of_block or not 0 < count <= model.config.num_layers:
        times = "a multiple of" if blocks is None else f"{count} times"
        raise CheckpointError(
            f"{path}: the head reads {width} features; expected {times} {of_block} for "
            f"hidden_size={hidden_size} of this model{tokens}. It belongs to another encoder."
        )
    return count, [kernel[:, :, 0, 0].T, bias, *further]


def _check_model(
    model: VisionTransformer, class_token: bool
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the size of the model's images and of its grid of patches."""
    config = expect_model(model).config
    config.refuse_packed("A dense probe")
    if config.image_size is None or any(config.compute_remainder(config.image_size)):
        raise ConfigError(
            f"image_size={config.image_size}: expected a fixed size that patches of "
            f"{config.patch_size} fill. Load the model with image_size=...; larger images are "
            "predicted with sliding=True."
        )
    if class_token and not config.has_class_token:
        raise ConfigError("class_token=True, but this model has no class token.")
    return config.image_size, config.compute_grid(config.image_size)


def _stages(blocks: Sequence[int], kind: str) -> list[str]:
    return [f"block_{block}{kind}" for block in blocks]


def _tokens(
    outputs: dict[str, np.ndarray], stages: Sequence[str], config: ViTConfig, class_token: bool
) -> np.ndarray:
    """Returns the patches of the stages beside each other, behind the class tokens if chosen."""
    tokens = np.concatenate([outputs[stage] for stage in stages], axis=-1)
    patches = tokens[:, config.num_prefix_tokens :]
    if not class_token:
        return patches
    mean = tokens[:, : config.num_class_tokens].mean(axis=1, keepdims=True)
    return np.concatenate([mean, patches], axis=1)


def _columns(tokens: np.ndarray, class_token: bool) -> np.ndarray:
    """Returns the features of each patch, `(..., patches, width)`."""
    if not class_token:
        return tokens
    patches = tokens[..., 1:, :]
    return np.concatenate([patches, np.broadcast_to(tokens[..., :1, :], patches.shape)], axis=-1)


def _squash(model: VisionTransformer, size: tuple[int, int]) -> Preprocessor:
    """Returns a preprocessor that resizes the whole image, in the model's range."""
    mean, std = model.preprocessor.normalisation
    protocol = {"name": "transformers", "mean": mean, "std": std}
    return dataclasses.replace(model.preprocessor, image_size=size, protocol=protocol)


def _solve(
    pairs: Iterable[tuple[np.ndarray, np.ndarray]], l2: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel and bias for features `(patches, width)` and areas `(patches, classes)`."""
    shift, gram, product = None, np.zeros(1), np.zeros(1)
    for features, areas in pairs:
        x = features.astype("float64")
        shift = x.mean(axis=0) if shift is None else shift  # against cancellation in the products
        x = np.pad(x - shift, ((0, 0), (0, 1)), constant_values=1)  # the last column is the bias's
        gram = gram + (x * areas.sum(axis=1, keepdims=True)).T @ x
        product = product + x.T @ areas
    total, target = gram[-1, -1], product[-1]
    if not total:
        raise ConfigError("class_weights are 0 for all classes that the label maps have.")
    mean = gram[-1, :-1] / total
    gram = gram[:-1, :-1] - total * np.outer(mean, mean)
    deviation = np.sqrt(np.maximum(np.diag(gram), 0) / total)
    if not (deviation > 1e-5 * (1 + np.abs(mean + shift))).any():
        raise ConfigError("The features are the same in all labelled patches.")
    std = deviation + 1e-5
    penalised = gram / np.outer(std, std) + l2 * np.eye(len(std))
    whitened = (product[:-1] - np.outer(mean, target)) / std[:, None]
    kernel = np.linalg.solve(penalised, whitened) / std[:, None]
    return kernel, target / total - (mean + shift) @ kernel


def _whole_patches(
    size: tuple[int, int], window: tuple[int, int], stride: tuple[int, int]
) -> tuple[int, int]:
    """Returns the size nearest to the image's that whole patches fill and that holds the window."""
    scale = max(1.0, *(least / side for least, side in zip(window, size, strict=True)))
    height, width = (
        max(least, round(side * scale / patch) * patch)
        for side, least, patch in zip(size, window, stride, strict=True)
    )
    return height, width


def _windows(
    size: tuple[int, ...], grid: tuple[int, int], stride: tuple[int, int]
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Returns the first row and column of each window, and the image's grid of patches."""
    shape = tuple(side // patch for side, patch in zip(size, stride, strict=True))
    starts = [
        sorted({*range(0, whole - part, max(1, 2 * part // 3)), whole - part})
        for whole, part in zip(shape, grid, strict=True)
    ]
    return list(itertools.product(*starts)), shape
