"""timm and transformers load what keras_vit writes of its own models, and their labels."""

import shutil

import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests.golden import FOLDER, expected, relative_error
from tests.helpers import tiny
from tests.live import load_folder
from tests.plain import edit_json, raises
from tests.runs import THOROUGH

pytestmark = pytest.mark.usefixtures("offline")


def test_an_activation_that_a_library_lacks_is_left_out_with_a_line_of_log(tmp_path, caplog):
    """The library computes logits."""
    checkpoints.save(tiny(classifier_activation="softmax"), tmp_path / "x.npz")
    assert "softmax" in caplog.text


def test_official_hybrids_are_written_only_as_lossy(tmp_path):
    """timm's stem standardises kernels otherwise, so its logits differ by up to 10 %."""
    source, want = FOLDER / "hybrid_r_ti.npz", expected("hybrid_r_ti")
    with raises(CheckpointError, "stem.kind='resnet'", "'resnet_timm'", "lossy=True"):
        keras_vit.convert(source, tmp_path / "x", "timm")
    assert list(tmp_path.iterdir()) == []
    keras_vit.convert(source, tmp_path / "x", "timm", lossy=True)
    assert keras_vit.verify(tmp_path / "x").passed
    found = VisionTransformer.from_preset(tmp_path / "x").predict(want["image"], verbose=0)
    assert 1e-5 < relative_error(found, want["logits"]) < 1e-1


VARIANTS = [v for v in keras_vit.list_variants() if THOROUGH or "_ti" in v]


@pytest.mark.parametrize("name", VARIANTS)
def test_timm_builds_every_variant(name, tmp_path):
    """With the names and shapes, the image size and the heads of what keras_vit writes."""
    model = getattr(keras_vit, name)(num_layers=1, image_size=96, num_classes=3)
    checkpoints.save(model, tmp_path, "timm", lossy=model.config.stem.is_resnet)
    theirs = load_folder(tmp_path)
    found = theirs.blocks[0].attn.num_heads, theirs.patch_embed.img_size
    assert found == (model.config.num_heads, (96, 96))


NAMES = ("tench", "goldfish", "crane", "crane, bird", "Ä", "f", "g")
LABELS = (
    ("timm_token", {"label_names": NAMES}, NAMES),
    ("hf_classifier", {"id2label": dict(enumerate(NAMES[:5]))}, NAMES[:5]),
    ("hf_classifier", {"id2label": {str(k): f"LABEL_{k}" for k in range(5)}}, None),
)


@pytest.mark.parametrize(("name", "labels", "names"), LABELS)
def test_labels_of_a_library_are_read_and_written(name, labels, names, tmp_path):
    """`model.class_names` and back; LABEL_0 and so on stand for no labels."""
    folder = shutil.copytree(FOLDER / name, tmp_path / "x")
    edit_json(folder / "config.json", **labels)
    family, model = keras_vit.info(folder).family, VisionTransformer.from_preset(folder)
    assert model.class_names == names
    checkpoints.save(model, tmp_path / "saved", family)
    keras_vit.convert(folder, tmp_path / "converted", family)
    for place in (tmp_path / "saved", tmp_path / "converted"):
        theirs = load_folder(place)
        if name == "timm_token":
            assert theirs.pretrained_cfg["label_names"] == list(names)
        else:
            want = names or [f"LABEL_{k}" for k in range(5)]
            assert list(theirs.config.id2label.values()) == list(want)
        assert keras_vit.info(place).class_names == names
