"""Names of other libraries are answered with the line that does it here."""

import copy
import pickle
import re

import keras
import pytest

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import CATALOG
from keras_vit.support.habits import HABITS, MODEL_HABITS
from tests.helpers import assert_close, random_tiny
from tests.plain import normal


@pytest.fixture(scope="module")
def model():
    return random_tiny()


def test_a_name_of_another_library_is_answered_with_a_line(model):
    """The attribute is missing all the same: `hasattr` and the default of `getattr` say so."""
    for place, names in ((keras_vit, HABITS), (model, MODEL_HABITS)):
        for name in names:
            with pytest.raises(AttributeError, match=f"has no attribute {name!r}\\. .*\\.$"):
                getattr(place, name)
            assert getattr(place, name, None) is None


def test_the_answers_name_what_the_model_has(model):
    answers = " ".join(MODEL_HABITS.values())
    for word, place in (("model", model), ("keras_vit", keras_vit)):
        assert all(hasattr(place, name) for name in re.findall(rf"\b{word}\.(\w+)", answers))


def test_a_subclass_and_a_user_may_define_such_attributes(model):
    """As a class attribute, a property, a layer or a plain value."""

    class Mine(VisionTransformer):
        head = "mine"
        backbone = property(lambda self: self.layers[0])

    mine = Mine.from_config(model.get_config())
    assert (mine.head, mine.backbone) == ("mine", mine.layers[0])
    mine.num_features = 16
    mine.preprocess = keras.layers.Rescaling(2.0)
    assert (mine.num_features, mine.preprocess.scale) == (16, 2.0)


def test_a_model_is_copied_and_pickled_as_before(model):
    """A lock cannot be copied, so the copy has a new lock."""
    images = normal(2, 16, 16, 3)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.config == model.config
        assert_close(twin.predict(images, verbose=0), model.predict(images, verbose=0))
        with pytest.raises(AttributeError, match=r"model\.tokens"):
            twin.backbone  # noqa: B018


def test_presets_of_the_class_are_those_of_the_catalog():
    """In keras-hub's form, from the class and from a model; nobody else's copy can be changed."""
    presets, name = VisionTransformer.presets, "vit_b16.augreg_i21k_ft_i1k_384"
    assert list(presets) == keras_vit.list_presets()
    assert presets[name]["source"] == CATALOG[name].source
    assert presets[name]["metadata"]["params"] == 86_859_496
    with pytest.raises(TypeError):
        presets["mine"] = {}


def test_a_size_of_a_family_is_built_fresh_offline(monkeypatch):
    """From the row of the catalog: `load_weights=False` opens no file and no connection."""
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    fields = {"num_layers": 1, "image_size": 28, "num_classes": 3}
    name = "vit_s14.dinov2"
    model = VisionTransformer.from_preset(name, load_weights=False, **fields)
    assert model.config == CATALOG[name].config().replace(**fields, position_grid=None)
    assert model.output_shape == (None, 3)
    assert complete(model.preprocessor.protocol) == complete(CATALOG[name].protocol)
