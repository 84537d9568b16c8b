"""Batch inference on Ray: rates of 1, 2 and 4 workers, and the cost of an image by its steps.

    KERAS_BACKEND=torch python -m benchmarks.batch_inference

A ViT-Ti/16 with random weights embeds generated photographs at 224 pixels; each worker has one
processor. A rate is counted between the first and the last file that a run writes, so that the
start of Ray and the loading of the model are left out. `benchmarks/results/batch_inference.json`
keeps the figures, of which docs/devices.md makes its estimate.
"""

import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq

import keras_vit
from benchmarks import photographs
from keras_vit.inference import run
from keras_vit.ray import Embed, write_dataset

ROOT = Path(__file__).parents[1]
COUNT, WORKERS, ONE_BY_ONE, BATCH = 480, (1, 2, 4), 96, 32


def rate(photos: Path, out: Path, preset: Path, workers: int) -> float:
    """Images per second of a run."""
    write_dataset([photos], out, preset, workers=workers, batch_size=BATCH)
    files = sorted(out.glob("*.parquet"), key=lambda file: file.stat().st_mtime)
    counts = [pq.read_metadata(file).num_rows for file in files]
    return sum(counts[1:]) / (files[-1].stat().st_mtime - files[0].stat().st_mtime)


def milliseconds(files: list[Path], preset: Path) -> dict[str, float]:
    """The cost of an image in one process with one thread, step by step, processor time."""
    import pyarrow as pa

    embed = Embed(preset, threads=1)
    preprocessor = embed.model.preprocessor
    contents: list[bytes] = []
    images: list[np.ndarray] = []
    values: list[np.ndarray] = []

    def read() -> None:
        contents.extend(file.read_bytes() for file in files)

    def decode() -> None:
        for content in contents:
            decoded = preprocessor.decode(io.BytesIO(content))
            images.append(preprocessor.scale(preprocessor.resize(decoded)))

    def model() -> None:
        for start in range(0, len(images), BATCH):
            batch = preprocessor.stack(images[start : start + BATCH])
            values.append(run(embed.model, batch, ["pre_logits"])["pre_logits"])

    def write() -> None:
        features = list(np.concatenate(values))
        table = pa.table({"path": list(map(str, files)), "features": features})
        pq.write_table(table, io.BytesIO(), use_dictionary=False)

    run(embed.model, np.zeros((BATCH, 224, 224, 3), np.float32), ["pre_logits"])
    steps: tuple[Callable[[], None], ...] = (read, decode, model, write)
    costs = {}
    for step in steps:
        start = time.process_time()
        step()
        costs[step.__name__] = 1000 * (time.process_time() - start) / len(files)
    return costs


def main() -> None:
    import ray

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = photographs.write(folder / "photos", COUNT)
        preset = folder / "ti16"
        keras_vit.vit_ti16(num_classes=0).save_to_preset(preset)
        costs = milliseconds(files[:ONE_BY_ONE], preset)
        ray.init(num_cpus=max(WORKERS) + 1, include_dashboard=False, log_to_driver=False)
        rates = {
            str(workers): rate(folder / "photos", folder / f"{workers}", preset, workers)
            for workers in WORKERS
        }
        ray.shutdown()
        result = {
            "model": "vit_ti16, 224 pixels, float32",
            "images": COUNT,
            "kilobytes_per_image": sum(file.stat().st_size for file in files) / COUNT / 1000,
            "cores": psutil.cpu_count(),
            "milliseconds_per_image": costs,
            "images_per_second": rates,
            "ratio_to_one_worker": {k: value / rates["1"] for k, value in rates.items()},
        }
    out = ROOT / "benchmarks" / "results" / "batch_inference.json"
    out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
