"""The views of images for training without labels: their pixels, their shapes and their images."""

import numpy as np
import pytest
from PIL import Image

from keras_vit.data import Views, from_folder
from keras_vit.data.crops import random_box
from keras_vit.data.views import make_views
from keras_vit.training import PretrainRecipe
from tests import torchvision_shim  # noqa: F401  before torchvision
from tests.helpers import tiny
from tests.plain import through_json

NOISE = np.random.default_rng(0).integers(0, 256, (40, 52, 3), "uint8")
STILL = {"flip": False, "jitter": (0, 0, 0, 0), "grey": 0, "blur": 0, "solarise": 0}
KINDS = ("brightness", "contrast", "saturation", "hue")
CHANGES = {
    # what changes, and the largest difference of a value from torchvision's
    "crop and flip": ({"flip": True}, 0),
    "colours": ({"jitter": (0.4, 0.4, 0.2, 0), "grey": 0.3, "solarise": 0.3}, 0),
    "hue": ({"jitter": (0, 0, 0, 0.5)}, 6),  # one of 256 steps of hue, by rounding
    "blur": ({"blur": 1}, 50),  # torchvision cuts the kernel at 7 pixels; without blur it is 147
}


def by_torchvision(picture, views, size, crop, rng):
    """A view of the same random draws by the functions of torchvision."""
    from torchvision.transforms import functional

    top, left, height, width = random_box(picture.size[::-1], crop, (3 / 4, 4 / 3), rng)
    assert crop[0] <= height * width / (picture.height * picture.width) <= crop[1]
    view = functional.resized_crop(picture, top, left, height, width, [size, size], antialias=True)
    if views.flip and rng.random() < 0.5:
        view = functional.hflip(view)
    if rng.random() < 0.8:
        changes = rng.uniform(-1, 1, 4) * views.jitter
        for k in rng.permutation(4 if view.mode == "RGB" else 2):
            if changes[k]:
                view = getattr(functional, f"adjust_{KINDS[k]}")(view, changes[k] + (k < 3))
    if rng.random() < views.grey:
        view = functional.rgb_to_grayscale(view, len(view.mode))
    if rng.random() < views.blur:
        view = functional.gaussian_blur(view, 7, [rng.uniform(0.1, 2)] * 2)
    return functional.solarize(view, 128) if rng.random() < views.solarise else view


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("name", CHANGES)
def test_views_are_those_of_torchvision(name, mode):
    """Global and local views have crops of their own; every view is changed anew."""
    views = Views(32, 16, **{**STILL, **CHANGES[name][0]})
    picture = Image.fromarray(NOISE).convert(mode)
    for seed in range(12):
        rng, again = np.random.default_rng(seed), np.random.default_rng(seed)
        for group, found in make_views(picture, views, rng).items():
            count, *rest = views.groups[group]
            expected = [by_torchvision(picture, views, *rest, again) for _ in range(count)]
            gap = np.stack(found).astype(int) - np.stack(expected)
            assert np.abs(gap).max() <= CHANGES[name][1]


def test_views_of_a_grey_picture_stay_grey():
    picture = Image.fromarray(NOISE).convert("L").convert("RGB")
    for views in make_views(picture, Views(32, 16), np.random.default_rng(0)).values():
        assert np.ptp(np.stack(views), axis=-1).max() == 0


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_folder_gives_views_that_fit_the_model_of_each_image_once_in_a_pass(
    photos, channels, data_format
):
    """Although epochs have full batches alone. Images lie in folders of any depth, without classes;
    one that cannot be read is left out. Every image has one value, which nothing changes."""
    (photos / "more" / "e.png").write_bytes(b"not an image")
    model, seen = tiny(num_classes=0, channels=channels, data_format=data_format), []
    with pytest.warns(UserWarning, match="1 of 5 images cannot be used"):
        data = from_folder(photos, model, 3, augmentation=Views(**STILL), on_error="skip")
    for epoch in range(4):
        data.epoch = epoch
        ((views,),) = data
        for name, shape in (("local_views", [3, 6, 8, 8]), ("global_views", [3, 2, 16, 16])):
            shape.insert(2 if data_format == "channels_first" else 4, channels)
            assert (views[name].shape, views[name].dtype) == (tuple(shape), "float32")
            values = np.rint((views[name] + 1) * 127.5 / 40).reshape(3, -1)
            assert np.ptp(values, axis=1).max() == 0
        seen += values[:, 0].tolist()
    assert [sorted(seen[k : k + 4]) for k in (0, 4, 8)] == [[0, 1, 2, 3]] * 3


def test_views_and_their_recipe_are_kept_as_json():
    recipe = PretrainRecipe(9, 4, views=Views(32, 16, flip=False, jitter=(0, 0, 0, 0.5)))
    assert PretrainRecipe.from_dict(through_json(recipe.to_dict())) == recipe
