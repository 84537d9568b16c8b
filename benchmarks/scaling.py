"""Training on two devices beside one: images per second, in one interleaved run.

    python -m benchmarks.scaling

A device is one core of this machine, and the batch of a device is the same in both trainings. Each
way runs in processes that own exactly its cores; the rounds alternate between one device and two.
Two times the rate is the most that two devices can reach. `benchmarks/results/scaling.json` keeps
the medians.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "benchmarks" / "results" / "scaling.json"
WAYS = {
    "jax": ("data parallel", "fully sharded", "tensor parallel"),
    "tensorflow": ("MirroredStrategy",),
    "torch": ("ddp",),
}
BATCH, STEPS = 8, 12
"""Images per device and step, and steps per epoch; the clock counts the second epoch."""


def train(backend: str, way: str, devices: int) -> None:
    """Trains ViT-Ti/16 by the transfer recipe; the first process prints images per second."""
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cores[rank]] if backend == "torch" else cores[:devices])
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    import keras
    import numpy as np

    import keras_vit

    keras.utils.set_random_seed(0)
    with _scope(backend, way, devices):
        model = keras_vit.vit_ti16(num_classes=10, num_heads=4)  # tensor parallelism divides heads
        recipe = keras_vit.finetune.transfer_recipe(model, 2 * STEPS, BATCH * devices)
        model.compile(**recipe.compile_args)
    if processes > 1:
        keras_vit.distribution.ddp(model)
    images = BATCH * devices // processes  # in a batch of this process
    rng = np.random.default_rng(rank)
    x = rng.standard_normal((images * STEPS, 224, 224, 3), dtype="float32")
    ends: list[float] = []
    clock = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter())
    )
    model.fit(
        x,
        np.arange(len(x)) % 10,
        batch_size=images,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[clock],
    )
    if rank == 0:
        print(json.dumps(BATCH * devices * STEPS / (ends[1] - ends[0])))


def _scope(backend: str, way: str, devices: int) -> Any:
    """Returns the context in which the model is made."""
    if backend == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * devices
        tf.config.set_logical_device_configuration(cpu, parts)
        return tf.distribute.MirroredStrategy([f"CPU:{k}" for k in range(devices)]).scope()
    if backend == "torch" or devices == 1:
        return contextlib.nullcontext()
    import keras

    from keras_vit import distribution

    if way == "tensor parallel":
        chosen = distribution.tensor_parallel(devices)
    elif way == "fully sharded":
        chosen = distribution.fully_sharded()
    else:
        chosen = distribution.data_parallel()
    keras.distribution.set_distribution(chosen)  # `fit` needs it too
    return contextlib.nullcontext()


def rate(backend: str, way: str, devices: int) -> float:
    """Images per second of a training in processes of its own."""
    launcher = []
    if backend == "torch" and devices > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "benchmarks.scaling", backend, way, str(devices)],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("one", nargs="*", metavar="BACKEND WAY DEVICES", help="one training")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.one:
        backend, way, devices = arguments.one
        return train(backend, way, int(devices))
    rates: dict[str, dict[int, list[float]]] = {}
    for _, (backend, ways) in itertools.product(range(arguments.rounds), WAYS.items()):
        for way in ways:
            turn = rates.setdefault(f"{backend}, {way}", {1: [], 2: []})
            for devices in (1, 2):
                turn[devices].append(rate(backend, way, devices))
    ways_found = {
        way: {
            "images_per_second": {n: round(statistics.median(of), 2) for n, of in turn.items()},
            "two_over_one": round(
                statistics.median(b / a for a, b in zip(turn[1], turn[2], strict=True)), 2
            ),
        }
        for way, turn in rates.items()
    }
    setting = {"model": "vit_ti16", "batch per device": BATCH, "rounds": arguments.rounds}
    OUT.write_text(json.dumps({**setting, "ways": ways_found}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(ways_found, indent=1))


if __name__ == "__main__":
    main()
