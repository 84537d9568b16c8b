"""examples/14_dense_features_by_tiles.py: features of the tiles, a resumed call, another image."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from keras_vit import VisionTransformer
from tests.examples import load
from tests.helpers import tiny


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The names of the program, which has run in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("desk"))
        patch.setenv("MPLBACKEND", "agg")
        patch.delenv("KERAS_VIT_TRAINED", raising=False)
        yield load("14_dense_features_by_tiles.py")


@pytest.fixture
def model():
    """A model whose tiles are five patches of four pixels on each side."""
    return tiny(image_size=20, patch_size=4, channels=3, num_classes=0, rescale=True)


def store(path, *shape):
    """A file of random pixels; returns its name, a name for features, and the pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype="uint8")
    np.save(path / "slide.npy", pixels)
    return str(path / "slide.npy"), str(path / "features.npy"), pixels


def test_the_stripes_of_the_half_without_labels_are_found(example):
    """The union has more patches than stripes and findings have in common, but few."""
    assert example["overlap"] > 0.9
    assert example["features"].shape == (100, 130, 64)


@pytest.mark.parametrize("shape", [(59, 70), (20, 20), (13, 18)], ids=str)
def test_every_cell_comes_from_the_tile_whose_middle_is_nearest(example, model, tmp_path, shape):
    """The tokens of each tile alone stand in the file, also beyond the edge of the image; a smaller
    image is one tile, whose last row and column are repeated."""
    source, out, pixels = store(tmp_path, *shape)
    example["write_features"](model, source, out, overlap=2)
    grid = [-(-side // 4) for side in shape]
    beyond = [(0, max(4 * cells, 20) - side) for cells, side in zip(grid, shape, strict=True)]
    whole = np.pad(pixels, [*beyond, (0, 0)], mode="edge")
    starts = [sorted({min(k, max(n - 5, 0)) for k in range(0, n, 3)}) for n in grid]
    alone = {
        (y, x): model.tokens(whole[None, 4 * y : 4 * y + 20, 4 * x : 4 * x + 20], prepared=True)
        for y, x in itertools.product(*starts)
    }
    features = np.load(out)
    assert features.shape == (*grid, model.config.hidden_size)
    for row, column in np.ndindex(*grid):
        top, left = (
            # Of two tiles with equally near middles, the later one.
            min(reversed(tiles), key=lambda start: abs(start + 2 - cell))
            for tiles, cell in zip(starts, (row, column), strict=True)
        )
        expected = alone[top, left].patches[0, row - top, column - left]
        np.testing.assert_allclose(features[row, column], expected, rtol=2e-3, atol=1e-3)


def test_an_interrupted_call_goes_on_where_it_stopped(example, model, tmp_path, monkeypatch):
    """The file is the same to the byte; a complete file is not computed again."""
    source, out, _ = store(tmp_path, 100, 110)
    write, tokens, calls = example["write_features"], VisionTransformer.tokens, []
    total = write(model, source, f"{out}-whole.npy", overlap=2)

    def interrupted(self, images, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(len(images))
        return tokens(self, images, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(VisionTransformer, "tokens", interrupted)
        write(model, source, out, overlap=2)
    assert json.loads(Path(f"{out}.json").read_text())["done"] == sum(calls) == 32
    assert write(model, source, out, overlap=2) == total - 32 > 32
    assert Path(f"{out}-whole.npy").read_bytes() == Path(out).read_bytes()
    assert write(model, source, out, overlap=2) == 0
