"""examples/14_dense_features_by_tiles.py: features of the tiles, a resumed call, another image."""

import itertools
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from keras_vit import VisionTransformer
from tests.helpers import tiny

PROGRAM = Path(__file__).parents[2] / "examples" / "14_dense_features_by_tiles.py"


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The names of the program, which has run in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("desk"))
        patch.setenv("MPLBACKEND", "agg")
        patch.delenv("KERAS_VIT_TRAINED", raising=False)
        yield runpy.run_path(str(PROGRAM))


@pytest.fixture
def model():
    """A model whose tiles are five patches of four pixels on each side."""
    return tiny(image_size=20, patch_size=4, channels=3, num_classes=0, rescale=True)


@pytest.fixture
def slide(tmp_path):
    """The name of a file with an image that whole patches do not fill, and its pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (59, 70, 3), dtype="uint8")
    np.save(tmp_path / "slide.npy", pixels)
    return str(tmp_path / "slide.npy"), pixels


def test_the_stripes_of_the_half_without_labels_are_found(example):
    """The union has more patches than stripes and findings have in common, but few."""
    assert example["overlap"] > 0.9
    assert example["features"].shape == (100, 130, 64)


def test_every_cell_comes_from_the_tile_whose_middle_is_nearest(example, model, slide, tmp_path):
    """The tokens of each tile alone stand in the file, also beyond the edge of the image."""
    source, pixels = slide
    out = str(tmp_path / "features.npy")
    example["write_features"](model, source, out, overlap=2)
    features = np.load(out)
    assert features.shape == (15, 18, model.config.hidden_size)
    whole = np.pad(pixels, ((0, 1), (0, 2), (0, 0)), mode="edge")
    starts = [[0, 3, 6, 9, 10], [0, 3, 6, 9, 12, 13]]
    alone = {
        (top, left): model.tokens(
            whole[None, 4 * top : 4 * top + 20, 4 * left : 4 * left + 20], prepared=True
        ).patches[0]
        for top, left in itertools.product(*starts)
    }
    for row, column in itertools.product(range(15), range(18)):
        top, left = (
            # Of two tiles with equally near middles, the later one.
            min(reversed(tiles), key=lambda start: abs(start + 2 - cell))
            for tiles, cell in zip(starts, (row, column), strict=True)
        )
        expected = alone[top, left][row - top, column - left]
        np.testing.assert_allclose(features[row, column], expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(20, 20), (13, 18)])
def test_an_image_of_one_tile_has_the_tokens_of_the_whole_image(example, model, tmp_path, shape):
    """A smaller image is one tile too, whose last row and column are repeated."""
    pixels = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype="uint8")
    source, out = str(tmp_path / "one.npy"), str(tmp_path / "features.npy")
    np.save(source, pixels)
    assert example["write_features"](model, source, out, overlap=2) == 1
    whole = np.pad(pixels, ((0, 20 - shape[0]), (0, 20 - shape[1]), (0, 0)), mode="edge")
    rows, columns = (-(-side // 4) for side in shape)
    expected = model.tokens(whole[None], prepared=True).patches[0, :rows, :columns]
    np.testing.assert_allclose(np.load(out), expected, rtol=2e-3, atol=1e-3)


def test_an_interrupted_call_goes_on_where_it_stopped(example, model, tmp_path, monkeypatch):
    """The file is the same to the byte; a complete file is not computed again."""
    source, outs = str(tmp_path / "slide.npy"), [str(tmp_path / f"{k}.npy") for k in range(2)]
    np.save(source, np.random.default_rng(0).integers(0, 256, (100, 110, 3), dtype="uint8"))
    write = example["write_features"]
    total = write(model, source, outs[0], overlap=2)
    calls, tokens = [], VisionTransformer.tokens

    def interrupted(self, images, **options):
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(len(images))
        return tokens(self, images, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(VisionTransformer, "tokens", interrupted)
        write(model, source, outs[1], overlap=2)
    assert json.loads(Path(outs[1] + ".json").read_text())["done"] == sum(calls) == 32
    assert write(model, source, outs[1], overlap=2) == total - 32 > 32
    assert Path(outs[0]).read_bytes() == Path(outs[1]).read_bytes()
    assert write(model, source, outs[1], overlap=2) == 0


def test_features_of_another_image_model_or_setting_stay(example, model, slide, tmp_path):
    """The message names what differs."""
    (source, pixels), out = slide, str(tmp_path / "features.npy")
    write = example["write_features"]
    write(model, source, out, overlap=2)
    before = Path(out).read_bytes()
    with pytest.raises(SystemExit, match="is of another overlap"):
        write(model, source, out, overlap=1)
    other = tiny(image_size=20, patch_size=4, channels=3, num_classes=0, rescale=True)
    other.set_weights([weight + 1 for weight in other.get_weights()])
    with pytest.raises(SystemExit, match="is of another weights"):
        write(other, source, out, overlap=2)
    np.save(source, pixels + 1)
    with pytest.raises(SystemExit, match="is of another image"):
        write(model, source, out, overlap=2)
    assert Path(out).read_bytes() == before
