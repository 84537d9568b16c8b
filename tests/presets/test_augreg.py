"""AugReg's file names: the facts read from them, and refusals."""

import keras
import pytest

from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import PresetError
from keras_vit.models.builders import variant
from keras_vit.presets import bucket
from keras_vit.presets.augreg import read_file_name
from tests.plain import raises

UPSTREAM = "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
BEST = f"{UPSTREAM}--imagenet2012-steps_20k-lr_0.03-res_384"


def test_a_file_name_gives_variant_data_resolution_labels_and_protocol():
    """With and without `.npz`."""
    assert read_file_name(f"{BEST}.npz") == {
        "name": f"augreg/{BEST}.npz",
        "source": f"{bucket.OFFICIAL}vit_models/augreg/{BEST}.npz",
        "variant": "vit_s16",
        "data": "i21k_ft_imagenet2012",
        "image_size": 384,
        "num_classes": 1000,
        "class_names": "imagenet1k",
        "protocol": {"name": "big_vision", "resize_small": 448, "image_size": 384},
    }
    facts = read_file_name(UPSTREAM)
    assert (facts["data"], facts["image_size"], facts["num_classes"]) == ("i21k", 224, 21843)
    assert (facts["class_names"], facts["protocol"]) == ("imagenet21k", "big_vision")
    facts = read_file_name(f"{UPSTREAM}--kitti-distance-steps_0k-lr_0.003-res_224")
    assert (facts["data"], facts["num_classes"]) == ("i21k_ft_kitti-distance", None)


@pytest.mark.parametrize(
    "name", ["", "B_16", "../../x", "index.csv", UPSTREAM + "--", UPSTREAM + "/x", UPSTREAM + "\n"]
)
def test_names_of_another_form_are_refused(name):
    """The message shows an example."""
    with raises(PresetError, "no file name of AugReg", "S_16-i21k"):
        read_file_name(name)


def test_a_file_of_augreg_loads_by_its_name(hub, tmp_path):
    """The file determines the number of classes."""
    model = variant("vit_ti16")(32, num_classes=3)
    checkpoints.save(model, tmp_path / "x.npz", "google")
    name = "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--pets-steps_0k-lr_0.003-res_32"
    hub.files[f"vit_models/augreg/{name}.npz"] = (tmp_path / "x.npz").read_bytes()
    keras.utils.clear_session()  # which counts the names of models
    loaded = VisionTransformer.from_preset(f"augreg/{name}.npz")
    assert (loaded.config.num_classes, loaded.config.image_size) == (3, (32, 32))
    assert (loaded.class_names, loaded.name) == (None, "vit_ti16")
    with raises(PresetError, "404"):
        VisionTransformer.from_preset(f"augreg/{UPSTREAM}")
