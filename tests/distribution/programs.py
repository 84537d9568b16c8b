"""Programs that compare one device with several; each prints a list of reports as JSON.

python -m tests.distribution.programs NAME FOLDER

A report holds the largest differences that one process has found, by name.
"""

import importlib.util
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import distribution
from keras_vit.data import from_arrays
from keras_vit.errors import ConfigError, WriteError
from keras_vit.models.inference import run
from tests.distribution.forked import results, start
from tests.distribution.training import (
    IMAGES,
    LABELS,
    PREPARED,
    STEPS,
    WAYS,
    compiled,
    distance,
    make_model,
    outputs,
    stopped,
    trained,
    trained_on_whole_passes,
    values,
)

DISTRIBUTIONS = {
    "data": distribution.data_parallel,
    "tensor": lambda: distribution.tensor_parallel(4),
    "fully sharded": distribution.fully_sharded,
    "tensor and fully sharded": lambda: distribution.fully_sharded(2),
}


def apart(left, right):
    """The largest difference of the losses and the variables of two trainings."""
    return max(distance(left.losses, right.losses), distance(left.variables, right.variables))


UNWRITTEN = ("cannot be written", "process 0 could not write")
"""What each of two processes says."""


def in_each(found, expected):
    return {name: distance(arrays, expected[name]) for name, arrays in found.items()}


def share(model):
    """The part of a model's variables that one device of JAX holds."""
    arrays = [v.value for v in [*model.weights, *model.optimizer.variables]]
    held = sum(array.addressable_shards[0].data.nbytes for array in arrays)
    return held / sum(array.nbytes for array in arrays)


def jax_devices(folder):
    """One process with eight virtual devices."""
    compile_quickly()
    alone, passes = trained(), trained_on_whole_passes()
    functions = outputs(compiled(), folder / "alone")
    with distribution.data_parallel().scope():
        model = compiled()
        assert len(model.get_layer("head").kernel.value.devices()) == 8
        report = in_each(outputs(model, folder / "together"), functions)
        report["whole passes"] = distance(trained_on_whole_passes(), passes)
    for way, make in DISTRIBUTIONS.items():
        with make().scope():
            result = trained()
        report[way], report[f"share of {way}"] = apart(result, alone), share(result.model)
    if importlib.util.find_spec("orbax"):
        with distribution.fully_sharded().scope():
            model, place = compiled(), str(folder / "orbax")
            save = keras.callbacks.OrbaxCheckpoint(place, save_on_background=False)
            model.fit(PREPARED, LABELS[:16], verbose=0, callbacks=[save])
        with distribution.data_parallel().scope():
            report["orbax"] = distance(values(keras.saving.load_model(place)), values(model))
    with distribution.tensor_parallel(8).scope(), pytest.raises(ConfigError, match="num_heads=4"):
        make_model(num_heads=4)
    with pytest.raises(ConfigError, match="divides the 8 devices"):
        distribution.tensor_parallel(3)
    return [report]


def jax_processes(folder):
    """Two processes with two virtual devices each."""

    def alone(index, port):
        compile_quickly()
        result = trained()
        arrays = {"losses": result.losses, "variables": result.variables}
        for name, stored in {**outputs(compiled(), folder / "alone"), **arrays}.items():
            np.savez(folder / f"{name}.npz", *stored)

    def together(index, port):
        keras.distribution.initialize(f"127.0.0.1:{port}", 2, index)
        compile_quickly()
        one = {path.stem: list(np.load(path).values()) for path in folder.glob("*.npz")}
        report = {}
        keras.utils.set_random_seed(0)  # JAX refuses variables that begin differently
        for way in WAYS:
            with DISTRIBUTIONS[way]().scope():
                _, shard, losses, variables = trained()
                # With one copy of the model, both processes read all images.
                assert shard == ((0, 1) if way == "tensor" else (index, 2))
                report[way] = distance([losses, *variables], [one["losses"], *one["variables"]])
                if way == "fully sharded":
                    stopped(folder / way)
                    if index == 0:
                        shutil.copytree(folder / way, folder / "copy")
                    report["resumed"] = distance(trained(folder / way).variables, variables)
        with distribution.fully_sharded().scope():
            model = compiled()
            found = outputs(model, folder / "together")
            report |= in_each(found, {name: one[name] for name in found})
            model.save_to_preset(folder / "preset")
            saved = keras_vit.VisionTransformer.from_preset(folder / "preset")
            report["preset"] = distance([run(saved, PREPARED)], [run(model, PREPARED)])
            place = folder / "variables.npz"  # no folder
            with pytest.raises(WriteError, match=UNWRITTEN[index]):
                trained(place / "run")
            with pytest.raises(WriteError, match=UNWRITTEN[index]):
                model.save_to_preset(place / "preset")
        return report

    results(1, alone, folder)
    reports = results(2, together, folder)
    compile_quickly()
    expected = list(np.load(folder / "variables.npz").values())
    by_one = distance(trained(folder / "copy").variables, expected)
    return [{**report, "resumed by one": by_one} for report in reports]


