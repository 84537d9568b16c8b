"""The class names of a model: where they are stored, and what `classify` answers."""

import zipfile

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.images import class_names
from tests.helpers import tiny

NAMES = class_names.expand("imagenet1k")
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype="uint8")


def test_configs_presets_and_keras_files_store_the_name_of_a_list(tmp_path):
    """`model.class_names` gives the names; the files hold "imagenet1k", and folders of timm all."""
    protocol = {"name": "timm", "crop_pct": 1.0}
    fields = {"num_classes": 1000, "protocol": protocol, "block": {"activation": "gelu"}}
    model = tiny(**fields, class_names="imagenet1k")
    assert model.class_names == NAMES
    assert model.get_config()["class_names"] == "imagenet1k"
    model.save_to_preset(tmp_path / "preset")
    preset = keras_vit.info(tmp_path / "preset")
    assert (preset.class_names, preset.protocol) == ("imagenet1k", protocol)
    model.save(tmp_path / "x.keras")
    loaded = keras.saving.load_model(tmp_path / "x.keras")
    assert loaded.preprocessor == model.preprocessor
    with zipfile.ZipFile(tmp_path / "x.keras") as archive:
        assert b"Tinca" not in archive.read("config.json")
    checkpoints.save(model, tmp_path / "timm", "timm", lossy=True)
    read = [VisionTransformer.from_preset(tmp_path / folder) for folder in ("preset", "timm")]
    for back in (loaded, *read, VisionTransformer.from_config(model.get_config())):
        assert back.class_names == NAMES
        assert back.get_config()["class_names"] == "imagenet1k"
    with pytest.raises((CheckpointError, ConfigError), match="2 class_names, expected 1000"):
        keras_vit.convert(tmp_path / "timm", tmp_path / "x", "transformers", class_names=["a", "b"])


def test_classify_returns_the_name_of_the_largest_logit():
    """For each image, with `top` names."""
    model = tiny(num_classes=1000, class_names="imagenet1k")
    model.get_layer("head").bias.assign(9.0 * (np.arange(1000) == 285))
    answers = model.classify(PIXELS[:3], top=2, batch_size=2)
    assert [answer[0][0] for answer in answers] == ["Egyptian cat"] * 3
    assert [len(answer) for answer in answers] == [2] * 3


def test_a_model_that_gives_nan_has_no_most_probable_label():
    """The message names the causes."""
    model = tiny()
    model.get_layer("head").bias.assign(np.full(5, np.nan))
    with pytest.raises(ConfigError, match="gives NaN as a probability"):
        model.classify(PIXELS[0])


def test_classify_each_gives_the_answers_of_classify(tmp_path):
    """For an iterator of images, with a smaller last batch; unreadable images are skipped."""
    model = tiny()
    model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=(16, 5)))
    expected, left_out = model.classify(PIXELS, top=1), []
    source = iter([PIXELS[0], tmp_path / "absent.png", *PIXELS[1:]])
    actual = list(model.classify_each(source, 1, 2, lambda image, reason: left_out.append(image)))
    assert all(np.array_equal(image, k) for (image, _), k in zip(actual, PIXELS, strict=True))
    for (_, ((name, share),)), ((wanted, probability),) in zip(actual, expected, strict=True):
        assert (name, share) == (wanted, pytest.approx(probability, rel=1e-5))
    assert left_out == [tmp_path / "absent.png"]


BAD = [
    ("imagenet", "'imagenet' is no shipped list. Did you mean 'imagenet1k'?"),
    ("imagenet1k", "1000 class_names, expected 5 strings"),
    (["a", "b"], "2 class_names, expected 5 strings, one for each class; found a, b"),
    ([1, 2, 3, 4, 5], "holds 1, expected 5 strings"),
]


@pytest.mark.parametrize(("names", "message"), BAD)
def test_bad_names_are_refused_by_the_constructor_and_when_they_are_set(names, message):
    """A list that is not shipped, of another length, or without strings."""
    model = tiny()
    for call in (lambda: tiny(class_names=names), lambda: setattr(model, "class_names", names)):
        with pytest.raises(ConfigError, match=message):
            call()
    model.class_names = [*"vwxyz"]
    assert VisionTransformer.from_config(model.get_config()).class_names == tuple("vwxyz")
    model.class_names = None
    assert model.class_names is None
