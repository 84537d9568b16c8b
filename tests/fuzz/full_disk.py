"""Every writer on a file system that runs full: python -m tests.fuzz.full_disk FOLDER.

FOLDER lies on a file system of its own of about 512 KiB, which the script fills:

    mount -t tmpfs -o size=512k tmpfs FOLDER
"""

import argparse
import datetime
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from PIL import Image

from keras_vit import embed, export
from keras_vit.checkpoints import save
from keras_vit.data import from_arrays
from keras_vit.errors import WriteError
from keras_vit.explanation.drawing import draw_explanations
from keras_vit.exporting.formats import FORMATS
from keras_vit.files import write_json
from keras_vit.finetune import Resume, train, transfer_recipe
from tests.helpers import tiny

KIBIBYTE = 1024
MODEL = tiny(num_classes=2, labels=("even", "odd"), hidden_size=32, mlp_dim=64)
IMAGES = np.random.default_rng(0).integers(0, 256, (200, 16, 16, 3), dtype="uint8")
LABELS = np.arange(200) % 2


def _data() -> Any:
    return from_arrays(IMAGES[:8], LABELS[:8], MODEL, 8, steps_per_epoch=1)


def _state(place: Path) -> None:
    data = _data()
    MODEL.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    MODEL.fit(data, epochs=1, verbose=0, shuffle=False, callbacks=[Resume(place, data)])


def _training(place: Path) -> None:
    recipe = transfer_recipe(MODEL, 1, 8, steps_per_epoch=1)
    train(MODEL, _data(), recipe=recipe, out=place, verbose=0)


def _features(place: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{k:03}.png") for k in range(len(IMAGES))]
        for path, image in zip(paths, IMAGES, strict=True):
            Image.fromarray(image).save(path)
        embed(MODEL, paths, place, batch_size=20)


WRITERS: dict[str, Callable[[Path], object]] = {
    **{
        f"checkpoint, {dialect}": lambda place, dialect=dialect: save(  # type: ignore[misc]
            MODEL, place, dialect, lossy=True
        )
        for dialect in ("google", "big_vision_scan", "timm", "transformers", "keras_hub")
    },
    "preset": MODEL.save_to_preset,
    "features": lambda place: _features(place.with_suffix(".npy")),
    "state of a training": _state,
    "whole training": _training,
    "picture": lambda place: draw_explanations(
        MODEL, list(IMAGES[:2]), place.with_suffix(".png"), titles=["a", "b"]
    ),
    "JSON": lambda place: write_json(place, list(range(20_000))),
    **{
        f"export, {format}": lambda place, format=format: export(  # type: ignore[misc]
            MODEL, place, format, verify=False
        )
        for format in FORMATS
    },
}


def fill(folder: Path, free: int) -> None:
    """Leaves so many bytes of a file system."""
    status = os.statvfs(folder)
    size = max(0, status.f_bavail * status.f_frsize - free)
    with (folder / "ballast").open("wb") as file:
        file.write(b"x" * size)


def outcome(write: Callable[[Path], object], folder: Path, free: int) -> str:
    """How a writer ends where so many bytes are free."""
    place = folder / "work" / "x"
    place.parent.mkdir()
    fill(folder, free)
    try:
        write(place)
    except WriteError as error:
        named = str(folder) in str(error)
        left = [path.name for path in place.parent.rglob("*.unfinished")]
        return "left behind" if left else "refused" if named else "names no place"
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    else:
        return "written"
    finally:
        (folder / "ballast").unlink()
        shutil.rmtree(place.parent)


def main() -> int:
    logging.disable()  # of dialects that cannot express the protocol
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.full_disk", description=__doc__)
    parser.add_argument("folder", type=Path, help="on a small file system")
    parser.add_argument("--sizes", type=int, default=12, help="free spaces that are tried")
    parser.add_argument("--only", default="", help="a part of the writers' names")
    arguments = parser.parse_args()
    status = os.statvfs(arguments.folder)
    whole = status.f_blocks * status.f_frsize
    if whole > 4096 * KIBIBYTE:
        parser.error(f"{arguments.folder} lies on a file system of {whole:,} bytes; see --help")
    print(f"{datetime.datetime.now(datetime.UTC).date()}, {whole // KIBIBYTE} KiB\n")
    print("| writer | outcomes |\n|---|---|")
    bad = 0
    chosen = [name for name in WRITERS if arguments.only in name]
    for name, write in ((name, WRITERS[name]) for name in chosen):
        counts: Counter[str] = Counter()
        sizes = 4 if name.startswith("export") else arguments.sizes  # some start processes
        for free in np.linspace(0, 0.9 * whole, sizes, dtype=int):
            counts[outcome(write, arguments.folder, int(free))] += 1
        bad += sum(n for word, n in counts.items() if word not in ("refused", "written"))
        print(f"| {name} | {', '.join(f'{n} {word}' for word, n in counts.items())} |", flush=True)
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
