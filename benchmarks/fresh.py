"""Measurements that need a separate process: starting, loading, and peak memory.

Each prints one JSON object. Megabytes are of the resident set; `base_mb` is the idle
process with its library imported, `peak_mb` the highest ever.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers import PEERS, Job
from benchmarks.sizes import Size, size_named
from benchmarks.worker import peak_mb


def _now_mb() -> float:
    return psutil.Process().memory_info().rss / 2**20


def start(library: str) -> dict[str, float]:
    """Seconds and megabytes of importing a library until its models can be named."""
    before, begun = _now_mb(), time.perf_counter()
    module = __import__(library)
    if library == "keras_vit":
        _ = module.VisionTransformer
    return {"seconds": time.perf_counter() - begun, "mb": _now_mb() - before}


def first(library: str, model: str) -> dict[str, float]:
    """Seconds of the first forward pass of a new model, one image, after imports and building."""
    size = size_named(model)
    run = {"timm": _first_of_timm, "keras_vit": _first_of_ours}[library](size)
    begun = time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begun}


def _first_of_timm(size: Size) -> Callable[[], Any]:
    import torch

    from benchmarks.peers.torch_native import timm_model

    model, images = timm_model(size).eval(), torch.zeros(1, 3, size.image_size, size.image_size)
    return torch.inference_mode()(lambda: model(images))


def _first_of_ours(size: Size) -> Callable[[], Any]:
    import numpy as np

    import keras_vit

    model = keras_vit.VisionTransformer(**size.fields())
    images = np.zeros((1, size.image_size, size.image_size, 3), "float32")
    return lambda: model.predict(images, verbose=0)


def load(library: str, folder: str) -> dict[str, float]:
    """Seconds and peak memory from a safetensors file of timm to the first output of a model."""
    run = {"timm": _load_timm, "keras_vit": _load_ours}[library](Path(folder))
    base, begun = _now_mb(), time.perf_counter()
    run()
    return {"seconds": time.perf_counter() - begun, "base_mb": base, "peak_mb": peak_mb()}


def _load_timm(folder: Path) -> Callable[[], Any]:
    from benchmarks.peers.torch_native import allow_torchvision

    allow_torchvision()
    import timm
    import torch

    def run() -> None:
        model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        with torch.inference_mode():
            model(torch.zeros(1, 3, 224, 224))

    return run


def _load_ours(folder: Path) -> Callable[[], Any]:
    import keras
    import numpy as np

    import keras_vit

    keras.ops.zeros(1)  # starts the backend

    def run() -> None:
        model = keras_vit.VisionTransformer.from_preset(folder)
        model.predict(np.zeros((1, 224, 224, 3), "float32"), verbose=0)

    return run


def memory(peer: str, job: dict[str, Any]) -> dict[str, float]:
    """Two steps of a peer; Keras's `predict` gets their batches as one array."""
    base = _idle_mb(peer)
    size = size_named(job["model"], job["image_size"])
    step = PEERS[peer].make(Job(job["task"], size, job["batch"], job["dtype"]))
    step(2)
    return {"base_mb": base, "peak_mb": peak_mb()}


def _idle_mb(peer: str) -> float:
    """Resident set with the peer's library imported and its backend started."""
    if PEERS[peer].backend:
        import keras

        keras.ops.zeros(1)
    for name in PEERS[peer].needs:
        if name == "timm":
            from benchmarks.peers.torch_native import allow_torchvision

            allow_torchvision()
        __import__(name)
    return _now_mb()


