"""Writes `tests/data/maps`: small random models of transformers with dense heads, and their maps.

    python -m weights.test_data.maps

It needs torch and transformers; the files are of release 5.23.0. Every backend compares with them.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests import torchvision_shim  # noqa: F401
from tests.checkpoints.cases import MAPS
from tests.checkpoints.references import refer

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "maps"
ROWS = (0, 1, 3, 6)
"""Rows of `MAPS`: Depth Anything, its metric form, DPT for depths and for segments."""


def main() -> None:
    """Writes a folder with weights, config.json, images and maps for every row."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    for row in ROWS:
        folder = FOLDER / f"{MAPS[row].family}_{row}"
        readings = refer(MAPS[row], folder).readings[::2]  # every size once
        arrays: dict[str, Any] = {}
        for reading in readings:
            size = "x".join(map(str, reading.images.shape[1:3]))
            arrays |= {f"images {size}": reading.images, f"map {size}": reading.want["logits"]}
        np.savez_compressed(folder / "expected.npz", **arrays)


if __name__ == "__main__":
    main()
