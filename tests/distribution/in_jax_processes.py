"""Two processes of JAX with two virtual CPU devices each; prints what each has found, as JSON.

python -m tests.distribution.in_jax_processes FOLDER
"""

import functools
import json
import os
import shutil
import sys
from pathlib import Path

import jax
import keras
import numpy as np

import keras_vit
from keras_vit import distribution
from keras_vit.models.inference import run
from tests import light_compilation
from tests.distribution import training
from tests.distribution.forked import results
from tests.distribution.functions import IMAGES, compiled, outputs, write_pictures
from tests.distribution.training import COUNTS, distance, message, stopped
from tests.processes import eventually
from tests.runs import times

LENGTH = {"epochs": 3, "steps_per_epoch": times(4, 10)}
trained = functools.partial(training.trained, **LENGTH)
WAYS = {
    "data": distribution.data_parallel,
    "fully sharded": distribution.fully_sharded,
    "tensor": lambda: distribution.tensor_parallel(4),
}


def alone(index, folder):
    """What one process gets: process 0 computes it, and the other reads it.

    The other waits for a file, because it would wait for Gloo's first message for 30 s alone.
    """
    if index == 0:
        for place in (folder, folder / "alone"):
            write_pictures(place)
        model = compiled()
        _, losses, variables = trained()
        arrays = {
            f"{count} images": outputs(model, count, place, place / f"{count}.npy")
            for count in COUNTS
        }
        for name, values in {**arrays, "losses": losses, "variables": variables}.items():
            np.savez(folder / f"{name}.npz", *values)
        (folder / "done").touch()
    else:
        eventually((folder / "done").exists, seconds=600)
    return {path.stem: list(np.load(path).values()) for path in sorted(folder.glob("*.npz"))}


def collect_findings(index, port, folder):
    keras.distribution.initialize(f"127.0.0.1:{port}", 2, index)
    jax.config.update("jax_disable_most_optimizations", True)  # the program mostly compiles
    jax.devices()  # every process waits here until all know the devices of all
    one = alone(index, folder)
    report = {"devices": jax.device_count(), "shards": {}, "ways": {}}
    keras.utils.set_random_seed(0)  # JAX refuses variables that begin differently
    for way, make in WAYS.items():
        with make().scope():
            shard, losses, variables = trained()
            report["shards"][way] = shard
            apart = distance(losses, one["losses"]), distance(variables, one["variables"])
            report["ways"][way] = apart
            if way == "fully sharded":
                report["files"] = stopped(folder / way, **LENGTH)
                if index == 0:
                    shutil.copytree(folder / way, folder / "copy")
                report["resumed"] = distance(trained(folder / way).variables, variables)
    with distribution.fully_sharded().scope():
        model = compiled()
        for count in COUNTS:
            name = f"{count} images"
            report[name] = distance(
                outputs(model, count, folder, folder / f"{count}.npy"), one[name]
            )
        model.save_to_preset(folder / "preset")
        saved = keras_vit.VisionTransformer.from_preset(folder / "preset")
        report["preset"] = distance([run(saved, IMAGES)], [run(model, IMAGES)])
        (folder / "file").write_text("")
        report["unwritable"] = [
            message(lambda: model.save_to_preset(folder / "file" / "preset")),
            message(lambda: trained(folder / "file" / "run")),
        ]
    return report


def main():
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=2 {light_compilation.FLAG}"
    folder = Path(sys.argv[1])
    reports = results(2, lambda index, port: collect_findings(index, port, folder), folder)
    jax.config.update("jax_disable_most_optimizations", True)
    expected = list(np.load(folder / "variables.npz").values())
    reports[0]["resumed by one"] = distance(trained(folder / "copy").variables, expected)
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main()
