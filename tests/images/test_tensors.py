"""Tensors and data sets of the backends as input images; and the recipes of the docs."""

import re

import keras
import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor
from keras_vit.errors import ConfigError
from tests.images.pictures import PHOTO, SCALED
from tests.images.rows import DOCS
from tests.plain import raises

PREPARE = Preprocessor((20, 30))
RECIPES = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)


@pytest.mark.every_backend
def test_tensors_and_variables_give_the_picture_of_an_array():
    """Within the eight bits that bfloat16 keeps of a pixel; a symbolic tensor is refused."""
    for pixels, dtype in ((PHOTO, "uint8"), (PHOTO / 255, "float32"), (PHOTO, "bfloat16")):
        tensor = keras.ops.convert_to_tensor(pixels.astype("float32"), dtype)
        tolerance = 1 / 127.5 if dtype == "bfloat16" else 0
        np.testing.assert_allclose(PREPARE(tensor)[0], SCALED, atol=tolerance)
    np.testing.assert_array_equal(PREPARE(keras.Variable(PHOTO.astype("float32")))[0], SCALED)
    with raises(ConfigError, "NumPy cannot read the values of a KerasTensor"):
        PREPARE(keras.Input((20, 30, 3)))


def test_torch_tensors_with_gradients_or_on_a_gpu_are_read():
    """A tensor without values, on the device "meta", is refused."""
    import torch

    class Elsewhere(torch.Tensor):
        """A tensor that NumPy can read only after `.cpu()`, like a tensor on a GPU."""

        def __array__(self, dtype=None, copy=None):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def detach(self):
            return super().detach().as_subclass(Elsewhere)

        def cpu(self, *_, **__):
            return self.as_subclass(torch.Tensor)

    learning = torch.tensor(PHOTO / 255, requires_grad=True)
    far = torch.from_numpy(PHOTO).as_subclass(Elsewhere)
    for given in (learning, far, learning.half().moveaxis(-1, 0), learning.double()):
        np.testing.assert_array_equal(PREPARE(given)[0], SCALED)
    with raises(ConfigError, "NumPy cannot read the values"):
        PREPARE(torch.empty(20, 30, 3, device="meta"))


@pytest.mark.on_backend("tensorflow")
def test_tensorflow_data_sets_of_images_and_names_are_read(home):
    """Batched or not; a symbolic tensor is refused with the fix."""
    import tensorflow as tf

    for data in (
        tf.data.Dataset.from_tensor_slices(PHOTO[None]),
        tf.data.Dataset.from_tensor_slices(PHOTO[None]).batch(1),
        tf.data.Dataset.list_files(str(home / "*.png")),
        tf.constant(["photo.png"]),
    ):
        np.testing.assert_array_equal(PREPARE(data)[0], SCALED)
    with pytest.raises(Exception, match="ConfigError.*tf.numpy_function"):  # a StagingError
        tf.data.Dataset.from_tensors(PHOTO).map(PREPARE)


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_recipes_of_the_docs_run(recipe, home):
    """Each recipe gives a batch of two images."""
    (home / "photos").mkdir()
    for path in ("photo.jpg", "photos/0.jpg", "photos/1.jpg"):
        Image.fromarray(PHOTO).save(home / path)
    names: dict = {}
    exec(recipe, names)
    shape = tuple(names["shape"]) if "shape" in names else names["batch"].shape
    assert shape in ((2, 224, 224, 3), (2, 3, 224, 224), (2, 16, 16, 1), (2, 16, 16, 5), (2, 10))
