"""`Embed` and `Classify`: one row per image, with the features or labels, or the error."""

import itertools
import math
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit.checkpoints.loading import load_to_answer
from keras_vit.config import ImageSize
from keras_vit.config.pool import STAGE_POOLINGS, StagePooling
from keras_vit.config.rules import COUNT
from keras_vit.data.records import Encoded
from keras_vit.errors import ConfigError
from keras_vit.evaluation.extraction import OUTPUT_DTYPES
from keras_vit.images.class_names import top_labels
from keras_vit.models.inference import run
from keras_vit.models.tokens import choose_stage
from keras_vit.ray.storage import is_address, pyarrow, read_bytes

IMAGE_COLUMNS = ("image", "bytes", "path")
"""The columns that may hold images, as Ray's `read_images` and `read_binary_files` name them."""


_NOT_FINITE = (
    "The model's output is NaN or infinity: a weight or pixel is not finite, or too large for the "
    "dtype policy of the model or for output_dtype, such as float16."
)


class _PerImage:
    """A model in a worker, which turns rows with images into rows with its outputs.

    Args:
        source: as for `VisionTransformer.from_preset`; each worker loads it.
        dtype: as for `VisionTransformer.from_preset`, such as `"mixed_bfloat16"`.
        image_size: pixels, an int or a pair (height, width); None for the size of the preset,
            `(None, None)` to take each image at its own size.
        column: the column of the images: file names, addresses such as `s3://bucket/a.jpg`,
            encoded bytes or arrays of pixels. None for the first of `IMAGE_COLUMNS` that exists.
        batch_size: images per step of the model, however many rows a call has.
        threads: threads that decode; None for one per processor that Ray gave the actor
            (`num_cpus`), or else one per processor of the machine.

    Raises:
        ConfigError: pyarrow is not installed, or the source cannot be loaded.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        dtype: Any = None,
        image_size: ImageSize = None,
        column: str | None = None,
        batch_size: int = 32,
        threads: int | None = None,
    ) -> None:
        pyarrow()
        COUNT.check("batch_size", batch_size)
        COUNT.check("threads", 1 if threads is None else threads)
        self.model = load_to_answer(os.fspath(source), dtype=dtype, image_size=image_size)
        self._column = column
        self._batch_size = batch_size
        self._pool = ThreadPoolExecutor(threads or _processors(), "keras_vit-images")

    def __call__(self, batch: Mapping[str, Any]) -> Any:
        """Returns the rows without their images, with the outputs and a column `error`.

        Args:
            batch: columns of a batch in the format `"numpy"`, the default of `map_batches`,
                or `"pandas"`.

        Returns:
            A `pyarrow.Table`. An image that is unreadable, or whose output is not finite, has null
            as its output and the reason in `error`; all other images have null there. The column of
            the images is kept if it is `path`.

        Raises:
            ConfigError: the rows have no column of images, or have one with the name of an output.
        """
        pa = pyarrow()
        column = self._column or next((name for name in IMAGE_COLUMNS if name in batch), None)
        if column is None or column not in batch:
            raise ConfigError(
                f"No column {column or ' or '.join(IMAGE_COLUMNS)}; found {', '.join(batch)}. Give "
                "the name of the image column, column=."
            )
        paths = batch["path"] if "path" in batch else itertools.repeat(None)
        images = [_image(value, path) for value, path in zip(batch[column], paths, strict=False)]
        kept = [name for name in batch if name not in (column, "path")]
        others = {name: pa.array(list(batch[name])) for name in kept}
        if "path" in batch:  # pandas has NaN for an absent path
            others["path"] = pa.array(list(batch["path"]), pa.string(), from_pandas=True)
        answers, errors = self._answer(images)
        columns = self._columns(answers)
        if lost := [name for name in kept if name in columns]:
            raise ConfigError(f"Column {lost[0]} would be overwritten: use rename_columns.")
        return pa.table({**others, **columns, "error": pa.array(errors, pa.string())})

    def _answer(self, images: Sequence[Any]) -> tuple[list[Any], list[str | None]]:
        """Returns an output or None, and None or an error, for each image."""
        answers: list[Any] = [None] * len(images)
        errors: list[str | None] = [None] * len(images)
        prepared = enumerate(self._pool.map(self._prepare, images))  # threads decode ahead
        while step := list(itertools.islice(prepared, self._batch_size)):
            # A model of any size takes images of one size at a time; an error has no size.
            for size, group in itertools.groupby(step, lambda pair: getattr(pair[1], "shape", ())):
                places, results = zip(*group, strict=True)
                if not size:
                    for k, error in zip(places, results, strict=True):
                        errors[k] = str(error)
                    continue
                rows = self._compute(self.model.preprocessor.stack(results), self._batch_size)
                for k, row in zip(places, rows, strict=True):
                    answers[k] = row
                    errors[k] = _NOT_FINITE if row is None else None
        return answers, errors

    def _prepare(self, image: Any) -> np.ndarray | ConfigError:
        """Returns float32 `(height, width, channels)`, or the error of an unreadable image.

        An image smaller than a patch is unreadable for a model of any size.
        """
        if isinstance(image, str) and is_address(image):
            try:
                image = Encoded(read_bytes(image), image)
            except ConfigError as error:
                return error
        pixels = self.model.preprocessor.prepare(image)
        high, wide = self.model.config.stride
        if isinstance(pixels, np.ndarray) and (pixels.shape[0] < high or pixels.shape[1] < wide):
            size = f"{pixels.shape[0]}x{pixels.shape[1]} pixels"
            return ConfigError(f"{size}, expected at least {high}x{wide}, a patch.")
        return pixels

    def _compute(self, images: np.ndarray, size: int) -> Sequence[Any]:
        """Returns the output for each prepared image, or None if it is not finite.

        A full step has `size` images.
        """
        raise NotImplementedError

    def _columns(self, answers: Sequence[Any]) -> dict[str, Any]:
        """Returns columns with the outputs, which are None for unreadable images."""
        raise NotImplementedError


class Embed(_PerImage):
    """Extracts the features of images, in `ray.data.Dataset.map_batches`.

    A call adds the column `features`, lists of the stage's width, and the column `error`::

        images = ray.data.read_binary_files("photos", include_paths=True)
        rows = images.map_batches(
            keras_vit.ray.Embed,
            fn_constructor_args=["vit_b16.augreg_i21k_224"],
            compute=ray.data.ActorPoolStrategy(size=4),
            batch_size=256,
        )
        rows.write_parquet("features")

    Args:
        source: as for `VisionTransformer.from_preset`; each worker loads it.
        stage, pooling, output_dtype: as in `keras_vit.evaluation.features`.
        **options: dtype, as for `from_preset`; image_size, None for the size of the preset,
            `(None, None)` to take each image at its own size; column, the column of the images,
            None for `image`, `bytes` or `path`; batch_size, images per step of the model (32);
            threads that decode, None for one per processor that Ray gave the actor (`num_cpus`),
            or one per processor of the machine.

    Raises:
        ConfigError: the source cannot be loaded, the model has no such stage or pooling, or the
            stage has several tokens per image.
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        stage: str | None = None,
        *,
        pooling: StagePooling | None = None,
        output_dtype: str = "float32",
        **options: Any,
    ) -> None:
        STAGE_POOLINGS.check("pooling", pooling)  # before a model is loaded
        OUTPUT_DTYPES.check("output_dtype", output_dtype)
        super().__init__(source, **options)
        self._output_dtype = output_dtype
        self._stage = choose_stage(self.model, stage, pooling)
        shape = self.model._stage_shape(self._stage)
        if len(shape) != 2:
            raise ConfigError(
                f"stage={self._stage!r} has outputs of shape {shape}; expected one vector per "
                "image. Pool the tokens of a block: pooling='gap', or with a class token 'token' "
                "or 'token_and_mean'."
            )
        self._width = int(shape[1] or 0)

    def _compute(self, images: np.ndarray, size: int) -> Sequence[Any]:
        values = run(self.model, images, [self._stage], size)[self._stage]
        with np.errstate(over="ignore"):
            values = values.astype(self._output_dtype, copy=False)
        return [row if np.isfinite(row).all() else None for row in values]

    def _columns(self, answers: Sequence[Any]) -> dict[str, Any]:
        pa = pyarrow()
        number = pa.from_numpy_dtype(self._output_dtype)
        return {"features": pa.array(answers, pa.list_(number, self._width))}


