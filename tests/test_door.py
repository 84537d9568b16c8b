"""A model refuses images it cannot take in every call, and the message names the fix."""

import inspect
import warnings

import keras
import numpy as np
import pytest

from keras_vit import ConfigError, VisionTransformer
from keras_vit.door import refusal
from tests.helpers import normal, numpy_of, tiny
from tests.thorough import sample

CALLS = {
    "call": lambda model, images: model(images),
    "predict": lambda model, images: model.predict(images, verbose=0),
    "fit": lambda model, images: model.fit(images, np.zeros(len(images)), verbose=0),
    "evaluate": lambda model, images: model.evaluate(images, np.zeros(len(images)), verbose=0),
}


def compiled(**fields):
    model = tiny(**fields)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize("call", CALLS)
def test_another_size_is_refused_in_every_call(call):
    """The message names both shapes and two fixes; the model still predicts afterwards."""
    model = compiled()
    with pytest.raises(ConfigError) as caught:
        CALLS[call](model, normal(2, 20, 24, 3))
    assert "The model takes images (batch, 16, 16, 3), found (batch, 20, 24, 3)." in str(
        caught.value
    )
    assert "image_size=(20, 24)" in str(caught.value)
    assert "model.preprocessor" in str(caught.value)
    assert np.isfinite(model.predict(normal(2, 16, 16, 3), verbose=0)).all()


FIRST = {"data_format": "channels_first"}


@pytest.mark.parametrize(
    ("fields", "shape", "words"),
    [
        ({}, (2, 3, 16, 16), ["channels_first", "np.moveaxis(images, 1, -1)", "data_format="]),
        (FIRST, (2, 16, 16, 3), ["channels_last", "np.moveaxis(images, -1, 1)", "data_format="]),
        ({}, (2, 16, 16, 1), ["1 channels", "model.preprocessor", "channels="]),
        ({"channels": 1}, (2, 16, 16, 3), ["3 channels", "transparent images to 1"]),
        ({}, (16, 16, 3), ["images[None]"]),
        ({}, (2, 16), ["found (batch, 16)"]),
        ({"image_size": None}, (2, 16, 16, 4), ["(batch, any, any, 3)", "4 channels"]),
        (FIRST, (2, 3, 8, 16), ["image_size=(8, 16)"]),
    ],
)
def test_each_wrong_shape_gets_its_own_message(fields, shape, words):
    """The order of axes, the number of channels, a missing batch axis, another size."""
    with pytest.raises(ConfigError) as caught:
        tiny(**fields)(np.zeros(shape, "float32"))
    for word in words:
        assert word in str(caught.value)


def test_shapes_that_keras_completes_are_accepted():
    """Grey images without a channel axis, unknown sizes, and a dict of images."""
    grey = tiny(channels=1)
    images = normal(2, 16, 16)
    np.testing.assert_array_equal(*(numpy_of(grey(x)) for x in (images, images[..., None])))
    assert refusal((None, None, None, 3), tiny().config, "channels_last") is None
    assert tiny()({"images": normal(2, 16, 16, 3)}).shape == (2, 5)


def test_load_weights_of_another_resolution_names_the_fix(tmp_path):
    """The message names the file, the weight and the image size of the model."""
    tiny(image_size=32).save_weights(tmp_path / "x.weights.h5")
    with pytest.raises(
        ConfigError, match=r"x\.weights\.h5.*position_embedding.*image_size=\(16, 16\)"
    ):
        tiny().load_weights(tmp_path / "x.weights.h5")


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")


@pytest.mark.parametrize("call", sample(CALLS, "call", "fit"))
@pytest.mark.parametrize("dtype", sample(("uint8", "float32"), "float32"))
def test_raw_pixels_given_to_a_model_without_rescaling_warn_once(call, dtype):
    """The dtype uint8 or values up to 255 show raw pixels; the warning names the user's line."""
    model = compiled()
    with pytest.warns(UserWarning, match="rescale=True") as caught:
        CALLS[call](model, PIXELS.astype(dtype))
        CALLS[call](model, PIXELS.astype(dtype))
    assert [w.filename for w in caught if "rescale=True" in str(w.message)] == [__file__]


@pytest.mark.parametrize(("call", "dtype"), [("predict", "float32"), ("call", "uint8")])
def test_raw_pixels_warn_also_after_prepared_images(call, dtype):
    """Trained on prepared images, and asked about photographs as they are read."""
    model = compiled()
    model.train_on_batch(normal(4, 16, 16, 3), np.zeros(4))
    model.predict(normal(4, 16, 16, 3), verbose=0)
    with pytest.warns(UserWarning, match="rescale=True"):
        CALLS[call](model, PIXELS.astype(dtype))


def test_prepared_images_warn_only_in_a_model_that_rescales():
    """Raw pixels in a model that rescales do not warn either."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled().fit(normal(4, 16, 16, 3), np.zeros(4), verbose=0)
        compiled(rescale=True).fit(PIXELS, np.zeros(4), verbose=0)
    with pytest.warns(UserWarning, match="values down to -"):
        compiled(rescale=True).predict(normal(4, 16, 16, 3), verbose=0)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of TensorFlow")
def test_data_from_image_dataset_from_directory_warn_about_raw_pixels(tmp_path):
    """The data set yields floats of [0, 255] as tensors, not as arrays."""
    for name in "ab":
        (tmp_path / name).mkdir()
        keras.utils.save_img(tmp_path / name / "x.png", PIXELS[0], scale=False)
    data = keras.utils.image_dataset_from_directory(tmp_path, image_size=(16, 16), verbose=False)
    with pytest.warns(UserWarning, match="rescale=True"):
        compiled().fit(data, verbose=0)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="of torch")
def test_the_values_of_the_first_torch_batch_are_checked(monkeypatch):
    """Not while torch compiles: reading values would split its graph."""
    import torch

    batches = [(torch.from_numpy(PIXELS).float(), torch.zeros(4))]
    model = compiled()
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert model(batches[0][0]).shape == (4, 5)
    with pytest.warns(UserWarning, match="pixels up to 255.*rescale=True"):
        model.fit(torch.utils.data.DataLoader(batches, batch_size=None), verbose=0)


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="of JAX")
def test_a_traced_model_checks_shapes_alone():
    """A JAX tracer has no values; its shape is refused like the shape of an array."""
    import jax

    model = tiny()
    assert jax.jit(model)(normal(2, 16, 16, 3)).shape == (2, 5)
    with pytest.raises(ConfigError, match="image_size="):
        jax.jit(model)(normal(2, 8, 16, 3))
    assert model.predict_on_batch(normal(2, 16, 16, 3)).shape == (2, 5)


@pytest.mark.parametrize("name", ["fit", "evaluate", "predict"])
def test_methods_have_the_signatures_of_keras(name):
    """`help` and editors show every argument, and all of them can be given by position."""
    expected = inspect.signature(getattr(keras.Model, name))
    assert inspect.signature(getattr(VisionTransformer, name)) == expected


@pytest.mark.on_one_backend("torch")
def test_fit_takes_its_arguments_by_position():
    """`validation_split` stands behind the callbacks, which keras_vit adds to."""
    model = compiled()
    history = model.fit(normal(4, 16, 16, 3), np.zeros(4), 2, 1, 0, None, 0.5)
    assert set(history.history) == {"loss", "val_loss"}
