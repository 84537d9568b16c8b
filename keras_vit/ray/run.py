"""A run over any number of images: Ray Data hands out parts, and workers write a file for each.

A part is a few images of the data set, named after the paths of its images: whoever writes it
writes the same file, and writing it twice changes nothing. A later run takes the images that are
in no file yet, in their order, and as many for a part as the first run took. So it finds the parts
again that the first run left, and images that are new come behind them.
"""

import contextlib
import functools
import hashlib
import io
import json
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras

from keras_vit import __version__
from keras_vit.errors import ConfigError, KerasViTError, shown
from keras_vit.ray.models import Classify, Embed, ImageSize
from keras_vit.ray.storage import Folder, is_url

_ATTEMPTS = 10
"""Times that a part is tried again after its worker has died."""

_BLOCKS = 1000
"""Most blocks of parts that Ray schedules, unless there are many workers."""

_LARGEST_PART = 4096
_PARTS_PER_WORKER = 8

_TASK = ".keras_vit/task.json"
_NOT_COMPARED = ("keras_vit", "preset", "images_per_part")


class Written(NamedTuple):
    """The result of `write_dataset`: images in the data set, and those that cannot be read."""

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
    address: str | None = None,
    unreadable: Callable[[str, str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Written:
    """Writes the features or labels of images to a folder of Parquet files, by workers of Ray.

    Every image has one row: `path`, then `features`, or `labels` and `probabilities`, and `error`,
    the reason if the image cannot be read. The rows are in no particular order. The metadata of
    each file has, as JSON under `keras_vit`, the preset, the sha256 of the weights, the
    configuration and the preprocessing.

    A part of a worker that dies is written again. If this process dies, the same call writes what
    is missing; it also adds images that are new in the folders.

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
        address: address of a Ray cluster, `"auto"` for the one of this machine; None starts Ray
            on this machine for the duration of the call, unless the process is connected already.
        unreadable: called with the path of each unreadable image and the reason, also of parts
            that were written before.
        progress: called with the number of images that are written and of all images.

    Raises:
        ConfigError: Ray is not installed, the cluster cannot be reached or has too few processors,
            there is no image, the model does not fit, or the folder holds a data set of another
            model.
        WriteError: the folder cannot be written.
    """
    ray = _ray()
    for name, value in (("workers", workers), ("cpus_per_worker", cpus_per_worker)):
        if value < 1:
            raise ConfigError(f"{name}={value}, expected at least 1.")
    if top is not None and layer != "pre_logits":
        raise ConfigError(f"layer={layer!r} and top={top}: give one, for features or for labels.")
    if address is not None:
        _check_address(address)
    options = {"batch_size": batch_size, "threads": cpus_per_worker, "image_size": image_size}
    source = os.fspath(preset)
    source = os.path.abspath(source) if Path(source).exists() else source  # noqa: PTH100
    make: Callable[[], Embed | Classify] = (
        functools.partial(Embed, source, layer, **options)
        if top is None
        else functools.partial(Classify, source, top, **options)
    )
    folder = Folder(_absolute(os.fspath(out)))
    names = [name for place in images for name in Folder(_absolute(os.fspath(place))).images()]
    if not names:
        raise ConfigError("No image was given, or the folders have no image in them.")
    about = {"keras_vit": __version__, "preset": source, **_facts(make())}
    count = -(-len(names) // (_PARTS_PER_WORKER * workers))
    size = _begin(folder, about, min(_LARGEST_PART, count))
    report, show = unreadable or (lambda path, reason: None), progress or (lambda n, total: None)
    errors = dict(_rows_of(folder))
    missing = [name for name in dict.fromkeys(names) if name not in errors]
    finished, total = len(errors), len(errors) + len(missing)
    failed = 0
    for path, reason in errors.items():
        if reason is not None:
            failed += 1
            report(path, reason)
    show(finished, total)
    if missing:
        needs = {"CPU": cpus_per_worker, "GPU": gpus_per_worker}
        with _connected(ray, address, workers, needs):
            for result in _results(ray, folder, make, about, _parts(missing, size), workers, needs):
                for path, reason in result["errors"]:
                    report(path, reason)
                failed += len(result["errors"])
                finished += result["count"]
                show(finished, total)
    folder.clear_unfinished()
    return Written(total, failed)


def _parts(names: list[str], size: int) -> list[list[str]]:
    """Returns names in parts of `size`.

    Raises:
        ConfigError: a name is no UTF-8, the only text of Parquet.
    """
    for name in names:
        if name != name.encode(errors="replace").decode():
            raise ConfigError(
                f"{name}: the name of this file is no UTF-8, the only text that Parquet holds. "
                "Rename the file."
            )
    return [names[start : start + size] for start in range(0, len(names), size)]


def _file_of(paths: list[str]) -> str:
    """Returns the name of the file of a part."""
    return f"part-{hashlib.sha256(json.dumps(paths).encode()).hexdigest()[:20]}.parquet"


class Writer:
    """A worker: takes parts, writes their files, returns the images that cannot be read.

    Args:
        out: the folder of the data set.
        make: loads the model.
        about: the first process's description of the model, with which the worker's must agree.
    """

    def __init__(
        self, out: str, make: Callable[[], Embed | Classify], about: dict[str, Any]
    ) -> None:
        self._out, self._about = Folder(out), about
        self._failure = ""
        try:
            self._model = make()
            if difference := _difference(_facts(self._model), about):
                self._failure = f"A worker has another model than the first process. {difference}"
        except (KerasViTError, OSError) as error:
            self._failure = str(error)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Returns one JSON object per part: count and errors, or a failure that ends the run."""
        return {"result": [json.dumps(self._result(json.loads(part))) for part in batch["part"]]}

    def _result(self, paths: list[str]) -> dict[str, Any]:
        if self._failure:
            return {"failure": self._failure}
        try:
            name = _file_of(paths)
            if name not in self._out.names():  # else a worker wrote it, and died before its answer
                self._write(name, paths)
            rows = _rows_of(self._out, name)
            return {"count": len(paths), "errors": [row for row in rows if row[1] is not None]}
        except (KerasViTError, OSError) as error:
            return {"failure": str(error)}

    def _write(self, name: str, paths: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({"path": pa.array(paths, pa.string()), **self._model.answers(paths)})
        table = table.replace_schema_metadata({"keras_vit": json.dumps(self._about)})
        buffer = io.BytesIO()
        pq.write_table(table, buffer, use_dictionary=False)
        self._out.write(name, buffer.getvalue())


def _results(
    ray: Any,
    folder: Folder,
    make: Callable[[], Embed | Classify],
    about: dict[str, Any],
    parts: list[list[str]],
    workers: int,
    needs: dict[str, float],
) -> Iterator[dict[str, Any]]:
    """Yields the results of the parts, in the order in which they are written."""
    context = ray.data.DataContext.get_current()
    bars, context.enable_progress_bars = context.enable_progress_bars, False
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.ERROR)
    blocks = min(len(parts), max(_BLOCKS, 16 * workers))
    try:
        rows = ray.data.from_items(
            [{"part": json.dumps(part)} for part in parts], override_num_blocks=blocks
        )
        with warnings.catch_warnings():
            # Ray 2.60 means to replace this argument, and has no other for the attempts yet.
            warnings.filterwarnings("ignore", message="`ray_remote_args_fn` is deprecated")
            results = rows.map_batches(
                Writer,
                fn_constructor_args=[folder.place, make, about],
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=min(workers, blocks)),
                num_cpus=needs["CPU"],
                num_gpus=needs["GPU"] or None,
                ray_remote_args_fn=functools.partial(dict, max_task_retries=_ATTEMPTS),
            )
        for row in results.iter_rows():
            result = json.loads(row["result"])
            if "failure" in result:
                raise ConfigError(result["failure"])
            yield result
    except ray.exceptions.RayError as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise ConfigError(
            f"{folder.place}: the run on Ray failed ({reason}). What was written stays; the same "
            "call writes what is missing."
        ) from error
    finally:
        context.enable_progress_bars = bars
        logger.setLevel(level)


@contextlib.contextmanager
def _connected(
    ray: Any, address: str | None, workers: int, needs: dict[str, float]
) -> Iterator[None]:
    """Connects this process to a cluster with room for a worker."""
    own = not ray.is_initialized()
    if own:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
            cpus = max(os.cpu_count() or 1, workers * int(needs["CPU"]) + 1)
            quiet |= {"address": "local", "num_cpus": cpus, "include_dashboard": False}
        else:
            variables = {"KERAS_BACKEND": keras.backend.backend()}
            quiet |= {"address": address, "runtime_env": {"env_vars": variables}}
        try:
            ray.init(**quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError, TimeoutError) as error:
            raise _absent(address, str(error).partition("\n")[0]) from error
    try:
        rooms = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(room.get(k, 0) >= v for k, v in needs.items()) for room in rooms):
            lacking = " and ".join(f"{v:g} {k}" for k, v in needs.items() if v)
            raise ConfigError(
                f"No machine of the Ray cluster has {lacking}, which a worker needs. Ask for less "
                "by cpus_per_worker= and gpus_per_worker=, or add a machine."
            )
        yield
    finally:
        if own:
            ray.shutdown()


def _absolute(place: str) -> str:
    """Returns a path that a worker understands too, whose folder is another one."""
    return place if is_url(place) else os.path.abspath(place)  # noqa: PTH100


def _check_address(address: str) -> None:
    """Raises at once if nothing listens at `host:port`; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # such as "auto"
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise _absent(address, getattr(error, "strerror", None) or str(error)) from error


def _absent(address: str | None, reason: str) -> ConfigError:
    return ConfigError(
        f"address={address!r}: no Ray cluster answers there ({reason}). Start one with `ray start "
        "--head`, or leave the address out to run on this machine."
    )


def _begin(folder: Folder, about: dict[str, Any], images_per_part: int) -> int:
    """Writes the task of a new data set; returns the images per part of its first run.

    Raises:
        ConfigError: the folder holds a data set of another model, or other files.
    """
    if "task.json" in folder.names(".keras_vit"):
        with folder.open(_TASK) as file:
            task = json.loads(file.read())
        if difference := _difference(about, task):
            raise ConfigError(
                f"{folder.place}: holds a data set of another model. {difference} Choose another "
                "folder."
            )
        return int(task.get("images_per_part", images_per_part))
    if others := folder.names():
        raise ConfigError(
            f"{folder.place}: holds {sorted(others)[0]}, and is no data set of keras_vit. Choose "
            "another folder."
        )
    task = {**about, "images_per_part": images_per_part}
    folder.write(_TASK, json.dumps(task, indent=2).encode())
    return images_per_part


def _facts(model: Embed | Classify) -> dict[str, Any]:
    """Returns what determines a model's answers, as a file of JSON holds it."""
    return json.loads(json.dumps(model.about()))


def _difference(new: dict[str, Any], old: dict[str, Any]) -> str:
    """Returns a sentence on the first difference of two models, or `""`."""
    for key in {**old, **new}:
        if key not in _NOT_COMPARED and new.get(key) != old.get(key):
            before, now = (shown(about.get(key), 60) for about in (old, new))
            return f"Its {key} was {before}, and is {now} now."
    return ""


def _rows_of(folder: Folder, name: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Yields path and error of the images in the files of a data set, or in one file."""
    import pyarrow.parquet as pq

    names = [name] if name else sorted(n for n in folder.names() if n.startswith("part-"))
    for each in names:
        with folder.open(each) as file:
            table = pq.read_table(file, columns=["path", "error"])
        yield from zip(table["path"].to_pylist(), table["error"].to_pylist(), strict=True)


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError("The engine ray needs Ray: pip install 'keras-vit[ray]'.") from error
    return ray
