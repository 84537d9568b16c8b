"""transformers reads the JSON that keras_vit writes, and keras_vit that of transformers."""

import pytest

from keras_vit import CheckpointError, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.translate import plan
from keras_vit.variants import list_variants, variant
from tests.helpers import only_under
from tests.words import raises

# The goldens of transformers are compared on every backend; here files and arguments are.
only_under("torch")
torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

transformers = pytest.importorskip("transformers")
from transformers import ViTForImageClassification, ViTModel  # noqa: E402
from transformers.core_model_loading import revert_weight_conversion  # noqa: E402

from tests.live import (  # noqa: E402
    randomise,
    stored,
)

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

SIZES = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_labels": 5,
}


def random_library_model(pooler=None, **fields):
    """A model of transformers with random parameters."""
    config = transformers.ViTConfig(**{**SIZES, **fields})
    with torch.device("meta"):
        if pooler is None:
            library_model = ViTForImageClassification(config)
        else:
            library_model = ViTModel(config, add_pooling_layer=pooler)
    return randomise(library_model)


def test_labels_are_read_from_transformers_and_written_to_transformers(tmp_path):
    """From id2label to `model.labels` and back."""
    names = {0: "tench", 1: "goldfish", 2: "crane", 3: "crane, bird", 4: "Ä"}
    library_model = random_library_model(
        id2label=names, label2id={name: k for k, name in names.items()}
    )
    library_model.save_pretrained(tmp_path / "original")
    model = checkpoints.load(tmp_path / "original")
    assert model.labels == tuple(names.values())
    checkpoints.save(model, tmp_path / "saved", dialect="transformers")
    checkpoints.convert(tmp_path / "original", tmp_path / "converted", "transformers")
    for folder in ("saved", "converted"):
        config = transformers.AutoConfig.from_pretrained(tmp_path / folder)
        assert config.id2label == names
        assert config.label2id == library_model.config.label2id


def test_placeholder_names_are_no_labels(tmp_path):
    """LABEL_0 and so on are read as no labels, and no labels are written so."""
    random_library_model().save_pretrained(tmp_path / "original")
    model = checkpoints.load(tmp_path / "original")
    assert model.labels is None
    checkpoints.save(model, tmp_path / "written", dialect="transformers")
    assert checkpoints.load(tmp_path / "written").labels is None
    assert transformers.AutoConfig.from_pretrained(tmp_path / "written").num_labels == 5


def test_a_pooler_beside_a_classifier_is_not_read_as_a_layer_of_it(tmp_path):
    """transformers' classifier reads the class token, not the pooler; the array is refused."""
    library_model = random_library_model()
    library_model.vit.pooler = random_library_model(pooler=True).pooler
    library_model.save_pretrained(tmp_path)
    assert "vit.pooler.dense.weight" in stored(tmp_path / "model.safetensors")
    with raises(CheckpointError, "unexpected: vit.pooler.dense.weight"):
        checkpoints.load(tmp_path)


def test_transformers_builds_every_plain_variant_as_planned():
    """From the config.json that keras_vit writes for the variant."""
    for name in list_variants():
        config = variant(name).config()
        if config.resnet is not None:
            continue
        written = DIALECTS["transformers"].write_json(config, None)["config.json"]
        with torch.device("meta"):
            library_model = ViTForImageClassification(transformers.ViTConfig.from_dict(written))
        arrays = revert_weight_conversion(library_model, library_model.state_dict())
        moves = plan(config, DIALECTS["transformers"], "vit.")
        planned = {move.name: move.file_shape for move in moves}
        assert {name: tuple(array.shape) for name, array in arrays.items()} == planned
        assert library_model.config.num_attention_heads == config.num_heads
