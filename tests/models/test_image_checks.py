"""Functions of keras_vit refuse images that a model cannot take, and name the fix."""

import functools
import warnings

import keras
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_vit
from keras_vit.errors import ConfigError
from keras_vit.explanation import attention_maps, read_tokens
from keras_vit.images import Preprocessor
from keras_vit.images.packing import pack_image
from keras_vit.images.protocols import PROTOCOLS
from keras_vit.models.image_checks import ImageChecks, refusal
from tests.helpers import random_tiny, tiny, to_numpy
from tests.plain import normal, raises
from tests.runs import BACKEND, sample, times

IMAGES, LABELS = normal(2, 16, 16, 3), np.zeros(2)
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")
READERS = {
    "tokens": lambda model, images, **word: model.tokens(images, **word).patches,
    "probabilities": lambda model, images, **word: model.probabilities(images, **word),
    "explain": lambda model, images, **word: keras_vit.explain(model, images, 0, **word).maps,
    "attention_maps": lambda model, images, **word: attention_maps(
        model, images, "block_0/attention", **word
    )["block_0/attention"],
    "read_tokens": read_tokens,
}
WAYS = {
    "call": lambda model, images: model(images),
    "predict": lambda model, images: model.predict(images, verbose=0),
    "evaluate": lambda model, images: model.evaluate(images, LABELS, verbose=0),
    "fit": lambda model, images: model.fit(images, LABELS, verbose=0),
}
OF_OTHER_SHAPES = [normal(2, 3, 16, 16), normal(2, 8, 32, 3), normal(2, 20, 24, 3), IMAGES[0]]


def compiled(**fields):
    model = tiny(num_classes=3, **fields)
    model.compile("sgd", "auto")
    return model


@pytest.mark.parametrize("name", [name for name in READERS if name != "read_tokens"])
def test_another_size_is_refused_by_every_function_that_computes_with_images(name):
    """A model of any size refuses images smaller than a patch."""
    read = READERS[name]
    with raises(ConfigError, "found (batch, 20, 24, 3)", "image_size=(20, 24)"):
        read(tiny(), normal(2, 20, 24, 3), prepared=True)
    for size in ((1, 16), (16, 3)):
        for call in (functools.partial(read, prepared=True), WAYS["call"]):
            with raises(ConfigError, "larger than an image of"):
                call(tiny(image_size=None), normal(2, *size, 3))


@pytest.mark.every_backend
@pytest.mark.parametrize("name", sample(WAYS, *(WAYS if BACKEND == "tensorflow" else ["fit"])))
def test_another_shape_is_refused_by_keras_methods_after_a_right_batch_too(name):
    """On TensorFlow they trace their second shape as unknown."""
    model, way = compiled(), WAYS[name]
    way(model, IMAGES)
    for images in OF_OTHER_SHAPES:
        with pytest.raises(ConfigError, match="16, 16, 3") as caught:
            way(model, images)
        assert "x1b" not in str(caught.value)  # Keras's codes for bold letters
    way(model, IMAGES)


def test_one_array_is_taken_in_any_form():
    """Nested lists, by the key of the input, and axes that Keras completes; several are refused."""
    model, tokens = tiny(), functools.partial(READERS["tokens"], prepared=True)
    np.testing.assert_array_equal(tokens(model, IMAGES.tolist()), tokens(model, IMAGES))
    for images in ([IMAGES, IMAGES], (IMAGES, LABELS), [*IMAGES], {"pixels": IMAGES}):
        for way in (model, model.predict):
            with raises(ConfigError, "takes one array of images", "np.stack", 'the key "images"'):
                way(images)
    assert model.predict({"images": IMAGES, "id": LABELS}, verbose=0).shape == (2, 5)
    assert model(IMAGES[..., None]).shape == (2, 5)
    grey, images = tiny(channels=1), normal(2, 16, 16)
    np.testing.assert_array_equal(*(to_numpy(grey(x)) for x in (images, images[..., None])))
    assert refusal((None, None, None, 3), model.config, "channels_last") is None


def test_fit_checks_the_images_of_validation_first():
    model = compiled()
    for images in (OF_OTHER_SHAPES[0], IMAGES[0]):
        with raises(ConfigError, "found (batch, "):
            model.fit(IMAGES, LABELS, validation_data=(images, LABELS), verbose=0)
    assert int(model.optimizer.iterations) == 0


@pytest.mark.on_backend("tensorflow")
@pytest.mark.parametrize("shape", [None, (None,) * 4], ids=["no rank", "no sizes"])
def test_the_graph_checks_the_shapes_that_a_data_set_does_not_state(shape):
    import tensorflow as tf

    def stated(images):
        types = (tf.TensorSpec(shape, "float32"), tf.TensorSpec((None,), "float32"))
        return tf.data.Dataset.from_generator(
            lambda: [(images, np.zeros(2))], output_signature=types
        )

    model = random_tiny()
    model.compile("sgd", "auto")
    for images in OF_OTHER_SHAPES[:3]:
        for call in (model.fit, model.evaluate):
            with pytest.raises((ConfigError, tf.errors.InvalidArgumentError), match="16, ?16, ?3"):
                call(stated(images), verbose=0)
    expected = model.predict(IMAGES, verbose=0)
    np.testing.assert_allclose(model.predict(stated(IMAGES), verbose=0), expected, rtol=1e-5)


