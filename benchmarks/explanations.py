"""What attention maps and relevance cost beside a forward and backward pass of the same batch.

    KERAS_BACKEND=torch python -m benchmarks.explanations benchmarks/results/explanations.json

Processor time of this process, the least of interleaved rounds; the first round compiles and does
not count.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

import keras_vit
from keras_vit.explanation.classes import score_classes
from keras_vit.explanation.gradients import compile_call, gradient
from keras_vit.explanation.methods import METHODS


def main() -> None:
    """Prints the processor time of each task and its ratio to a forward and backward pass."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="JSON for the figures of this backend")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    model = keras_vit.vit_s16()
    size = model.config.image_size or (224, 224)
    images = np.random.default_rng(0).standard_normal((arguments.images, *size, 3), "float32")
    chosen = np.eye(1000, dtype="float32")[: arguments.images]

    def of_batch(batch: Any, one_hot: Any) -> Any:
        weights = [variable.value for variable in model.trainable_variables]

        def score(sources: list[Any]) -> tuple[Any, list[Any]]:
            pairs = list(zip(model.trainable_variables, sources, strict=True))
            with keras.StatelessScope(pairs):
                return keras.ops.sum(score_classes(model, batch, one_hot)), []

        return gradient(score, weights)[0]

    training = compile_call(model, of_batch)
    relevance = METHODS["relevance"].make(model)
    tasks: dict[str, Callable[[], Any]] = {
        "forward and backward": lambda: training(images, chosen),
        "attention_maps": lambda: keras_vit.attention_maps(model, images, batch_size=len(images)),
        "relevance": lambda: relevance(images, chosen),
    }
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(arguments.rounds + 1):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            times[name].append(time.process_time() - start)
    whole = min(times["forward and backward"][1:])
    seconds = {name: round(min(rounds[1:]), 2) for name, rounds in times.items()}
    for name, best in seconds.items():
        print(f"{keras.backend.backend()} {name}: {best:.2f} s, {best / whole:.2f} times")
    if arguments.file:
        runs = json.loads(arguments.file.read_text()) if arguments.file.exists() else {}
        runs[keras.backend.backend()] = {"images": arguments.images, "seconds": seconds}
        arguments.file.write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
