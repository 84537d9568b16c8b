"""Functions of keras_vit refuse images that a model cannot take, and name the fix."""

import warnings

import keras
import numpy as np
import PIL.Image
import pytest
from hypothesis import given
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

pytestmark = pytest.mark.every_backend

FUNCTIONS = {
    "check_images": lambda model, images: model._check_images(images),
    "probabilities": lambda model, images: model.probabilities(images, prepared=True),
    "tokens": lambda model, images: model.tokens(images, prepared=True),
    "attention_maps": lambda model, images: attention_maps(model, images, prepared=True),
}


@pytest.mark.parametrize("size", [(1, 16), (16, 3)])
@pytest.mark.parametrize("function", [*FUNCTIONS.values(), lambda model, images: model(images)])
def test_an_image_smaller_than_a_patch_is_refused_by_a_model_of_any_size(function, size):
    with pytest.raises(ConfigError, match="larger than an image of"):
        function(tiny(image_size=None), normal(2, *size, 3))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_another_size_is_refused_by_every_function(function):
    """The message names both shapes and two fixes; the model still predicts afterwards."""
    model = tiny()
    shapes = "The model takes images (batch, 16, 16, 3), found (batch, 20, 24, 3)."
    with raises(ConfigError, shapes, "model.preprocessor", "image_size=(20, 24)"):
        FUNCTIONS[function](model, normal(2, 20, 24, 3))
    assert np.isfinite(model.probabilities(normal(2, 16, 16, 3), prepared=True)).all()


def test_nested_lists_are_images():
    model, images = tiny(), normal(2, 16, 16, 3)
    model._check_images(images.tolist())
    assert np.array_equal(
        model.tokens(images.tolist(), prepared=True).patches,
        model.tokens(images, prepared=True).patches,
    )
    with pytest.raises(ConfigError, match="found"):
        model.tokens([[0.0, 1.0]], prepared=True)


WAYS = {
    "call": lambda model, images: model(images),
    "predict": lambda model, images: model.predict(images, verbose=0),
    "evaluate": lambda model, images: model.evaluate(images, np.zeros(2), verbose=0),
    "fit": lambda model, images: model.fit(images, np.zeros(2), verbose=0),
    "predict_on_batch": lambda model, images: model.predict_on_batch(images),
    "train_on_batch": lambda model, images: model.train_on_batch(images, np.zeros(2)),
}
HAVE_ARRAYS = ("call", "predict", "evaluate", "fit")
OF_OTHER_SHAPES = [
    normal(2, 3, 16, 16),
    normal(2, 8, 32, 3),
    normal(2, 20, 24, 3),
    normal(16, 16, 3),
]


def test_another_shape_is_refused_by_keras_methods_after_a_right_batch_too():
    """On TensorFlow they trace their second shape as unknown; the graph refuses what it gets."""
    for name, way in WAYS.items():
        model = tiny(num_classes=3)
        model.compile("sgd", "auto")
        way(model, normal(2, 16, 16, 3))
        for images in OF_OTHER_SHAPES:
            with pytest.raises(Exception, match=r"16, ?16, ?3[\])]") as caught:
                way(model, images)
            if name in HAVE_ARRAYS or keras.backend.backend() != "tensorflow":
                assert isinstance(caught.value, ConfigError)
                assert "x1b" not in str(caught.value)  # Keras's codes for bold letters
        way(model, normal(2, 16, 16, 3))


ONE, LABELS = normal(2, 16, 16, 3), np.zeros(2)


@pytest.mark.parametrize("images", [[ONE, ONE], (ONE, np.zeros(2)), [*ONE], {"pixels": ONE}])
def test_several_arrays_are_refused(images):
    model = tiny()
    for way in (model, model.predict):
        with raises(ConfigError, "takes one array of images", "np.stack", 'by the key "images"'):
            way(images)
    assert model.predict({"images": ONE, "id": np.zeros(2)}, verbose=0).shape == (2, 5)


def test_another_model_around_it_has_its_shape():
    with raises(ConfigError, "np.moveaxis(images, 1, -1)"):
        keras.Sequential([keras.Input((3, 16, 16)), tiny(classifier_activation="softmax")])


