"""Attention maps of chosen blocks, attention rollout, and the pictures drawn from them."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import ConfigError, attention_maps
from keras_vit.explanation.drawing import draw_explanations, overlay
from tests.helpers import normal, random_tiny


def test_attention_maps_of_chosen_blocks_equal_those_of_all_blocks():
    """Negative indices count from the end, blocks come in the model's order, rows sum to one."""
    model = random_tiny(num_layers=11)
    images = normal(5, 16, 16, 3)
    every = attention_maps(model, images)
    assert list(every) == list(range(11))
    chosen = attention_maps(model, images, blocks=(-1, 2), batch_size=2)
    assert list(chosen) == [2, 10]
    for block, weights in chosen.items():
        assert (weights.shape, weights.dtype) == ((5, 2, 5, 5), np.float32)
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(weights, every[block], atol=1e-6)


def test_an_unknown_block_is_refused_by_its_number():
    """The message names the number of blocks."""
    with pytest.raises(ConfigError, match="there is no block 2; the model has 2"):
        attention_maps(random_tiny(num_layers=2), normal(1, 16, 16, 3), blocks=[2])


def drawn(monkeypatch, model, images, path) -> list[np.ndarray]:
    """The colour pictures that `draw_explanations` shows: each image, and its overlay."""
    from matplotlib.axes import Axes

    shown = []
    imshow = Axes.imshow

    def spy(axis, picture, **options):
        shown.append(picture)
        return imshow(axis, picture, **options)

    monkeypatch.setattr(Axes, "imshow", spy)
    draw_explanations(model, images, path)
    return [picture for picture in shown if picture.ndim == 3]


@pytest.mark.on_one_backend("torch")
def test_the_picture_shows_the_pixels_of_the_image(monkeypatch, tmp_path):
    """Mean and standard deviation of the protocol are undone."""
    photo = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype="uint8")
    protocol = {"name": "transformers", "mean": [0.48, 0.45, 0.4], "std": [0.22, 0.23, 0.24]}
    model = random_tiny(protocol=protocol)
    picture, _ = drawn(monkeypatch, model, photo, tmp_path / "x.png")
    np.testing.assert_allclose(picture, photo / 255, atol=1e-6)


def test_an_overlay_leaves_the_photograph_where_its_map_is_zero():
    """Elsewhere the photograph shines through."""
    photo = np.random.default_rng(0).uniform(size=(4, 4, 3)).astype("float32")
    map_ = np.zeros((4, 4), "float32")
    map_[0, 0] = 2.0
    shown = overlay(photo, map_)
    np.testing.assert_array_equal(shown[1:], photo[1:])
    brighter = overlay(np.minimum(photo + 0.1, 1), map_)
    assert (brighter[0, 0] > shown[0, 0]).any()


@pytest.mark.on_one_backend("torch")
def test_pictures_are_large_and_keep_the_aspect_ratio(tmp_path):
    """An image of a row of two is 288 pixels wide, also for a model of any size."""
    photos = np.zeros((2, 16, 32, 3), "uint8")
    model = random_tiny(image_size=None, position_grid=(2, 4))
    draw_explanations(model, photos, tmp_path / "x.png")
    width, height = Image.open(tmp_path / "x.png").size
    assert width == 2 * 288
    assert height - 288 == pytest.approx(50, abs=20)  # two pictures of 144, and a title


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize("label", [r"$\frac{$", "$x$", "a\x00\u202eb", "x" * 10_000])
def test_a_label_is_drawn_as_plain_text(label, tmp_path):
    """Also labels that matplotlib would read as mathematics, and a label of 10,000 letters."""
    model = random_tiny(num_classes=2, labels=(label, label + "2"))
    draw_explanations(model, np.zeros((16, 16, 3), "uint8"), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
