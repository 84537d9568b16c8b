"""Maps are resized as torch resizes them; a linear head multiplies the tokens of its stages."""

import numpy as np
import pytest

from keras_vit.layers.dense_map import _resize
from tests.families import FAMILIES, images_for
from tests.helpers import assert_close, random_tiny, randomise, to_numpy
from tests.plain import HYBRID, normal

METHODS = {"bilinear_half_pixel": False, "bilinear_align_corners": True}


def resized(maps, size, corners=False):
    """Maps `(batch, rows, columns, channels)` of another size, by torch."""
    import torch

    maps = torch.from_numpy(maps).permute(0, 3, 1, 2)
    resize = torch.nn.functional.interpolate
    return resize(maps, size, None, "bilinear", corners).permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [(7, 9), (3, 2), (1, 8), (4, 5)])
def test_maps_are_resized_as_torch_does(method, size):
    """To larger and smaller maps, in both conventions."""
    maps = normal(2, 4, 5, 3)
    assert_close(_resize(maps, size, method), resized(maps, size, METHODS[method]))


OBLONG = {"image_size": (24, 16), "data_format": "channels_first"}
ENCODERS = {**FAMILIES, "hybrid": HYBRID, "oblong": OBLONG}
ON_OPENVINO = pytest.param("oblong", marks=pytest.mark.openvino)


@pytest.mark.parametrize("encoder", [*FAMILIES, "hybrid", ON_OPENVINO])
def test_a_linear_head_multiplies_the_tokens_of_its_stages(encoder):
    """After the last norm, without the tokens before the patches; the encoder is copied."""
    source = random_tiny(**{**ENCODERS[encoder], "num_layers": 4})
    model = source.with_dense_head(task="depth", stages=(1, 3))
    kernel, bias = map(to_numpy, randomise(model.get_layer("head")).weights)
    images = images_for(model)
    stages = source.tokens(images, ["block_1/norm", "block_3/norm"], prepared=True).values()
    maps = np.concatenate([each.patches for each in stages], axis=-1) @ kernel + bias
    found = model.predict(images, verbose=0)
    assert_close(found, np.exp(resized(maps, found.shape[1:])[..., 0]))
