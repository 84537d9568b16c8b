"""`write_dataset`: Ray Data computes and writes the images that no earlier run has written."""

import contextlib
import functools
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_vit import __version__
from keras_vit.environment.extras import import_extra
from keras_vit.errors import ConfigError, shown
from keras_vit.ray.models import Classify, Embed, ImageSize
from keras_vit.ray.storage import file_system, files, images_at, is_address, pyarrow

_ATTEMPTS = 10
"""Most repetitions of a part after its worker has died."""

_LARGEST_PART = 512  # images; a worker holds their pixels
_PARTS_PER_WORKER = 8

_NOT_COMPARED = ("keras_vit", "preset")


class Written(NamedTuple):
    """The result of `write_dataset`: numbers of all images, and of unreadable images, in it."""

    num_images: int
    unreadable: int


def write_dataset(
    images: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    preset: str | os.PathLike[str],
    layer: str = "pre_logits",
    *,
    top: int | None = None,
    image_size: ImageSize = "stored",
    workers: int = 1,
    batch_size: int = 32,
    cpus_per_worker: int = 1,
    gpus_per_worker: float = 0,
    unreadable: Callable[[str, str], None] | None = None,
) -> Written:
    """Writes the features or labels of images to a folder of Parquet files, by Ray workers.

    Every image has one row: `path`, then `features`, or `labels` and `probabilities`, and `error`,
    the reason if the image cannot be read. The rows are in no particular order. The metadata of
    each file has, as JSON under `keras_vit`, the preset, the sha256 of the weights, the
    configuration and the preprocessing.

    Ray runs on the cluster that the environment variable `RAY_ADDRESS` names, or to which this
    process is connected; else it starts on this machine for the duration of the call. While no
    machine has the processors of a worker, Ray prints so and waits. A part of a worker that dies
    is computed again. If this process dies, the same call writes what
    is missing; it also adds images that are new in the folders. One call at a time writes to a
    folder.

    Args:
        images: folders, whose images are taken, and single images: paths, or addresses such as
            `s3://bucket/photos`. Each machine of the cluster must be able to read them.
        out: the folder of the data set, a path or an address. Each machine must be able to write
            there.
        preset: as for `VisionTransformer.from_preset`, readable by each machine.
        layer: name of the layer, as in `keras_vit.features`.
        top: write this number of labels per image instead of features.
        image_size: as for `VisionTransformer.from_preset`; None takes each image at its own size.
        workers: number of processes, each with the model.
        batch_size: images per step of the model.
        cpus_per_worker: processors of a worker, and the number of its threads.
        gpus_per_worker: accelerators of a worker; 0.5 lets two workers share one.
        unreadable: called at the end with the path of each unreadable image and the reason, also
            of those that an earlier call found.

    Raises:
        ConfigError: Ray is not installed, the cluster cannot be reached, there is no image, the
            model does not fit, or the folder cannot be written or holds a data set of another
            model.
    """
    ray = import_extra("ray", "ray", "The engine ray")
    import_extra("ray.data", "ray", "The engine ray")
    if workers < 1 or cpus_per_worker < 1:
        raise ConfigError(
            f"workers={workers}, cpus_per_worker={cpus_per_worker}: expected at least 1 of each."
        )
    if top is not None and layer != "pre_logits":
        raise ConfigError(f"layer={layer!r} and top={top}: give one, for features or for labels.")
    kind: type[Embed | Classify] = Embed if top is None else Classify
    source = os.fspath(preset)
    source = _absolute(source) if Path(source).exists() else source
    arguments: tuple[Any, ...] = (source, layer if top is None else top)
    options: dict[str, Any] = {"batch_size": batch_size, "threads": cpus_per_worker}
    options["image_size"] = image_size
    folder = _absolute(os.fspath(out))
    names = _image_names(images)
    model = kind(*arguments, **options)
    about = {"keras_vit": __version__, "preset": source, **json.loads(json.dumps(model.about()))}
    rows = _written_rows(folder, about)
    if missing := [{"path": name} for name in names if name not in rows]:
        part = min(_LARGEST_PART, -(-len(missing) // (_PARTS_PER_WORKER * workers)))
        parts = -(-len(missing) // part)
        schema = model({"path": np.array([], object)}).schema
        schema = schema.with_metadata({"keras_vit": json.dumps(about)})
        system, path = file_system(folder)
        with _cluster(ray, folder, num_cpus=workers * cpus_per_worker + 1):
            rows_of_images = ray.data.from_items(missing, override_num_blocks=parts).map_batches(
                kind,
                fn_constructor_args=arguments,
                fn_constructor_kwargs=options,
                batch_size=part,
                compute=ray.data.ActorPoolStrategy(size=min(workers, parts)),
                num_cpus=cpus_per_worker,
                num_gpus=gpus_per_worker or None,
                ray_remote_args_fn=functools.partial(dict, max_task_retries=_ATTEMPTS),
            )
            rows_of_images.write_parquet(
                path, filesystem=system, schema=schema, use_dictionary=False
            )
        rows = _written_rows(folder, about)
    errors = {name: reason for name, reason in rows.items() if reason is not None}
    if unreadable is not None:
        for name, reason in errors.items():
            unreadable(name, reason)
    return Written(len(rows), len(errors))


def _image_names(images: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Returns the paths and addresses of all images, each once.

    Raises:
        ConfigError: there is no image, or Parquet cannot hold the name of one.
    """
    places = (_absolute(os.fspath(place)) for place in images)
    names = list(dict.fromkeys(name for place in places for name in images_at(place)))
    if not names:
        raise ConfigError("No image was given, or the folders have no image in them.")
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise ConfigError(
                f"{name}: the name of this file is no UTF-8, the only text that Parquet holds. "
                "Rename the file."
            )
    return names


def _written_rows(folder: str, about: dict[str, Any]) -> dict[str, str | None]:
    """Returns the error or None of each image in a data set.

    A file that a killed run left without its end is removed.

    Raises:
        ConfigError: a Parquet file of the folder does not belong to the data set of this model.
    """
    pa = pyarrow()
    system, _ = file_system(folder)
    rows: dict[str, str | None] = {}
    broken = []
    for info in files(folder):
        if info.extension != "parquet":
            continue
        with system.open_input_file(info.path) as stream:
            try:
                file = pa.parquet.ParquetFile(stream)
            except pa.ArrowInvalid:
                broken.append(info.path)
                continue
            _check_model(info.path, file.schema_arrow.metadata or {}, about)
            table = file.read(columns=["path", "error"])
        rows.update(zip(table["path"].to_pylist(), table["error"].to_pylist(), strict=True))
    if broken and not rows:
        raise ConfigError(
            f"{broken[0]}: is no whole Parquet file, and no other file shows that keras_vit wrote "
            "it. Remove it, or choose another folder."
        )
    for path in broken:
        system.delete_file(path)
    return rows


def _check_model(file: str, metadata: dict[bytes, bytes], about: dict[str, Any]) -> None:
    if b"keras_vit" not in metadata:
        raise ConfigError(f"{file}: was not written by keras_vit. Choose another folder.")
    earlier = json.loads(metadata[b"keras_vit"])
    for key, value in about.items():
        if key not in _NOT_COMPARED and value != earlier.get(key):
            before, now = shown(earlier.get(key), 60), shown(value, 60)
            raise ConfigError(
                f"{file}: belongs to a data set of another model. Its {key} was {before}, and is "
                f"{now} now. Choose another folder."
            )


@contextlib.contextmanager
def _cluster(ray: Any, folder: str, num_cpus: int) -> Iterator[None]:
    """Connects this process to a cluster, and raises `ConfigError` for the failures of Ray.

    Ray's messages are shown: it says within seconds that no machine fits a worker.

    Args:
        ray: the module.
        folder: the folder of the data set, for messages.
        num_cpus: least number of processors of a cluster that starts on this machine.
    """
    connection: Any = contextlib.nullcontext()
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        if not ray.is_initialized():
            options: dict[str, Any] = {"logging_level": "WARNING"}
            if "RAY_ADDRESS" in os.environ:
                options["runtime_env"] = {"env_vars": {"KERAS_BACKEND": keras.backend.backend()}}
            else:
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
                num_cpus = max(os.cpu_count() or 1, num_cpus)
                options |= {"address": "local", "num_cpus": num_cpus, "include_dashboard": False}
            connection = ray.init(**options)
        with connection, warnings.catch_warnings():
            # Ray 2.60 means to replace `ray_remote_args_fn`, and has no other for the attempts yet.
            warnings.filterwarnings("ignore", message="`ray_remote_args_fn` is deprecated")
            yield
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise ConfigError(
            f"{folder}: the run on Ray failed ({reason}). What was written stays; the same call "
            "writes what is missing."
        ) from error
    finally:
        logger.setLevel(level)


def _absolute(place: str) -> str:
    """Returns an absolute path, because a worker runs in another current folder."""
    return place if is_address(place) else os.path.abspath(place)  # noqa: PTH100
