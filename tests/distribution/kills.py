"""Kills in a training of two processes, which must end as an unbroken one, bit by bit.

KERAS_BACKEND=torch python -m tests.distribution.kills FOLDER --kills 20
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit import distribution
from tests.distribution.forked import start
from tests.distribution.training import EPOCHS, STEPS_PER_EPOCH, trained

PROCESSES = 2
PATIENCE = 60.0
"""Seconds after which a process that has lost another counts as hanging."""


def together(
    index: int, port: int, count: int = PROCESSES, make: Any = distribution.fully_sharded
) -> contextlib.AbstractContextManager[Any]:
    """Connects this process to the others in the backend's way; on JAX within a distribution."""
    if keras.backend.backend() == "jax":
        import jax

        keras.distribution.initialize(f"127.0.0.1:{port}", count, index)
        jax.config.update("jax_disable_most_optimizations", True)
        return make().scope()
    names = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    os.environ.update({"TORCHELASTIC_RUN_ID": "kills", "MASTER_ADDR": "127.0.0.1"})
    return contextlib.nullcontext()


def train(folder: Path, writing: int, index: int, port: int) -> None:
    """Trains to the end, and writes a byte after each batch; process 0 keeps the result."""
    connect = distribution.ddp if keras.backend.backend() == "torch" else lambda model: None
    with together(index, port):
        result = trained(
            folder / "run", connect=connect, on_batch=lambda batch: os.write(writing, b".")
        )
    if index == 0:
        np.savez(folder / "result.npz", *result.variables)


def attempt(folder: Path, after: int | None, victims: list[int], pause: float) -> float | None:
    """Runs a training; after some batches kills processes, and returns how long the others took.

    Returns:
        None if the training ended before; else the seconds until the last process had stopped.
    """
    reading, writing = os.pipe()
    children = start(PROCESSES, lambda index, port: train(folder, writing, index, port), folder)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as batches:
        seen = batches.read(1)
        while seen and after is not None and after > 0:
            seen, after = batches.read(1), after - 1
        if after is None or not seen:
            while batches.read(4096):
                continue
            ends = [os.waitpid(child, 0)[1] for child in children]
            if any(ends):
                raise RuntimeError(f"{ends}: {[e.read_text() for e in folder.glob('*.error')]}")
            return None
        time.sleep(pause)
        for victim in victims:
            os.kill(children[victim], signal.SIGKILL)
        begin = time.monotonic()
        left = set(children)
        while left:
            left -= {child for child in left if os.waitpid(child, os.WNOHANG)[0]}
            if time.monotonic() - begin > PATIENCE:
                for child in left:
                    os.kill(child, signal.SIGKILL)
                raise RuntimeError(f"{len(left)} processes hang.")
            time.sleep(0.01)
        for error in folder.glob("*.error"):
            error.unlink()
        return time.monotonic() - begin


def campaign(folder: Path, kills: int, seed: int = 0) -> dict[str, Any]:
    """Kills trainings at random moments, alternately one process and all of them.

    Each killed training goes on, and may be killed again; at its end it is compared.
    """
    rng = random.Random(seed)
    whole = folder / "unbroken"
    whole.mkdir()
    attempt(whole, None, [], 0)
    expected = list(np.load(whole / "result.npz").values())
    counts: dict[str, Any] = {"one killed": 0, "all killed": 0, "equal": 0, "different": 0}
    slowest, killed, number = 0.0, 0, 0
    place = folder / "0"
    place.mkdir()
    while killed < kills or not (place / "result.npz").exists():
        victims = [rng.randrange(PROCESSES)] if killed % 2 == 0 else list(range(PROCESSES))
        after = rng.randrange(EPOCHS * STEPS_PER_EPOCH // 2) if killed < kills else None
        seconds = attempt(place, after, victims, rng.uniform(0, 0.02))
        if seconds is not None:
            killed += 1
            slowest = max(slowest, seconds)
            counts["one killed" if len(victims) == 1 else "all killed"] += 1
            print(f"kill {killed}: {seconds:.2f} s", file=sys.stderr, flush=True)
        if (place / "result.npz").exists():
            result = list(np.load(place / "result.npz").values())
            same = all(np.array_equal(a, b) for a, b in zip(result, expected, strict=True))
            counts["equal" if same else "different"] += 1
            if killed < kills:
                number += 1
                place = folder / str(number)
                place.mkdir()
    return {**counts, "seconds until the others stop": round(slowest, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    json.dump(campaign(arguments.folder, arguments.kills, arguments.seed), sys.stdout)


if __name__ == "__main__":
    main()
