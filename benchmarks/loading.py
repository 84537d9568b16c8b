"""Rates and memory of training data, beside timm's loader: python -m benchmarks.loading.

Each loader runs in a process of its own with two workers, which are threads of keras_vit, or
processes of Grain or torch. All read the same JPEG files, cut a random part, resize it to 224
pixels bilinearly, flip half of the images and scale them. A round gives each loader one turn; a
figure is the median over the rounds. `benchmarks/results/loading.json` keeps them.
"""

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks import photographs

ROOT = Path(__file__).parents[1]
COUNT, BATCH, WORKERS, SECONDS, ROUNDS = 400, 32, 2, 10.0, 3


def keras_vit_threads(folder: str) -> Iterator[Any]:
    """`ImageData`, whose threads prepare the images."""
    data = _data(folder, WORKERS)
    for data.epoch in itertools.count():
        for k in range(len(data)):
            yield data[k]


def keras_vit_grain(folder: str) -> Iterator[Any]:
    """`ImageData.to_grain`, whose worker processes have one thread each."""
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # Grain asks its flags
    workers = grain.MultiprocessingOptions(num_workers=WORKERS)
    data = _data(folder, 1).to_grain(epochs=1000)
    yield from data.to_iter_dataset().mp_prefetch(workers)


def timm_loader(folder: str) -> Iterator[Any]:
    """timm's data set, transforms and loader."""
    from benchmarks.peers.torch_native import allow_torchvision

    allow_torchvision()
    import timm.data

    loader = timm.data.create_loader(
        timm.data.create_dataset("", folder),
        (3, 224, 224),
        BATCH,
        is_training=True,
        use_prefetcher=False,
        color_jitter=None,
        scale=(0.05, 1.0),
        interpolation="bilinear",
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        num_workers=WORKERS,
    )
    while True:
        yield from loader


LOADERS = {f.__name__: f for f in (keras_vit_threads, keras_vit_grain, timm_loader)}


def _data(folder: str, threads: int) -> Any:
    from keras_vit import Preprocessor
    from keras_vit.data import from_folder

    options = {"augmentation": "none", "cache": False, "threads": threads, "steps_per_epoch": 12}
    return from_folder(folder, Preprocessor(224), BATCH, **options)


def turn(name: str, folder: str) -> dict[str, float]:
    """Images per second over `SECONDS`, after one pass, and the memory of all processes then."""
    batches = LOADERS[name](folder)
    for _ in range(COUNT // BATCH):
        next(batches)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        count += len(next(batches)[0])
    seconds = time.perf_counter() - start
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    memory = sum(process.memory_full_info().pss for process in processes)
    return {"images_per_second": count / seconds, "mib": memory / 2**20}


def main() -> None:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in LOADERS}
    with tempfile.TemporaryDirectory() as folder:
        photographs.write(Path(folder), COUNT)
        for _, name in itertools.product(range(ROUNDS), LOADERS):
            command = [sys.executable, "-m", "benchmarks.loading", name, folder]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    medians = {
        name: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        for name, turns in found.items()
    }
    anchor = medians["timm_loader"]["images_per_second"]
    for row in medians.values():
        row["ratio_to_timm"] = row["images_per_second"] / anchor
    setting = {"images": COUNT, "batch_size": BATCH, "workers": WORKERS, "rounds": ROUNDS}
    result = {**setting, "cores": psutil.cpu_count(), "loaders": medians}
    out = ROOT / "benchmarks" / "results" / "loading.json"
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(turn(*sys.argv[1:])))
        sys.stdout.flush()
        for child in psutil.Process().children(recursive=True):
            child.kill()  # workers that prefetch for ever
        import os

        os._exit(0)
    main()