def finetuning(model: str, image_size: int, batch: int, remat: bool) -> dict[str, float]:
    """The peak memory of three steps of the paper's fine-tuning, with or without remat."""
    import keras
    import numpy as np

    import keras_vit
    from keras_vit.training import TransferRecipe

    keras.ops.zeros(1)  # starts the backend
    base = _now_mb()
    vit = keras_vit.VisionTransformer(**size_named(model, image_size).fields(), remat=remat)
    vit.compile(**TransferRecipe(steps=3, batch_size=batch).compile_args(vit))
    images = np.zeros((3 * batch, image_size, image_size, 3), "float32")
    vit.fit(images, np.zeros(3 * batch, "int32"), batch_size=batch, verbose=0)
    return {"base_mb": base, "peak_mb": peak_mb()}


def fit(
    model: str,
    image_size: int,
    batch: int,
    dtype: str,
    folder: str,
    workers: int,
    in_memory: bool,
) -> dict[str, float]:
    """Images per second of `fit` on photographs, after an epoch that compiles and fills caches."""
    import keras
    import numpy as np

    import keras_vit
    from keras_vit.data import from_arrays
    from keras_vit.training import TransferRecipe

    vit = keras_vit.VisionTransformer(**size_named(model, image_size).fields(), dtype=dtype)
    paths = [str(path) for path in sorted(Path(folder).glob("*.jpg"))]
    labels = np.arange(len(paths)) % vit.config.num_classes
    if in_memory:
        data: Any = {"x": np.asarray(vit.preprocessor(paths)), "y": labels, "batch_size": batch}
    else:
        photographs = from_arrays(
            paths, labels, vit, batch, augmentation="none", cache=False, threads=workers
        )
        data = {"x": photographs}
    ends: list[float] = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter())
    )
    epochs = 4
    recipe = TransferRecipe(steps=epochs * len(paths) // batch, batch_size=batch)
    vit.compile(**recipe.compile_args(vit))
    vit.fit(**data, epochs=epochs, verbose=0, callbacks=[watch])
    each = statistics.median(after - before for before, after in itertools.pairwise(ends))
    return {"images_per_second": len(paths) / each, "peak_mb": peak_mb()}


def images(library: str, folder: str, batch: int, workers: int, training: bool) -> dict[str, float]:
    """Images per second from JPEG files to float32 batches at 224 pixels.

    Evaluation is timm's protocol; training a random crop and a flip.
    """
    paths = sorted(Path(folder).glob("*.jpg"))
    read = {"timm": _timm_batches, "keras_vit": _our_batches}[library]
    batches = read(paths, batch, workers, training)
    next(batches)
    begun, count = time.perf_counter(), 0
    for images in batches:
        count += len(images)
    return {"images_per_second": count / (time.perf_counter() - begun)}


def _timm_batches(paths: list[Path], batch: int, workers: int, training: bool) -> Iterator[Any]:
    from benchmarks.peers.torch_native import allow_torchvision

    allow_torchvision()
    import timm.data
    import torch
    from PIL import Image

    half = (0.5,) * 3
    transform = timm.data.create_transform(
        (3, 224, 224), training, mean=half, std=half, color_jitter=None
    )

    class Images(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            with Image.open(paths[index]) as image:
                return transform(image.convert("RGB"))

    return iter(torch.utils.data.DataLoader(Images(), batch, num_workers=workers))


def _our_batches(paths: list[Path], batch: int, workers: int, training: bool) -> Iterator[Any]:
    import numpy as np

    from keras_vit import Preprocessor
    from keras_vit.data import from_arrays

    data = from_arrays(
        [str(path) for path in paths],
        np.zeros(len(paths), int),
        Preprocessor((224, 224), protocol="timm"),
        batch,
        augmentation="none" if training else None,
        cache=False,
        threads=workers,
    )
    return (images for images, _ in data)


def main() -> None:
    """Runs the measure that the JSON object in the first argument names."""
    request = json.loads(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    measures = {
        "start": start,
        "first": first,
        "load": load,
        "memory": memory,
        "finetuning": finetuning,
        "fit": fit,
        "input": images,
    }
    measure = measures[request.pop("measure")]
    answers.write(json.dumps(measure(**request)) + "\n")


if __name__ == "__main__":
    main()