def test_fit_checks_the_images_of_validation_first():
    model = tiny()
    model.compile("sgd", "auto")
    for images in (OF_OTHER_SHAPES[0], ONE[0]):
        with raises(ConfigError, "found (batch, "):
            model.fit(ONE, LABELS, validation_data=(images, LABELS), verbose=0)
    assert int(model.optimizer.iterations) == 0


def test_a_class_with_another_call_takes_the_images_that_it_wants():
    """Pixels without a warning; the model checks what the class gives it."""

    class Scaled(keras_vit.VisionTransformer):
        """A model of a user, which takes pixels."""

        def call(self, inputs, training=None, mask=None, stages=None):
            return super().call(inputs / 127.5 - 1, training, mask, stages)

    pixels = np.linspace(0, 255, 2 * 16 * 16 * 3).reshape(2, 16, 16, 3).astype("float32")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The images have")
        for way in WAYS.values():
            model = Scaled(tiny(num_classes=3).config)
            model.compile("sgd", "auto")
            way(model, pixels)


@pytest.mark.on_backend("tensorflow")
@pytest.mark.parametrize("shape", [None, (None,) * 4], ids=["no rank", "no sizes"])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_graph_checks_the_shapes_that_a_data_set_does_not_state(shape, jit_compile):
    import tensorflow as tf

    def stated(images):
        types = (tf.TensorSpec(shape, "float32"), tf.TensorSpec((None,), "float32"))
        return tf.data.Dataset.from_generator(
            lambda: [(images, np.zeros(2))], output_signature=types
        )

    model = random_tiny()
    model.compile("sgd", "auto", jit_compile=jit_compile)
    for images in OF_OTHER_SHAPES[:3]:
        for call in (model.fit, model.evaluate):
            with pytest.raises((ConfigError, tf.errors.InvalidArgumentError), match="16, ?16, ?3"):
                call(stated(images), verbose=0)
    images = normal(2, 16, 16, 3)
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(model.predict(stated(images), verbose=0), expected, rtol=1e-5)


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
    with raises(ConfigError, *words):
        tiny(**fields)._check_images(np.zeros(shape, "float32"))


def test_shapes_that_keras_completes_are_accepted():
    """Grey images without a channel axis, a last axis of one, unknown sizes, a dict of images."""
    grey = tiny(channels=1)
    images = normal(2, 16, 16)
    np.testing.assert_array_equal(*(to_numpy(grey(x)) for x in (images, images[..., None])))
    assert refusal((None, None, None, 3), tiny().config, "channels_last") is None
    assert tiny()({"images": normal(2, 16, 16, 3)}).shape == (2, 5)
    assert tiny()(normal(2, 16, 16, 3, 1)).shape == (2, 5)


def test_load_weights_of_another_resolution_names_the_fix(tmp_path):
    """By the layer of the positions, so that Keras says it for a model around this one too."""
    tiny(image_size=32).save_weights(tmp_path / "x.weights.h5")
    with raises(ValueError, "(1, 5, 16)", "(1, 17, 16)", "from_preset(folder, image_size="):
        tiny().load_weights(tmp_path / "x.weights.h5")
    with raises(ValueError, "(1, 16, 16)", "(1, 17, 16)", "or to other learned tokens"):
        tiny(image_size=32, pool={"kind": "gap"}, tokens={"class_tokens": 0}).load_weights(
            tmp_path / "x.weights.h5"
        )


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype="uint8")


