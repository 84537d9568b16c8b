"""
Patch features of a very large image
====================================

Extract a feature vector for every patch of an image of any size, with overlapping tiles and
constant memory::

    python examples/14_dense_features_by_tiles.py

After an interruption, the same call resumes. To use another model instead of ``vit_digits``, set
``KERAS_VIT_TRAINED`` to a folder that contains the checkpoint ``encoder``.
"""

import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

import keras_vit


def divide(length: int, tile: int, overlap: int) -> list[tuple[int, int, int]]:
    """Returns the start of each tile, and start and end of the cells nearest to its center."""
    starts = [*range(0, length - tile, tile - overlap), max(length - tile, 0)]
    middles = [(a + b + tile) // 2 for a, b in itertools.pairwise(starts)]
    return list(zip(starts, [0, *middles], [*middles, length], strict=True))


def write_features(model: keras_vit.VisionTransformer, source: str, path: str, overlap: int) -> int:
    """Writes a vector for each patch, float16 `(rows, columns, hidden_size)`, to `path`.

    Args:
        model: a model with `rescale=True`, which reads pixels; its image size is that of a tile.
        source: name of a `.npy` file, `(height, width, channels)`.
        path: name of the `.npy` file of features; `path` with `.json` says how many tiles are done.
        overlap: patches that neighbouring tiles share; each cell comes from the tile whose middle
            is nearest.

    Returns:
        The number of tiles that this call computed.
    """
    image, record = np.load(source, mmap_mode="r"), Path(f"{path}.json")
    patch, size = model.config.patch_size[0], int(model.input_shape[1])
    grid = [-(-side // patch) for side in image.shape[:2]]
    places = [*itertools.product(*(divide(side, size // patch, overlap) for side in grid))]
    with Path(source).open("rb") as file:
        digests = {"image": hashlib.file_digest(file, "sha256").hexdigest()}
    digests["weights"] = hashlib.sha256(
        b"".join(w.tobytes() for w in model.get_weights())
    ).hexdigest()
    task = json.loads(json.dumps({**digests, "model": model.get_config(), "overlap": overlap}))
    state = json.loads(record.read_text()) if record.exists() else {**task, "done": 0}
    if differs := [name for name in task if task[name] != state[name]]:
        raise SystemExit(f"{path} is of another {', '.join(differs)}: name another file.")
    for first in range(state["done"], len(places), 32):
        chosen, tiles = places[first : first + 32], []
        image = np.load(source, mmap_mode="r")  # opened anew, so that pages are not kept in memory
        for (top, *_), (left, *_) in chosen:
            y, x = top * patch, left * patch
            tile = image[y : y + size, x : x + size]
            beyond = [(0, size - side) for side in tile.shape[:2]]
            tiles.append(np.pad(tile, [*beyond, (0, 0)], mode="edge"))
        tokens: Any = model.tokens(np.stack(tiles), prepared=True)
        shape = (*grid, model.config.hidden_size)
        out = np.lib.format.open_memmap(path, "r+" if first else "w+", "float16", shape)
        for ((top, a, b), (left, c, d)), own in zip(chosen, tokens.patches, strict=True):
            out[a:b, c:d] = own[a - top : b - top, c - left : d - left]
        out.flush()
        del out
        record.with_suffix(".new").write_text(json.dumps({**task, "done": first + len(chosen)}))
        record.with_suffix(".new").replace(record)
    return len(places) - state["done"]


# %%
# The image shows plain squares, and squares with vertical or horizontal stripes. The last patches
# of its rows and columns are incomplete.

trained = os.environ.get("KERAS_VIT_TRAINED")
encoder, size = (f"{trained}/encoder", 224) if trained else ("vit_digits", 64)
model = keras_vit.VisionTransformer.from_preset(
    encoder, image_size=size, num_classes=0, rescale=True
)
rng, kinds, patch = np.random.default_rng(0), np.zeros((100, 130), int), model.config.patch_size[0]
for k in range(30):
    side, top, left = rng.integers((10, 0, 0), (20, 80, 110))
    kinds[top : top + side, left : left + side] = 1 + k % 3
drawn = kinds.repeat(patch, 0).repeat(patch, 1)[:-1, :-2, None]
down, right, _ = np.indices(drawn.shape)
light = np.select([drawn == 1, drawn == 2, drawn == 3], [1, right // 2 % 2, down // 2 % 2])
pixels = np.clip(40 + 150 * light + rng.normal(0, 15, drawn.shape), 0, 255).astype("uint8")
np.save("slide.npy", pixels.repeat(model.config.channels, axis=-1))
print("tiles:", write_features(model, "slide.npy", "slide-features.npy", overlap=4))
print("tiles of a second call:", write_features(model, "slide.npy", "slide-features.npy", 4))

# %%
# The left half is labeled. A logistic regression on its patches finds the vertical stripes in the
# right half.

features, truth = np.load("slide-features.npy", mmap_mode="r"), kinds == 2
labelled, other = np.s_[:, :65], np.s_[:, 65:]
probe = LogisticRegression(max_iter=1000)
probe.fit(features[labelled].reshape(-1, model.config.hidden_size), truth[labelled].ravel())
found = probe.predict(features.reshape(truth.size, -1)).reshape(truth.shape)
overlap = (found & truth)[other].sum() / (found | truth)[other].sum()
print(f"intersection over union of vertical stripes in the right half: {overlap:.1%}")

figure, axes = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
pictures = {"image": pixels, "drawn": truth, "found from the labels of the left half": found}
for axis, (title, picture) in zip(axes, pictures.items(), strict=True):
    axis.imshow(picture, cmap="gray")
    axis.set_title(title)
    axis.axis("off")
