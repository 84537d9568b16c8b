"""Measurements that need a separate process: starting, loading, peak memory, photographs.

Each prints one JSON object. Megabytes are of the resident set; `base_mb` is the idle
process with its library imported, `peak_mb` the highest ever.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from benchmarks.peers import PEERS, Job
from benchmarks.sizes import size_named
from benchmarks.worker import peak_mb

_WORKERS = os.cpu_count() or 1
Figures = dict[str, float]


def _now_mb() -> float:
    return float(psutil.Process().memory_info().rss / 2**20)


def _import(library: str) -> Any:
    if library == "timm":
        from benchmarks.peers.torch_native import allow_torchvision

        allow_torchvision()
    return importlib.import_module(library)


def start(asked: SimpleNamespace) -> Figures:
    """Processor seconds of a new process of Python with some words, such as `["-c", "pass"]`."""
    subprocess.run([sys.executable, *asked.words], check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"processor_seconds": used.ru_utime + used.ru_stime}


def load(asked: SimpleNamespace) -> Figures:
    """Seconds and peak memory from a safetensors file of timm to the first output of a model."""
    import numpy as np

    images = np.zeros((1, 224, 224, 3), "float32")
    if asked.library == "timm":
        import torch

        timm = _import("timm")

        @torch.inference_mode()
        def answer() -> Any:
            model = timm.create_model(f"local-dir:{asked.folder}", pretrained=True).eval()
            return model(torch.from_numpy(images).movedim(-1, 1))

    else:
        import keras

        from keras_vit import VisionTransformer

        keras.ops.zeros(1)  # starts the backend

        def answer() -> Any:
            return VisionTransformer.from_preset(asked.folder).predict(images, verbose=0)

    base, begun = _now_mb(), time.perf_counter()
    answer()
    return {"seconds": time.perf_counter() - begun, "base_mb": base, "peak_mb": peak_mb()}


def memory(asked: SimpleNamespace) -> Figures:
    """Two steps of a peer; Keras's `predict` gets their batches as one array."""
    peer, task = PEERS[asked.peer], asked.task.removeprefix("memory-")
    if peer.backend:
        import keras

        keras.ops.zeros(1)  # starts the backend
    for name in peer.needs:
        _import(name)
    base, size = _now_mb(), size_named(asked.model, asked.image_size)
    peer.make(Job(task, size, asked.batch, asked.dtype))(2)
    return {"base_mb": base, "peak_mb": peak_mb()}


def finetuning(asked: SimpleNamespace) -> Figures:
    """The peak memory of three steps of the paper's fine-tuning, with or without remat."""
    import keras
    import numpy as np

    import keras_vit
    from keras_vit.training import TransferRecipe

    keras.ops.zeros(1)  # starts the backend
    base, size = _now_mb(), size_named(asked.model, asked.image_size)
    model = keras_vit.VisionTransformer(**size.fields(), remat=asked.remat)
    model.compile(**TransferRecipe(steps=3, batch_size=asked.batch).compile_args(model))
    images = np.zeros((3 * asked.batch, size.image_size, size.image_size, 3), "float32")
    model.fit(images, np.zeros(len(images), "int32"), batch_size=asked.batch, verbose=0)
    return {"base_mb": base, "peak_mb": peak_mb()}


def read(asked: SimpleNamespace) -> Figures:
    """Images per second from JPEG files to float32 batches at 224 pixels.

    Evaluation is timm's protocol; training a random crop and a flip.
    """
    paths = sorted(Path(asked.folder).glob("*.jpg"))
    batches = (_timm_batches if asked.library == "timm" else _our_batches)(paths, asked)
    next(batches)
    begun = time.perf_counter()
    count = sum(len(images) for images in batches)
    return {"images_per_second": count / (time.perf_counter() - begun)}


def _timm_batches(paths: list[Path], asked: SimpleNamespace) -> Iterator[Any]:
    import torch
    from PIL import Image

    half = (0.5,) * 3
    transform = _import("timm").data.create_transform(
        (3, 224, 224), asked.training, mean=half, std=half, color_jitter=None
    )

    class Images(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> Any:
            with Image.open(paths[index]) as image:
                return transform(image.convert("RGB"))

    return iter(torch.utils.data.DataLoader(Images(), asked.batch, num_workers=_WORKERS))


def _our_batches(paths: list[Path], asked: SimpleNamespace) -> Iterator[Any]:
    from keras_vit import Preprocessor
    from keras_vit.data import from_arrays

    data = from_arrays(
        [str(path) for path in paths],
        [0] * len(paths),
        Preprocessor((224, 224), protocol="timm"),
        asked.batch,
        augmentation="crop_flip" if asked.training else None,
        cache=False,
        threads=_WORKERS,
    )
    return (images for images, _ in data)


MEASURES = {
    "start": start,
    "load": load,
    "memory-forward": memory,
    "memory-train": memory,
    "memory-finetune": finetuning,
    "input": read,
}
"""By the name of the task."""


def main() -> None:
    """Runs the task that the JSON object in the first argument names."""
    asked = SimpleNamespace(**json.loads(sys.argv[1]))
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print to standard output
    answers.write(json.dumps(MEASURES[asked.task](asked)) + "\n")


if __name__ == "__main__":
    main()
