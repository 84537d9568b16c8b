"""Features of any number of image files, written batch by batch to one npy or Parquet file."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.evaluation.batches import Batch, predicted
from keras_vit.evaluation.extraction import files_digest, identity_of
from keras_vit.evaluation.rows import Rows, RowsElsewhere, rows_of_all
from keras_vit.files import write_json, written_beside
from keras_vit.model import VisionTransformer

_ROW_GROUP = 4096


class Embedding(NamedTuple):
    """The result of `embed`: the number of rows, and the images that could not be read."""

    num_images: int
    unreadable: list[str]


def embed(
    model: VisionTransformer,
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    layer: str = "pre_logits",
    *,
    batch_size: int = 32,
    unreadable: Callable[[str, ConfigError], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Embedding:
    """Writes the features of image files; the next batch is decoded while the model works.

    An interrupted call leaves its rows in `OUT.part`; the same call continues from there, and
    the result is the same to the byte. `out` exists only once it is complete.

    Of several processes that share the model's distribution on JAX, the first writes.

    Args:
        model: a `VisionTransformer`.
        paths: paths of the images; `model.preprocessor` prepares them.
        out: `NAME.npy` for float32 `(images, width)`, with the list of paths beside it in
            `NAME.npy.json`; or `NAME.parquet` with the columns `path` and `features`.
        layer: name of the layer, as in `keras_vit.features`.
        batch_size: images per step.
        unreadable: called with the path of an image that cannot be read and the reason, also
            for images of the interrupted call; such an image has no row. None raises the reason.
        progress: called with the number of images after each batch.

    Raises:
        ConfigError: `out` exists, has another suffix, or belongs to another unfinished run; the
            model has no such layer; no image can be read.
    """
    out = Path(out)
    if out.suffix not in (".npy", ".parquet"):
        raise ConfigError(f"{out}: expected a name in .npy or .parquet.")
    if out.suffix == ".parquet":
        _pyarrow()
    if out.exists():
        raise ConfigError(f"{out} exists. Remove it, or choose another name.")
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size}, expected at least 1.")
    names = list(dict.fromkeys(map(os.fsdecode, paths)))
    if not names:
        raise ConfigError("No image was given.")
    if out.suffix == ".parquet":
        _check_names(names)
    model.check_stages([layer])
    if out.suffix == ".parquet" and len(model.stage_shape(layer)) != 2:
        raise ConfigError(f"layer={layer!r} has several tokens per image; write them to .npy.")
    size = min(batch_size, len(names))
    task = {
        **identity_of(model, layer),
        "protocol": model.preprocessor.protocol,
        "batch_size": size,
        "files": files_digest(names),
    }
    with rows_of_all(out, task) as rows:
        _fill(rows, layer, model, names, size, unreadable, progress)
        if rows.count == 0:
            rows.clear()
            raise ConfigError(f"None of {len(names)} images can be read.")
        unread = {k for k, _ in rows.notes}
        kept = [name for k, name in enumerate(names) if k not in unread]
        left_out = [names[k] for k in sorted(unread)]
        about = {key: task[key] for key in ("layer", "weights", "dtype", "protocol")}
        if isinstance(rows, RowsElsewhere):
            return Embedding(len(kept), left_out)
        whole = rows.finish()
        if out.suffix == ".npy":
            write_json(_beside(out), {**about, "paths": kept, "unreadable": left_out})
            whole.replace(out)
        else:
            _write_parquet(out, np.load(whole, mmap_mode="r"), kept, about)
        rows.clear()
    return Embedding(len(kept), left_out)


def _fill(
    rows: Rows | RowsElsewhere,
    layer: str,
    model: VisionTransformer,
    names: list[str],
    size: int,
    unreadable: Callable[[str, ConfigError], None] | None,
    progress: Callable[[int], None] | None,
) -> None:
    """Appends the missing rows; a note is the number of an unreadable image and the reason."""
    for k, reason in rows.notes:
        if unreadable is not None:
            unreadable(names[k], ConfigError(reason))
    position = {name: k for k, name in enumerate(names)}
    left_out: list[tuple[int, str]] = []

    def leave_out(name: str, reason: ConfigError) -> None:
        if unreadable is None:
            raise reason
        unreadable(name, reason)
        left_out.append((position[name], str(reason)))

    def advance(inputs: int) -> None:
        if progress is not None and inputs:
            progress(inputs)

    advance(rows.done)
    prepared = model.preprocessor.batches(names[rows.done :], size, leave_out)
    batches = (Batch(images, items) for items, images in prepared)
    for values, items in predicted(model, layer, batches, size):
        # `left_out` holds the unreadable images of this batch; the next batch's are not known yet.
        inputs = len(items) + len(left_out)
        rows.append(values, inputs, left_out)
        left_out.clear()
        advance(inputs)
    rows.pass_over(len(left_out), left_out)
    advance(len(left_out))


def _check_names(names: list[str]) -> None:
    """Refuses file names that Parquet cannot hold, before any image is read."""
    for name in names:
        if not name.isascii() and name != name.encode(errors="replace").decode():
            raise ConfigError(
                f"{name}: the name of this file is no UTF-8, the only text that Parquet holds. "
                "Rename the file, or write to .npy."
            )


def _beside(out: Path) -> Path:
    return out.with_name(out.name + ".json")


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow: pip install 'keras-vit[parquet]'.") from error
    return pyarrow


def _write_parquet(out: Path, values: np.ndarray, paths: list[str], about: dict[str, Any]) -> None:
    pa = _pyarrow()
    width = values.shape[1]
    schema = pa.schema(
        [("path", pa.string()), ("features", pa.list_(pa.float32(), width))],
        metadata={"keras_vit": json.dumps(about)},
    )
    # Features rarely repeat, so a dictionary of values would be as long as the values.
    options = {"use_dictionary": False}
    with (
        written_beside(out) as temporary,
        pa.parquet.ParquetWriter(temporary, schema, **options) as writer,
    ):
        for start in range(0, len(values), _ROW_GROUP):
            part = np.ascontiguousarray(values[start : start + _ROW_GROUP])
            columns = [
                pa.array(paths[start : start + _ROW_GROUP]),
                pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), width),
            ]
            writer.write_table(pa.table(columns, schema=schema))