@pytest.mark.parametrize("function", ["probabilities", "tokens"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_raw_pixels_given_to_a_model_without_rescaling_warn_once(function, dtype):
    """The dtype uint8 or values up to 255 show raw pixels; the warning names the user's line."""
    model = tiny()
    with pytest.warns(UserWarning, match="rescale=True") as caught:
        FUNCTIONS[function](model, PIXELS.astype(dtype))
        FUNCTIONS[function](model, PIXELS.astype(dtype))
    assert [w.filename for w in caught if "rescale=True" in str(w.message)] == [__file__]


def test_integers_in_fit_warn_by_their_type():
    """Also in a traced step, which has no values, and after prepared images."""
    model = tiny()
    model.compile("sgd", "auto")
    model.fit(normal(4, 16, 16, 3), np.zeros(4), verbose=0)
    with pytest.warns(UserWarning, match="rescale=True"):
        model.fit(PIXELS, np.zeros(4), verbose=0)


def test_prepared_images_warn_only_in_a_model_that_rescales():
    """Raw pixels in a model that rescales do not warn either."""

    def fit(images, **fields):
        model = tiny(**fields)
        model.compile("sgd", "auto")
        model.fit(images, np.zeros(4), verbose=0)
        model.probabilities(images, prepared=True)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fit(normal(4, 16, 16, 3))
        fit(PIXELS, rescale=True)
    with pytest.warns(UserWarning, match="values down to -"):
        fit(normal(4, 16, 16, 3), rescale=True)


UNIT = PIXELS / np.float32(255)
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
SCALES = [{}, IMAGENET, {"mean": 0, "std": 1}, {"mean": 0, "std": 1 / 255}, {"mean": 0.5, "std": 1}]


@pytest.mark.parametrize("fields", [{}, {"rescale": True}, {"stem": {"kind": "packed"}}], ids=str)
def test_floats_in_the_unit_range_warn_in_every_way(fields):
    """torchvision's ToTensor makes them; also after a blank batch, which shows no range."""
    images = UNIT[:2]
    if "stem" in fields:
        images = np.stack([pack_image(image, (8, 8), 4) for image in images])
    for name in HAVE_ARRAYS:
        model = tiny(num_classes=3, **fields)
        model.compile("sgd", "auto")
        model(np.zeros_like(images))
        with pytest.warns(UserWarning, match=r"floats in \[0, 1\].*values in \[.*rescale=True"):
            WAYS[name](model, images)


RANGES = [(0, 256), (0, 40), (70, 256), (140, 256), (255, 256), (0, 1), (128, 129)]


@pytest.mark.on_backend("torch")
@given(
    name=st.sampled_from(list(PROTOCOLS)),
    scale=st.sampled_from(SCALES),
    pixels=st.sampled_from(
        [(0, 256), (0, 40), (70, 256), (140, 256), (255, 256), (0, 1), (128, 129)]
    ),
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


@pytest.mark.on_backend("torch")
def test_the_values_of_the_first_torch_batch_are_checked(monkeypatch):
    """Not while torch compiles: reading values would split its graph."""
    import torch

    batches = [(torch.from_numpy(PIXELS).float(), torch.zeros(4))]
    model = tiny()
    model.compile("sgd", "auto")
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert model(batches[0][0]).shape == (4, 5)
    with pytest.warns(UserWarning, match="pixels up to 255.*rescale=True"):
        model.fit(torch.utils.data.DataLoader(batches, batch_size=None), verbose=0)


READERS = {
    "tokens": lambda model, images, **word: model.tokens(images, **word).patches,
    "probabilities": lambda model, images, **word: model.probabilities(images, **word),
    "explain": lambda model, images, **word: keras_vit.explain(model, images, 0, **word).maps,
    "attention_maps": lambda model, images, **word: attention_maps(
        model, images, "block_0/attention", **word
    )["block_0/attention"],
    "read_tokens": read_tokens,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_images_as_people_have_them_are_prepared(read, tmp_path):
    """Pixels of any size and a path; and the batch that the preprocessor makes, by its word."""
    model = random_tiny()
    pixels = np.random.default_rng(0).integers(0, 256, (1, 21, 19, 3), "uint8")
    PIL.Image.fromarray(pixels[0]).save(tmp_path / "a.png")
    expected = read(model, model.preprocessor(pixels), prepared=True)
    for images in (pixels, pixels / np.float32(255), tmp_path / "a.png", list(pixels)):
        np.testing.assert_allclose(read(model, images), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("scale", [(-1, 1), (-2.1, 2.6), (0, 2.5)], ids=str)
def test_a_batch_that_may_be_prepared_is_refused_without_the_word(read, scale):
    """Floats of the model's size that are no pixels, as an array and as the backend's tensor."""
    model = random_tiny()
    batch = np.random.default_rng(0).uniform(*scale, (2, 16, 16, 3)).astype("float32")
    for images in (batch, keras.ops.convert_to_tensor(batch)):
        with raises(ConfigError, "prepared=True", "floats in [0, 1]"):
            read(model, images)
    assert np.isfinite(read(model, batch, prepared=True)).all()
