"""Programs that compare one device with several; each prints a list of reports as JSON.

python -m tests.distribution.programs NAME FOLDER

A report holds the findings of one process: largest differences by name, `facts`, and in `said`
the messages of refusals.
"""

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import keras
import numpy as np

import keras_vit
from keras_vit import distribution, training
from keras_vit.data import from_arrays
from keras_vit.models.inference import run
from tests.distribution.forked import results, start
from tests.distribution.training import (
    IMAGES,
    LABELS,
    LEJEPA,
    PREPARED,
    STEPS,
    WAYS,
    compiled,
    distance,
    make_model,
    message,
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


def in_each(found, expected):
    return {name: distance(arrays, expected[name]) for name, arrays in found.items()}


def share(model):
    """The part of a model's variables that one device of JAX holds."""
    arrays = [v.value for v in [*model.weights, *model.optimizer.variables]]
    held = sum(array.addressable_shards[0].data.nbytes for array in arrays)
    return held / sum(array.nbytes for array in arrays)


def through_orbax(folder):
    """A state that eight devices divided, in a model that each device has whole; and its next step.

    Returns:
        the differences of the loaded state, and of the state after one more batch; None without
        orbax.
    """
    try:
        importlib.import_module("orbax.checkpoint")
    except ModuleNotFoundError:
        return None, None
    fit = {"x": PREPARED, "y": LABELS[:16], "batch_size": 16, "shuffle": False, "verbose": 0}
    with distribution.fully_sharded().scope():
        model = compiled()
        save = keras.callbacks.OrbaxCheckpoint(str(folder), save_on_background=False)
        model.fit(**fit, callbacks=[save])
        saved = values(model)
        model.fit(**fit)
    with distribution.data_parallel().scope():
        loaded = keras.saving.load_model(folder)
        state = distance(values(loaded), saved)
        loaded.fit(**fit)
    return state, distance(values(loaded), values(model))


def jax_devices(folder):
    """One process with eight virtual devices."""
    compile_quickly()
    alone, passes, lejepa = trained(), trained_on_whole_passes(), trained(**LEJEPA)
    functions, report = outputs(compiled(), folder / "alone"), {}
    with distribution.data_parallel().scope():
        model = compiled()
        report |= in_each(outputs(model, folder / "together"), functions)
        report["whole passes"] = distance(trained_on_whole_passes(), passes)
        report["facts"] = {"devices": len(model.get_layer("head").kernel.value.devices())}
    for way, make in DISTRIBUTIONS.items():
        with make().scope():
            result = trained()
        report[way], report[f"share of {way}"] = apart(result, alone), share(result.model)
    with distribution.data_parallel().scope():
        report["LeJEPA"] = apart(trained(**LEJEPA), lejepa)
    report["orbax"], report["after orbax"] = through_orbax(folder / "orbax")
    with distribution.tensor_parallel(8).scope():
        heads = message(lambda: make_model(num_heads=4))
    report["said"] = [heads, message(lambda: distribution.tensor_parallel(3))]
    return [report]


def jax_processes(folder):
    """Two processes with two virtual devices each."""

    def alone(index, port):
        compile_quickly()
        result, other = trained(), trained(**LEJEPA)
        arrays = {"losses": result.losses, "variables": result.variables}
        arrays["LeJEPA"] = [other.losses, *other.variables]
        for name, stored in {**outputs(compiled(), folder / "alone"), **arrays}.items():
            np.savez(folder / f"{name}.npz", *stored)

    def together(index, port):
        keras.distribution.initialize(f"127.0.0.1:{port}", 2, index)
        compile_quickly()
        one = {path.stem: list(np.load(path).values()) for path in folder.glob("*.npz")}
        report, shards = {}, {}
        keras.utils.set_random_seed(0)  # JAX refuses variables that begin differently
        for way in WAYS:
            with DISTRIBUTIONS[way]().scope():
                _, shards[way], losses, variables = trained()
                report[way] = distance([losses, *variables], [one["losses"], *one["variables"]])
                if way == "fully sharded":
                    files = stopped(folder / way)
                    if index == 0:
                        shutil.copytree(folder / way, folder / "copy")
                    report["resumed"] = distance(trained(folder / way).variables, variables)
        with distribution.fully_sharded().scope():
            _, _, losses, variables = trained(**LEJEPA)
            report["LeJEPA"] = distance([losses, *variables], one["LeJEPA"])
            model = compiled()
            found = outputs(model, folder / "together")
            report |= in_each(found, {name: one[name] for name in found})
            model.save_to_preset(folder / "preset")
            saved = keras_vit.VisionTransformer.from_preset(folder / "preset")
            report["preset"] = distance([run(saved, PREPARED)], [run(model, PREPARED)])
            report["said"] = refused_writes(folder, model)
        return {**report, "facts": {"shards": shards, "files": files}}

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


def refused_writes(folder, model, **options):
    """What each process says where only process 0 writes, and cannot: below a file."""
    (folder / "file").write_text("")
    acts = [lambda: trained(folder / "file" / "run", **options)]
    if keras.backend.backend() == "jax":
        acts.append(lambda: model.save_to_preset(folder / "file" / "preset"))
    return [message(act) for act in acts]


def tensorflow_replicas(folder):
    """One process with two virtual CPUs."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    adam = {"kind": training.AugregRecipe, "learning_rate": 0.01, "ema": None}
    report, functions = {}, outputs(compiled(), folder / "alone")
    passes = trained_on_whole_passes()
    for name, options in {"SGD": {}, "AdamW": adam, "LeJEPA": LEJEPA}.items():
        alone = trained(epochs=1, accumulate=1, **options)
        with mirrored.scope():
            result = trained(epochs=1, accumulate=1, **options)
        report[f"losses of {name}"] = distance(result.losses, alone.losses)
        variables = [*result.model.weights, *result.model.optimizer.variables]
        # Softmax makes the gradient of the keys' bias zero; Adam amplifies its rounding.
        kept = [k for k, v in enumerate(variables) if not v.path.endswith("key/bias")]
        pairs = [(result.variables[k], alone.variables[k]) for k in kept]
        report[f"variables of {name}"] = distance(*zip(*pairs, strict=True))
        copies = [mirrored.experimental_local_results(v.value) for v in variables]
        report[f"replicas of {name}"] = distance([c[0] for c in copies], [c[-1] for c in copies])
    with mirrored.scope():
        report["said"] = [message(trained)]
        report["whole passes"] = distance(trained_on_whole_passes(), passes)
        model = compiled()
    report |= in_each(outputs(model, folder / "together"), functions)
    return [{**report, "facts": {}}]


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
        lejepa_alone = trained(shard=(0, 1), **LEJEPA)
        of_torchrun(index, port)
        # Process 1 begins with other weights, which ddp replaces by those of process 0.
        options = {"seed": 1 + index, "connect": distribution.ddp}
        _, shard, losses, state = trained(**options)
        lejepa = trained(**options, **LEJEPA)
        means_of_losses = torch.tensor([losses, lejepa.losses])
        dist.all_reduce(means_of_losses)
        mean, other = means_of_losses.numpy() / 2
        files = stopped(folder / "run", **options)
        model = make_model()
        model.compile(training.LayerwiseSGD(0.1), "sparse_categorical_crossentropy")
        distribution.ddp(model)
        # Keras 3.16 takes the mean itself; an older one never does.
        means = model.optimizer.sum_over_processes + hasattr(model, "ddp_model")
        batch = message(lambda: from_arrays(IMAGES, LABELS, model, 7, steps_per_epoch=1))
        return {
            "training": distance([mean, *state], [alone.losses, *alone.variables]),
            "LeJEPA": apart(lejepa._replace(losses=other), lejepa_alone),
            "resumed": distance(trained(folder / "run", **options).variables, state),
            "whole passes": distance(trained_on_whole_passes(distribution.ddp), passes),
            "facts": {"shard": shard, "files": files, "means": means},
            "said": [batch, *refused_writes(folder, model, **options)],
        }

    return results(2, together, folder)


def attempt(folder, after=None, victims=()):
    """Trains in two processes, of which some are killed after a number of batches.

    Returns:
        the variables at the end, or None after a kill, of which every process must learn.
    """

    def train(index, port):
        of_torchrun(index, port)
        write = lambda batch: os.write(writing, b".")  # noqa: E731
        variables = trained(folder / "run", connect=distribution.ddp, on_batch=write).variables
        if index == 0:
            np.savez(folder / "result.npz", *variables)

    reading, writing = os.pipe()
    children = start(2, train, folder)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as batches:
        seen = b"".join(iter(lambda: batches.read(1), b"")) if after is None else b""
        while after is not None and len(seen) < after:
            seen += batches.read(1)
            assert seen
        for victim in victims:
            os.kill(children[victim], signal.SIGKILL)
        left, end = set(children), time.monotonic() + 60
        while left and time.monotonic() < end:
            left -= {child for child in left if os.waitpid(child, os.WNOHANG)[0]}
            time.sleep(0.01)
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert not left, f"{len(left)} processes hang."
    with contextlib.suppress(FileNotFoundError):
        return list(np.load(folder / "result.npz").values())


def torch_kills(folder):
    """Trainings that are killed, of one process and of both, and started again."""
    rng, places, differences = random.Random(0), [folder / "unbroken"], []
    places += [folder / str(k) for k in range(3)]
    for place in places:
        place.mkdir()
    unbroken = attempt(places[0])
    for place in places[1:]:
        for victims in ([rng.randrange(2)], [0, 1]):
            after = rng.randrange(2 * STEPS + 1, 4 * STEPS)  # in the second epoch of either start
            assert attempt(place, after, victims) is None
        differences.append(distance(attempt(place), unbroken))
    return [{"killed": max(differences), "facts": {}, "said": []}]


if __name__ == "__main__":
    json.dump(globals()[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