def compile_quickly():
    import jax

    jax.config.update("jax_disable_most_optimizations", True)  # the program mostly compiles
    jax.devices()  # every process waits here until all know the devices of all


def tensorflow_replicas(folder):
    """One process with two virtual CPUs."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    mirrored, options = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), {"accumulate": 1}
    alone, passes = trained(**options), trained_on_whole_passes()
    functions = outputs(compiled(), folder / "alone")
    with mirrored.scope():
        result, model = trained(**options), compiled()
        variables = [*result.model.weights, *result.model.optimizer.variables]
        copies = [mirrored.experimental_local_results(v.value) for v in variables]
        report = in_each(outputs(model, folder / "together"), functions)
        report["whole passes"] = distance(trained_on_whole_passes(), passes)
        with pytest.raises(ConfigError, match="accumulates no gradients on 2 replicas"):
            trained()
    report["training"] = apart(result, alone)
    report["replicas"] = distance([c[0] for c in copies], [c[-1] for c in copies])
    return [report]


def of_torchrun(index, port):
    """Gives this process the variables that torchrun gives."""
    names = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": 2, "MASTER_PORT": port}
    words = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1"}
    os.environ.update(words | {name: str(value) for name, value in names.items()})


def torch_processes(folder):
    """Two processes, with the variables of torchrun."""
    import torch
    import torch.distributed as dist

    def together(index, port):
        torch.set_num_threads(1)
        alone, passes = trained(shard=(0, 1)), trained_on_whole_passes(shard=(0, 1))
        of_torchrun(index, port)
        # Process 1 begins with other weights, which ddp replaces by those of process 0.
        options = {"seed": 1 + index, "connect": distribution.ddp}
        _, shard, losses, state = trained(**options)
        mean = torch.tensor(losses)
        dist.all_reduce(mean)
        assert shard == (index, 2)
        stopped(folder / "run", **options)
        with pytest.raises(ConfigError, match="2 devices or processes do not divide a batch"):
            from_arrays(IMAGES, LABELS, make_model(), 7, steps_per_epoch=1)
        (folder / "file").write_text("")
        with pytest.raises(WriteError, match=UNWRITTEN[index]):
            trained(folder / "file" / "run", **options)
        return {
            "training": distance([mean.numpy() / 2, *state], [alone.losses, *alone.variables]),
            "resumed": distance(trained(folder / "run", **options).variables, state),
            "whole passes": distance(trained_on_whole_passes(distribution.ddp), passes),
        }

    return results(2, together, folder)


def attempt(folder, after=None, victims=()):
    """Trains in two processes, of which some are killed after a number of batches.

    Every process must learn of a kill, and end before its alarm.
    """

    def train(index, port):
        signal.alarm(120)
        of_torchrun(index, port)
        told = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: os.write(writing, b".")
        )
        options = {"connect": distribution.ddp, "callbacks": [told]}
        np.savez(folder / f"{index}.npz", *trained(folder / "run", **options).variables)

    reading, writing = os.pipe()
    children = start(2, train, folder)
    os.close(writing)
    with os.fdopen(reading, "rb") as batches:
        assert len(batches.read(after)) == after or not victims
        for victim in victims:
            os.kill(children[victim], signal.SIGKILL)
        ends = [os.waitpid(child, 0)[1] for child in children]
    assert signal.SIGALRM not in ends
    assert any(ends) == bool(victims)


def torch_kills(folder):
    """Trainings that are killed, of one process and of both, and started again."""
    rng, places, differences = random.Random(0), [folder / "unbroken"], []
    places += [folder / str(k) for k in range(3)]
    for place in places:
        place.mkdir()
    attempt(places[0])
    for place in places[1:]:
        for victims in ([rng.randrange(2)], [0, 1]):
            after = rng.randrange(2 * STEPS + 1, 4 * STEPS)  # in the second epoch of either start
            attempt(place, after, victims)
        attempt(place)
        ends = [list(np.load(folder / "0.npz").values()) for folder in (place, places[0])]
        differences.append(distance(*ends))
    return [{"killed": max(differences)}]


if __name__ == "__main__":
    json.dump(globals()[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
