"""Images that a graph prepares are those that `keras_vit.Preprocessor` prepares."""

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.exporting import pixels
from keras_vit.support.processor import processor
from tests.exporting.photo import make_photo
from tests.helpers import to_numpy
from tests.processes import python
from tests.runs import sample

pytestmark = [pytest.mark.every_backend, pytest.mark.openvino]

PROTOCOLS = {
    "paper": ("paper", 1e-3, 1e-3),
    "area": ({"name": "big_vision", "resize_small": 40, "image_size": 32}, 1, 0.3),
    "bilinear": ({"name": "big_vision", "method": "bilinear"}, 1, 0.01),
    "antialias": ({"name": "big_vision", "method": "bilinear", "antialias": True}, 1, 0.02),
    "keras_hub": ("keras_hub", 1, 0.01),
    "keras_hub, antialias": ({"name": "keras_hub", "antialias": True}, 1, 0.01),
    "timm": ("timm", 3, 0.3),
    "timm, squash": ({"name": "timm", "crop_mode": "squash"}, 3, 0.3),
    "transformers": ("transformers", 2, 0.3),
    "edge": ({"name": "transformers", "crop_mode": "center", "crop_pct": 0.875}, 2, 0.3),
    "crop": ({"name": "transformers", "crop_pct": 0.9, "interpolation": "bicubic"}, 3, 0.3),
}
"""Protocol, and how far a pixel may be from the preprocessor's: at most, and in the mean.

Levels of 255. Libraries that round to whole numbers leave one level to the order of a sum. Pillow
chooses which axis it resizes first; the graph always begins with the columns.
"""


SIZES = [(sides, size) for sides in ((75, 61), (40, 96)) for size in ((32, 32), (24, 40))]
"""Height and width of a photograph and of the pixels that a model takes."""


def compiled(function, *arguments):
    """A function of a batch, which JAX compiles as a whole."""
    if keras.backend.backend() != "jax":
        return lambda batch: function(batch, *arguments)
    import jax

    return jax.jit(lambda batch: function(batch, *arguments))


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(("sides", "size"), sample(SIZES, *SIZES[1:3]))
def test_resized_pixels_are_the_preprocessor_s(name, sides, size):
    """Shrunk and enlarged, tall and wide, to squares and oblongs."""
    protocol, most, mean = PROTOCOLS[name]
    photo = make_photo(sides, 3)
    expected = Preprocessor(size, protocol=protocol).resize(Image.fromarray(photo))
    batch = keras.ops.convert_to_tensor(np.moveaxis(photo, -1, 0)[None].astype("float32"))
    result = np.moveaxis(to_numpy(compiled(pixels.resize, size, protocol)(batch))[0], 0, -1)
    difference = np.abs(result - np.asarray(expected, "float32"))
    assert difference.max() <= most
    assert difference.mean() <= mean


def test_a_batch_of_one_channel_is_resized_image_by_image():
    """TensorFlow 2.21 mixes the images up, see the canary below."""
    batch = np.stack(
        [make_photo((75, 61), 1), make_photo((75, 61), 1)[::-1], make_photo((75, 61), 1)]
    )
    batch = keras.ops.convert_to_tensor(np.moveaxis(batch, -1, 1).astype("float32"))
    resize = compiled(pixels.resize, (32, 32), "paper")
    singly = np.concatenate([to_numpy(resize(batch[k : k + 1])) for k in range(3)])
    np.testing.assert_allclose(to_numpy(resize(batch)), singly, rtol=0, atol=1e-3)


@pytest.mark.on_backend("tensorflow")
def test_canary_tensorflow_multiplies_a_stack_wrongly():
    """If this fails, `pixels.resize` can multiply by `matmul` on TensorFlow too.

    oneDNN reads and writes beyond the arrays of a product of a stack with an axis of one and a
    matrix (tensorflow#117700, mended after 2.21 by tensorflow#120199). Keras 3.14 calls it.

    Expected: the product of NumPy, within 1e-6.
    Found: wrong numbers, `nan`, or the end of the process.
    """
    if "avx512f" not in processor().flags:
        pytest.skip("with AVX2 alone TensorFlow multiplies this stack rightly")
    program = """
import numpy as np, tensorflow as tf
images, weights = map(np.random.default_rng(0).random, ((16, 1, 53, 44), (44, 16)))
product = tf.matmul(tf.constant(images, "float32"), tf.constant(weights, "float32")).numpy()
print("right" if np.allclose(product, images @ weights, rtol=1e-3) else "wrong")
"""
    assert "right" not in python(program).stdout


def test_scaled_pixels_are_the_preprocessor_s():
    """Mean and standard deviation may differ by channel."""
    protocol = {"name": "timm", "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}
    photo = make_photo((8, 9), 3)
    expected = Preprocessor(None, protocol=protocol).scale(photo)
    batch = keras.ops.convert_to_tensor(np.moveaxis(photo, -1, 0)[None].astype("float32"))
    result = np.moveaxis(to_numpy(pixels.scale(batch, protocol))[0], 0, -1)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("parameter", [{"crop_mode": "border"}, {"interpolation": "lanczos"}])
def test_protocols_that_no_graph_can_prepare_are_named(parameter):
    """A frame, and Pillow's rarer filters, stay with the preprocessor."""
    (value,) = parameter.values()
    assert value in pixels.refusal({"name": "timm", **parameter}, (32, 32))
    assert pixels.refusal({"name": "timm", **parameter}, None) is None
