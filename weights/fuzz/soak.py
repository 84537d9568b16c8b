"""Resident memory over many predictions, models and presets: python -m weights.fuzz.soak.

A line for each says how much memory the process has after the first tenth, and how much more at
the end. What grows with the count is a leak.
"""

import argparse
import contextlib
import ctypes
import datetime
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np

from keras_vit import VisionTransformer
from keras_vit.presets.catalog import preset_named
from tests.helpers import tiny

MEBIBYTE = 2**20
IMAGES = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 1), dtype="uint8")


def resident() -> float:
    """Memory of this process in MiB, without garbage and freed memory that glibc keeps."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MEBIBYTE


def growth(action: Callable[[int], object], count: int) -> tuple[float, float]:
    """Memory after a tenth of the calls, and how much more after all of them."""
    for k in range(count // 10):
        action(k)
    first = resident()
    for k in range(count // 10, count):
        action(k)
    return first, resident() - first


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m weights.fuzz.soak", description=__doc__)
    parser.add_argument("--predictions", type=int, default=2000)
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--presets", type=int, default=50)
    arguments = parser.parse_args()
    model = VisionTransformer.from_preset("vit_digits")
    batch = model.preprocessor(IMAGES)

    def predict(k: int) -> None:
        model.predict(batch[: 1 + k % 3], verbose=0)

    def make(k: int) -> None:
        keras.ops.convert_to_numpy(tiny(channels=1)(batch[:1]))

    folder = preset_named("vit_digits").folder

    def load(k: int) -> None:
        VisionTransformer.from_preset(str(folder))

    backend = keras.backend.backend()
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, {backend}, keras {keras.__version__}\n")
    print("| backend | what | count | MiB after a tenth | MiB more at the end |")
    print("|---|---|---:|---:|---:|")
    for what, action, count in (
        ("predictions", predict, arguments.predictions),
        ("models made and dropped", make, arguments.models),
        ("presets loaded", load, arguments.presets),
    ):
        first, more = growth(action, count)
        print(f"| {backend} | {what} | {count:,} | {first:.0f} | {more:+.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
