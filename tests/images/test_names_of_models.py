"""The class names of a model: where they are stored, and what `classify` answers."""

import zipfile

import keras
import numpy as np
import pytest

from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import ConfigError
from keras_vit.images import class_names
from tests.helpers import tiny

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype="uint8")


def test_configs_presets_and_keras_files_store_the_name_of_a_list(tmp_path):
    """`model.class_names` gives the names; the files hold "imagenet1k", and folders of timm all."""
    model = tiny(num_classes=1000, protocol="timm", block={"activation": "gelu"})
    with pytest.raises(ConfigError, match="2 class_names, expected 1000"):
        model.class_names = ["a", "b"]
    model.class_names = "imagenet1k"
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "x.keras")
    with zipfile.ZipFile(tmp_path / "x.keras") as archive:
        assert b"Tinca" not in archive.read("config.json")
    checkpoints.save(model, tmp_path / "timm", "timm", lossy=True)
    read = [VisionTransformer.from_preset(tmp_path / folder) for folder in ("preset", "timm")]
    for back in (model, keras.saving.load_model(tmp_path / "x.keras"), *read):
        assert back.class_names == class_names.expand("imagenet1k")
        assert back.get_config()["class_names"] == "imagenet1k"
        assert back.preprocessor == model.preprocessor


def test_classify_and_classify_each_name_the_largest_logit(tmp_path):
    """For an iterator of images, with a smaller last batch; unreadable images are skipped."""
    model, left_out = tiny(class_names=[*"abcde"]), []
    model.get_layer("head").kernel.assign(np.random.default_rng(0).normal(size=(16, 5)))
    logits = keras.ops.convert_to_numpy(model(model.preprocessor(PIXELS)))
    expected = model.classify(PIXELS, top=2)
    assert [[name for name, _ in answer] for answer in expected] == [
        ["abcde"[k] for k in row] for row in np.argsort(-logits)[:, :2]
    ]
    source = iter([PIXELS[0], tmp_path / "absent.png", *PIXELS[1:]])
    each = model.classify_each(source, 2, 2, lambda image, reason: left_out.append(image))
    for (image, found), pixels, answer in zip(each, PIXELS, expected, strict=True):
        assert np.array_equal(image, pixels)
        assert dict(found) == pytest.approx(dict(answer), rel=1e-5)
    assert left_out == [tmp_path / "absent.png"]