@pytest.mark.parametrize("function", ["probabilities", "tokens"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_raw_pixels_given_to_a_model_without_rescaling_warn_once(function, dtype):
    """The dtype uint8 or values up to 255 show raw pixels; the warning names the user's line."""
    model = tiny()
    with pytest.warns(UserWarning, match="rescale=True") as caught:
        for _ in range(2):
            READERS[function](model, PIXELS.astype(dtype), prepared=True)
    assert [w.filename for w in caught if "rescale=True" in str(w.message)] == [__file__]


@pytest.mark.every_backend
def test_integers_and_values_below_pixels_in_fit_warn():
    """Integers by their type, in a traced step without values and after prepared images."""
    model = compiled()
    model.fit(IMAGES, LABELS, verbose=0)
    with pytest.warns(UserWarning, match="rescale=True"):
        model.fit(PIXELS[:2], LABELS, verbose=0)
    with pytest.warns(UserWarning, match="values down to -"):
        WAYS["fit"](compiled(rescale=True), IMAGES)


UNIT = PIXELS / np.float32(255)
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
SCALES = [{}, IMAGENET, {"mean": 0, "std": 1}, {"mean": 0, "std": 1 / 255}, {"mean": 0.5, "std": 1}]


SETTINGS = {"plain": {}, "rescale": {"rescale": True}, "packed": {"stem": {"kind": "packed"}}}


@pytest.mark.every_backend
@pytest.mark.parametrize("setting", sample(SETTINGS, "plain"))
def test_floats_in_the_unit_range_warn_in_every_way(setting):
    """torchvision's ToTensor makes them; also after a blank batch, which shows no range."""
    images = UNIT[:2]
    if setting == "packed":
        images = np.stack([pack_image(image, (8, 8), 4) for image in images])
    for way in WAYS.values():
        model = compiled(**SETTINGS[setting])
        model(np.zeros_like(images))
        with pytest.warns(UserWarning, match=r"floats in \[0, 1\].*values in \[.*rescale=True"):
            way(model, images)


RANGES = [(0, 256), (0, 40), (70, 256), (140, 256), (255, 256), (0, 1), (128, 129)]


@settings(max_examples=times(20, 100))
@given(
    name=st.sampled_from(list(PROTOCOLS)),
    scale=st.sampled_from(SCALES),
    pixels=st.sampled_from(RANGES),
    rescale=st.booleans(),
    native=st.booleans(),
    seed=st.integers(0, 99),
)
def test_prepared_images_of_every_protocol_do_not_warn(name, scale, pixels, rescale, native, seed):
    """Photographs, dark and bright ones, and blank ones: white, black and grey."""
    fields = {"stem": {"kind": "packed"}} if native else {"rescale": rescale}
    config = tiny(**fields).config
    patch = config.patch_size if native else None
    protocol = {"name": name, **scale}
    preprocess = Preprocessor(16, protocol=protocol, scaled=not rescale, patch_size=patch)
    images = np.random.default_rng(seed).integers(*pixels, (2, 19, 17, 3), "uint8")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        ImageChecks(config, preprocess).check(preprocess(images))


def test_the_values_of_the_first_torch_batch_are_checked():
    import torch

    batches = [(torch.from_numpy(PIXELS).float(), torch.zeros(4))]
    model = compiled()
    with pytest.warns(UserWarning, match="pixels up to 255.*rescale=True"):
        model.fit(torch.utils.data.DataLoader(batches, batch_size=None), verbose=0)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_images_as_people_have_them_are_prepared(read, tmp_path):
    """Pixels of any size and a path; and the batch that the preprocessor makes, by its word."""
    model = random_tiny()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 21, 19, 3), "uint8")
    PIL.Image.fromarray(pixels[0]).save(tmp_path / "a.png")
    expected = read(model, model.preprocessor(pixels), prepared=True)
    for images in (pixels, pixels / np.float32(255), tmp_path / "a.png", list(pixels)):
        np.testing.assert_allclose(read(model, images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.every_backend
@pytest.mark.parametrize("name", sample(READERS, "tokens"))
def test_a_batch_that_may_be_prepared_is_refused_without_the_word(name):
    """Floats of the model's size that are no pixels, as an array and as the backend's tensor."""
    model = random_tiny()
    for scale in ((-1, 1), (-2.1, 2.6), (0, 2.5)):
        batch = np.random.default_rng(0).uniform(*scale, (2, 16, 16, 3)).astype("float32")
        for images in (batch, keras.ops.convert_to_tensor(batch)):
            with raises(ConfigError, "prepared=True", "floats in [0, 1]"):
                READERS[name](model, images)
    assert np.isfinite(READERS[name](model, batch, prepared=True)).all()


@pytest.mark.every_backend
@pytest.mark.parametrize("name", sample(WAYS, "predict", "fit"))
def test_a_class_with_another_call_takes_the_images_that_it_wants(name):
    """Pixels without a warning; the model checks what the class gives it."""

    class Scaled(keras_vit.VisionTransformer):
        """A model of a user, which takes pixels."""

        def call(self, inputs, training=None, mask=None, stages=None):
            return super().call(inputs / 127.5 - 1, training, mask, stages)

    model = Scaled(tiny(num_classes=3).config)
    model.compile("sgd", "auto")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The images have")
        WAYS[name](model, PIXELS[:2].astype("float32"))