class Classify(_PerImage):
    """Classifies images, in `ray.data.Dataset.map_batches`.

    A call adds the columns `labels`, lists of names, the most probable first, `probabilities`,
    float32 lists, and `error`.

    Args:
        source: as for `VisionTransformer.from_preset`; each worker loads it.
        top: largest number of labels per image; for a multi-label model only labels that reach
            their decision threshold.
        **options: as for `Embed`.

    Raises:
        ConfigError: the source cannot be loaded, the model does not have one prediction per image,
            or `top` is below 1.
    """

    def __init__(self, source: str | os.PathLike[str], top: int = 5, **options: Any) -> None:
        COUNT.check("top", top)
        super().__init__(source, **options)
        self.model.config.demand_prediction("Classify")
        self.model.prediction.demand_classes("Classify")
        self._top = top

    def _compute(self, images: np.ndarray, size: int) -> Sequence[Any]:
        shares = self.model.probabilities(images, size, prepared=True)
        are_finite = np.isfinite(shares).all(axis=1).tolist()
        shares = np.nan_to_num(shares)
        labels = top_labels(shares, self.model.class_names, self._top, self.model.thresholds)
        return [row if fine else None for row, fine in zip(labels, are_finite, strict=True)]

    def _columns(self, answers: Sequence[Any]) -> dict[str, Any]:
        pa = pyarrow()
        labels = [None if row is None else [label for label, _ in row] for row in answers]
        shares = [None if row is None else [share for _, share in row] for row in answers]
        return {
            "labels": pa.array(labels, pa.list_(pa.string())),
            "probabilities": pa.array(shares, pa.list_(pa.float32())),
        }


def _processors() -> int:
    """Returns the processors that Ray gave this actor, or those of the machine."""
    ray = sys.modules.get("ray")
    given = 0
    if ray is not None and ray.is_initialized():
        context = ray.get_runtime_context()
        if context.get_actor_id() is not None:  # only an actor has assigned resources
            given = math.ceil(context.get_assigned_resources().get("CPU", 0))
    return given or os.cpu_count() or 1


def _image(value: Any, path: Any) -> Any:
    """Returns a cell as an image; bytes are an encoded image even if they spell a file name."""
    if isinstance(value, bytes | bytearray | memoryview):
        return Encoded(bytes(value), str(path) if path is not None else "an encoded image")
    return value
