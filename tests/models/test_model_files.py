"""Models are rebuilt, cloned, sliced, nested, saved and loaded with the same output."""

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer
from tests.families import FAMILIES, PLAIN, images_for
from tests.helpers import assert_close, random_tiny, tiny, to_numpy
from tests.plain import normal, through_json
from tests.runs import sample

IMAGES = normal(2, 16, 16, 3)
KINDS = {
    "token": {"representation_size": 7, "class_names": list("abcde"), "provenance": {"by": "me"}},
    "rates": {"dropout_rate": 0.1, "stochastic_depth_rate": 0.2},
    "resized": {"position_grid": (3, 5), "block": {"activation": "gelu"}, "name": "mine"},
    "any size": {"image_size": None, "position_grid": (3, 2)},
    "mixed": {"dtype": "mixed_bfloat16", "data_format": "channels_first"},
    "softmax": {"classifier_activation": "softmax", "rescale": True},
    "remat": {"remat": True, "trainable": False},
    **PLAIN,
    **FAMILIES,
}


@pytest.mark.every_backend
@pytest.mark.parametrize("kind", sample(KINDS, "any size", "mixed"))
def test_keras_files_and_presets_restore_class_config_and_logits(kind, tmp_path):
    """Without `custom_objects`."""
    model = random_tiny(**KINDS[kind])
    settings = {"dtype": model.dtype_policy, "data_format": model.data_format}
    settings |= {"remat": kind == "token"}
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    preset = VisionTransformer.from_preset(tmp_path / "preset", **settings)
    assert through_json(loaded.get_config()) == through_json(model.get_config())
    assert (loaded.remat, loaded.trainable) == (model.remat, model.trainable)
    assert preset.remat == (kind == "token")  # of the argument, not of the preset
    images = images_for(model)
    for each in (loaded, preset):
        assert type(each) is VisionTransformer
        assert each.config == model.config
        assert (each.class_names, each.provenance) == (model.class_names, model.provenance)
        assert each.config.source_grid == model.config.source_grid
        assert each.dtype_policy == model.dtype_policy
        assert [w.path for w in each.weights] == [w.path for w in model.weights]
        np.testing.assert_array_equal(to_numpy(each(images)), to_numpy(model(images)))


@pytest.mark.every_backend
def test_training_resumes_from_a_keras_file(tmp_path):
    """The file holds the optimizer too, so the next step gives the same weights."""
    model = random_tiny()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=keras.backend.backend() == "jax")
    classes = np.array([0, 1])
    model.train_on_batch(IMAGES, classes)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        each.train_on_batch(IMAGES, classes)
    assert int(loaded.optimizer.iterations) == 2
    assert_close(loaded(IMAGES), to_numpy(model(IMAGES)))


def test_canary_keras_clones_a_subclass_as_a_plain_functional():
    """Fails when `clone_model` keeps the class: drop the answer of the FAQ then.

    `_wrap_clone_function` replaces `clone_function=None` by a function before `clone_model` tests
    whether the caller gave one, so that `from_config` of the class is never called.

    Expected: the copy of a functional model with a `get_config` of its own has its class.
    Found: it is a `Functional` without the methods and attributes of the class.
    Remedy: decide by the arguments of the caller.
    """
    assert type(keras.models.clone_model(tiny())) is not VisionTransformer


def sliced(model):
    """The first stages."""
    return keras.Model(model.input, model.get_layer("encoder_norm").output)


def in_functional(backbone):
    """A new head on the features of a model."""
    images = keras.Input((16, 16, 3))
    return keras.Model(images, keras.layers.Dense(3, name="new")(backbone(images)))


@pytest.mark.every_backend
@pytest.mark.parametrize("form", sample((sliced, in_functional), in_functional))
def test_models_of_keras_with_parts_or_the_whole_are_saved_and_loaded(form, tmp_path):
    """`.keras` and `.weights.h5`; an inner model is a `VisionTransformer` again."""
    outer = form(random_tiny(num_classes=0))
    outer.save(tmp_path / "outer.keras")
    outer.save_weights(tmp_path / "outer.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "outer.keras")
    fresh = form(tiny(num_classes=0))
    fresh.load_weights(tmp_path / "outer.weights.h5")
    for again in (loaded, fresh):
        np.testing.assert_array_equal(to_numpy(again(IMAGES)), to_numpy(outer(IMAGES)))
        assert [type(layer) for layer in again.layers] == [type(layer) for layer in outer.layers]


def test_a_whole_model_in_h5_is_loaded_by_the_name_of_its_class(tmp_path):
    """Keras looks for no registered classes in this format."""
    model = random_tiny()
    model.save(tmp_path / "model.h5")
    known = {"VisionTransformer": VisionTransformer}
    again = keras.saving.load_model(tmp_path / "model.h5", custom_objects=known)
    np.testing.assert_array_equal(to_numpy(again(IMAGES)), to_numpy(model(IMAGES)))
