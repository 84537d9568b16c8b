"""A training in two processes of torchrun; process 0 prints one JSON object of findings.

torchrun --nproc-per-node 2 -m tests.distribution.in_torch_processes FOLDER
"""

import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
import torch
import torch.distributed as dist

import keras_vit
from keras_vit import distribution, finetune
from keras_vit.data import Augmentation, from_arrays
from keras_vit.errors import ConfigError, WriteError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 8, 8, 3), "uint8")
LABELS = np.arange(20) % 3
EPOCHS, STEPS_PER_EPOCH = 5, 10


def trained(folder, shard, together, stop_after=None):
    """The loss of every batch, and all weights and optimizer variables, after a training."""
    model = keras_vit.VisionTransformer(
        image_size=8,
        patch_size=4,
        hidden_size=16,
        mlp_dim=32,
        num_heads=4,
        num_layers=1,
        num_classes=3,
        name="vit",
    )
    # Process 1 begins with other weights, which ddp replaces by those of process 0.
    rng = np.random.default_rng(1 + (shard or (0, 1))[0])
    for weight in model.weights:
        weight.assign(0.3 * rng.standard_normal(weight.shape))
    recipe = finetune.transfer_recipe(
        model,
        EPOCHS * STEPS_PER_EPOCH // 2,
        16,
        learning_rate=0.1,
        clip_norm=0.1,
        accumulate=2,
        ema=0.5,
        one_hot=True,
        steps_per_epoch=STEPS_PER_EPOCH,
    )
    model.compile(**recipe.compile_args)
    data = from_arrays(
        IMAGES,
        LABELS,
        model,
        8,
        augmentation=Augmentation(crop=None, mixup=0.3, cutmix=1.0),
        steps_per_epoch=STEPS_PER_EPOCH,
        shard=shard,
    )
    if together:
        distribution.ddp(model)
    losses = []

    def batch_ended(batch, logs):
        losses.append(float(logs["loss"]))

    def epoch_ended(epoch, logs):
        model.stop_training = stop_after == epoch
        if model.stop_training:
            raise InterruptedError

    callbacks = [
        *recipe.fit_args.pop("callbacks"),
        keras.callbacks.LambdaCallback(on_train_batch_end=batch_ended, on_epoch_end=epoch_ended),
    ]
    if folder is not None:
        callbacks.append(finetune.Resume(folder, data))
    try:
        model.fit(data, shuffle=False, verbose=0, callbacks=callbacks, **recipe.fit_args)
    except InterruptedError:
        return data.shard, losses, None
    variables = [*model.weights, *model.optimizer.variables]
    return data.shard, losses, [v.value.detach().numpy().astype("float64") for v in variables]


def distance(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)


def main():
    folder = Path(sys.argv[1])
    _, losses_alone, alone = trained(None, (0, 1), together=False)
    shard, losses, found = trained(None, None, together=True)
    rank = dist.get_rank()
    mean = torch.tensor(losses)
    dist.all_reduce(mean)
    report = {
        "shard": shard,
        "loss": distance([mean.numpy() / 2], [losses_alone]),
        "state": distance(found, alone),
    }
    trained(folder / "run", None, together=True, stop_after=1)
    report["files"] = sorted(path.name for path in (folder / "run").iterdir())
    _, _, resumed = trained(folder / "run", None, together=True)
    report["resumed"] = distance(resumed, found)
    try:
        model = keras_vit.vit_ti16(image_size=16, num_layers=1 + rank, num_classes=2)
        model.compile(finetune.LayerwiseSGD(0.1), "mse")
        distribution.ddp(model)
    except ConfigError as error:
        report["differing"] = str(error)
    # A folder cannot be made below a file; only process 0 tries.
    if rank == 0:
        (folder / "file").write_text("")
    dist.barrier()
    try:
        distribution.processes.by_the_first(
            lambda: finetune.state.State({}, {}).write(folder / "file" / "state"), folder / "file"
        )
    except WriteError as error:
        report["unwritable"] = str(error)
    reports = [None, None]
    dist.all_gather_object(reports, report)
    if rank == 0:
        json.dump(reports, sys.stdout)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
