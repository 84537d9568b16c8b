"""Writes the features of any number of image files batch by batch to one npy file."""

import itertools
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_vit.config.pool import StagePooling
from keras_vit.config.rules import COUNT
from keras_vit.errors import ConfigError, expect_model
from keras_vit.evaluation.batches import Batch, predict
from keras_vit.evaluation.extraction import OUTPUT_DTYPES, finite, hash_files, identify
from keras_vit.evaluation.parts import Parts
from keras_vit.models.tokens import choose_stage
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import OnError, check_on_error
from keras_vit.support.files import new_file, write_json
from keras_vit.support.progress import progress_bar


class Embedding(NamedTuple):
    """The result of `embed`: the number of rows, and the images that could not be read."""

    num_images: int
    unreadable: list[str]


def embed(
    model: VisionTransformer,
    images: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    stage: str | None = None,
    *,
    pooling: StagePooling | None = None,
    output_dtype: str = "float32",
    batch_size: int = 32,
    on_error: OnError = "raise",
    progress: bool = False,
) -> Embedding:
    """Extracts the features (embeddings) of image files and writes them to a file.

    The next batch is decoded while the model computes. An interrupted call leaves its rows in the
    folder `OUT.part`; the same call resumes from there, and the result is the same to the byte.
    `path` exists only once it is complete.

    If several processes share the model's distribution on JAX, the first one writes.

    Args:
        model: a `VisionTransformer`.
        images: paths of image files; `model.preprocessor` prepares them.
        path: `NAME.npy` for `(images, width)`; the list of paths is written to `NAME.npy.json`.
        stage, pooling, output_dtype: as in `keras_vit.evaluation.features`.
        batch_size: images per step.
        on_error: `"raise"` for an error if an image cannot be read; `"skip"` to skip such images,
            which then have no row, with a warning; or a function that is called with the path and
            the error of each, also for images of the interrupted call.
        progress: whether a progress bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: `path` exists, has another suffix, or belongs to another unfinished run; the
            model has no such stage or pooling; no image can be read; or features are not finite,
            or too large for `output_dtype`.
    """
    path = new_file(path, ".npy")
    COUNT.check("batch_size", batch_size)
    tell = check_on_error(on_error)
    OUTPUT_DTYPES.check("output_dtype", output_dtype)
    names = list(dict.fromkeys(map(os.fsdecode, images)))
    if not names:
        raise ConfigError("No image was given.")
    stage = choose_stage(expect_model(model), stage, pooling)
    task = {
        **identify(model, stage, output_dtype),
        "protocol": model.preprocessor.protocol,
        "pixel_range": model.preprocessor.pixel_range,
        "draft": model.preprocessor.draft,
        "batch_size": min(batch_size, len(names)),
        "files": hash_files(names),
    }
    position = {name: k for k, name in enumerate(names)}
    failures: list[tuple[int, str]] = []  # of the present batch; the next is not decoded yet

    def skip(name: str, reason: ConfigError) -> None:
        if tell is None:
            raise reason
        tell(name, reason)
        failures.append((position[name], str(reason)))

    with Parts(path, task) as parts, progress_bar(progress, "Embedding", len(names)) as advance:
        if tell is not None:
            for k, reason in parts.notes:
                tell(names[k], ConfigError(reason))
        advance(parts.inputs)
        prepared = model.preprocessor.batches(names[parts.inputs :], batch_size, skip)
        batches = (Batch(images, items) for items, images in prepared)
        outputs = predict(model, [stage], batches, task["batch_size"])
        end = [({stage: np.empty(0)}, None)]  # images after the last batch may be unreadable
        for stages, _ in itertools.chain(outputs, end):
            rows = finite(stages[stage], output_dtype)
            inputs = len(rows) + len(failures)
            parts.append(rows, inputs, failures)
            failures.clear()
            advance(inputs)
        if not parts.count:
            parts.clear()
            raise ConfigError(f"All {len(names)} images are unreadable.")
        missing = sorted(k for k, _ in parts.notes)
        readable = np.delete(np.arange(len(names)), missing)
        embedding = Embedding(len(readable), [names[k] for k in missing])
        if parts.are_written_here:
            about = {key: task[key] for key in ("stage", "weights", "dtype", "protocol")}
            lists = {"paths": [names[k] for k in readable], "unreadable": embedding.unreadable}
            write_json(path.with_name(path.name + ".json"), {**about, **lists})
        parts.finish()
    return embedding
