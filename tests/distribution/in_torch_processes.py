"""A training in two processes of torchrun; process 0 prints one JSON object of findings.

torchrun --nproc-per-node 2 -m tests.distribution.in_torch_processes FOLDER
"""

import functools
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from keras_vit import distribution
from keras_vit import training as recipes
from keras_vit.data import from_arrays
from tests.distribution import training
from tests.distribution.training import (
    IMAGES,
    LABELS,
    distance,
    make_model,
    message,
    stopped,
)
from tests.runs import times

LENGTH = {"epochs": 3, "steps_per_epoch": times(4, 10)}
trained = functools.partial(training.trained, **LENGTH)


def main():
    folder = Path(sys.argv[1])
    rank = int(os.environ["RANK"])
    _, losses_alone, alone = trained(shard=(0, 1))
    # Process 1 begins with other weights, which ddp replaces by those of process 0.
    together = {"seed": 1 + rank, "connect": distribution.ddp}
    shard, losses, state = trained(**together)
    mean = torch.tensor(losses)
    dist.all_reduce(mean)
    report = {
        "shard": shard,
        "loss": distance([mean.numpy() / 2], [losses_alone]),
        "state": distance(state, alone),
    }
    report["files"] = stopped(folder / "run", **LENGTH, **together)
    report["resumed"] = distance(trained(folder / "run", **together).variables, state)

    report["whole passes"] = distance(
        training.trained_on_whole_passes(distribution.ddp),
        training.trained_on_whole_passes(shard=(0, 1)),
    )

    model = make_model()
    model.compile(recipes.LayerwiseSGD(0.1), "sparse_categorical_crossentropy")
    distribution.ddp(model)
    # Keras 3.16 takes the mean itself; an older one never does.
    report["means"] = model.optimizer.sum_over_processes + hasattr(model, "ddp_model")
    report["batch"] = message(lambda: from_arrays(IMAGES, LABELS, model, 7, steps_per_epoch=1))
    # A folder cannot be made below a file; only process 0 tries.
    if rank == 0:
        (folder / "file").write_text("")
    dist.barrier()
    report["unwritable"] = message(lambda: trained(folder / "file" / "run", **together))
    reports = [None, None]
    dist.all_gather_object(reports, report)
    if rank == 0:
        json.dump(reports, sys.stdout)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
