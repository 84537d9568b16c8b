"""transformers reads the JSON that keras_vit writes, and keras_vit that of transformers."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.export import check_expressible
from keras_vit.checkpoints.translate import plan
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.models.builders import list_variants, variant
from tests.checkpoints.drawn import accepted, build
from tests.golden import FOLDER
from tests.helpers import assert_close, normal, only_under
from tests.words import raises

# The goldens of transformers are compared on every backend; here files and arguments are.
only_under("torch")
from tests.live import channels_first, random_transformers, torch, transformers  # noqa: E402

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from transformers.core_model_loading import revert_weight_conversion  # noqa: E402


@pytest.mark.parametrize(
    "names", [("tench", "goldfish", "crane", "crane, bird", "\u00c4"), None], ids=["names", "none"]
)
def test_labels_are_read_from_transformers_and_written_to_transformers(names, tmp_path):
    """From id2label to `model.labels` and back; LABEL_0 and so on stand for no labels."""
    folder = shutil.copytree(FOLDER / "hf_classifier", tmp_path / "original")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.id2label = dict(enumerate(names or [f"LABEL_{k}" for k in range(5)]))
    config.label2id = {name: k for k, name in config.id2label.items()}
    config.save_pretrained(folder)
    model = VisionTransformer.from_preset(folder)
    assert model.class_names == names
    checkpoints.save(model, tmp_path / "saved", family="transformers")
    keras_vit.convert(folder, tmp_path / "converted", "transformers")
    for place in ("saved", "converted"):
        written = transformers.AutoConfig.from_pretrained(tmp_path / place)
        assert (written.id2label, written.label2id) == (config.id2label, config.label2id)
        assert keras_vit.info(tmp_path / place).class_names == names


def test_a_pooler_beside_a_classifier_is_not_read_as_a_layer_of_it(tmp_path):
    """transformers' classifier reads the class token, not the pooler; the array is refused."""
    arrays = load_file(FOLDER / "hf_classifier" / "model.safetensors")
    arrays["vit.pooler.dense.weight"] = np.ones((24, 24), "float32")
    shutil.copy(FOLDER / "hf_classifier" / "config.json", tmp_path)
    save_file(arrays, tmp_path / "model.safetensors")
    with raises(CheckpointError, "unexpected: vit.pooler.dense.weight"):
        VisionTransformer.from_preset(tmp_path)


@pytest.mark.parametrize(("count", "size"), [(3, 16), (1, 16), (3, 24)])
def test_pixio_gives_the_mean_of_its_class_tokens(count, size, tmp_path):
    """Also of an image for which its positions are resized; the arrays alone tell the number."""
    sizes = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 2}
    theirs = random_transformers(
        "PixioModel", **sizes, image_size=16, patch_size=4, n_cls_tokens=count
    )
    theirs.save_pretrained(tmp_path / "theirs")
    image = normal(2, size, size, 3)
    with torch.no_grad():
        want = theirs(channels_first(image))
    model = VisionTransformer.from_preset(tmp_path / "theirs", image_size=size)
    tokens = model.tokens(image, prepared=True)
    assert_close(model.predict(image, verbose=0), want.pooler_output.numpy(), 1e-5)
    for found, part in ((tokens.class_token, slice(count)), (tokens.patches, slice(count, None))):
        part = want.last_hidden_state[:, part].numpy()
        assert_close(found.reshape(part.shape), part, 1e-5)
    alone = shutil.copy(tmp_path / "theirs" / "model.safetensors", tmp_path / "x.safetensors")
    assert keras_vit.info(alone, num_heads=3, read={"family": "transformers/pixio"}).config == (
        keras_vit.info(tmp_path / "theirs").config
    )
    checkpoints.save(
        VisionTransformer.from_preset(tmp_path / "theirs"), tmp_path / "ours", "transformers/pixio"
    )
    kind = transformers.PixioModel
    again, info = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        assert torch.equal(again(channels_first(image)).pooler_output, want.pooler_output)


def test_transformers_builds_every_plain_variant_as_planned():
    """From the config.json that keras_vit writes for the variant."""
    for name in list_variants():
        config = variant(name).config()
        if config.stem.is_resnet:
            continue
        written = transformers.ViTConfig.from_dict(
            DIALECTS["transformers"].write_json(config, None)["config.json"]
        )
        with torch.device("meta"):
            theirs = transformers.ViTForImageClassification(written)
        arrays = revert_weight_conversion(theirs, theirs.state_dict())
        moves = plan(config, DIALECTS["transformers"], "vit.")
        planned = {move.name: move.file_shape for move in moves}
        assert {name: tuple(array.shape) for name, array in arrays.items()} == planned
        assert theirs.config.num_attention_heads == config.num_heads


WRITTEN = [d.name for d in DIALECTS.values() if d.library == "transformers" and not d.only_read]


@pytest.mark.parametrize("name", WRITTEN)
def test_transformers_finds_every_array_of_its_class_in_what_we_write(name, tmp_path):
    """But the pooler of a ViT or DeiT that has none, which an argument leaves out."""
    for number, config in enumerate(accepted(DIALECTS[name])):
        checkpoints.save(VisionTransformer(**config.to_dict()), tmp_path / str(number), name)
        (class_name,) = json.loads((tmp_path / str(number) / "config.json").read_text())[
            "architectures"
        ]
        without = {"add_pooling_layer": False} if class_name in ("ViTModel", "DeiTModel") else {}
        _, info = getattr(transformers, class_name).from_pretrained(
            tmp_path / str(number), output_loading_info=True, **without
        )
        assert not any(info.values()), (class_name, info)


_SMALL = {
    **{"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3},
    **{"num_hidden_layers": 1, "image_size": 8, "patch_size": 4},
}


def saved(class_name, folder, **fields):
    """A small model of transformers with a random number in every array, and its files."""
    model = random_transformers(class_name, **_SMALL, **fields)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    ("class_name", "key", "value"),
    [
        ("ViTModel", "pooler_act", "relu"),
        ("DeiTModel", "pooler_act", "relu"),
        ("DPTModel", "pooler_act", "relu"),
        ("DINOv3ViTModel", "hidden_act", "relu"),
    ],
)
def test_an_activation_that_we_do_not_compute_is_refused(class_name, key, value, tmp_path):
    saved(class_name, tmp_path, **{key: value})
    with raises(CheckpointError, f"{key}={value!r}", "expected"):
        VisionTransformer.from_preset(tmp_path)


@pytest.mark.parametrize("class_name", ["ViTModel", "DeiTModel", "DPTModel"])
def test_a_pooler_of_another_width_has_our_features(class_name, tmp_path):
    """`pooler_output_size`; DPT is not written, since its decoder is missing."""
    theirs = saved(class_name, tmp_path / "theirs", pooler_output_size=13)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    given = channels_first(images)
    with torch.no_grad():
        want = theirs(given).pooler_output.numpy()
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    assert_close(model(images), want, 1e-5)
    if class_name != "DPTModel":
        checkpoints.save(model, tmp_path / "ours", keras_vit.info(tmp_path / "theirs").family)
        again = type(theirs).from_pretrained(tmp_path / "ours").eval()
        with torch.no_grad():
            assert_close(again(given).pooler_output.numpy(), want, 1e-6)


def test_a_dinov2_without_mask_token_is_written_as_one(tmp_path):
    """transformers then reports no array as missing."""
    saved("Dinov2Model", tmp_path / "theirs", use_mask_token=False)
    keras_vit.convert(tmp_path / "theirs", tmp_path / "ours", "transformers")
    kind = transformers.Dinov2Model
    _, info = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info


@pytest.mark.parametrize("class_name", ["BlipVisionModel", "IJepaModel", "Data2VecVisionModel"])
def test_verify_reads_the_feature_that_we_have(class_name, tmp_path):
    """BLIP has the last norm twice in its pooled output; the others have patches alone."""
    saved(class_name, tmp_path)
    assert keras_vit.verify(tmp_path).passed


@pytest.mark.parametrize("change", [{"image_size": (16, 32)}, {"patch_size": (4, 8)}], ids=str)
def test_a_class_builds_what_is_not_square_or_the_model_is_refused(change):
    """Most classes divide the number of pixels by that of a patch as integers."""
    sizes = {"hidden_size": 16, "mlp_dim": 64, "num_heads": 2, "num_layers": 1, "num_classes": 3}
    built = 0
    for dialect in DIALECTS.values():
        if dialect.only_read or not dialect.name.startswith("transformers"):
            continue
        fields = {**sizes, "patch_size": 4, "image_size": 16}
        try:
            config = build(dialect, **{**fields, **change})
            check_expressible(config, dialect)
        except (CheckpointError, ConfigError):
            continue
        content = dialect.write_json(config)["config.json"]
        kind = getattr(transformers, content.pop("architectures")[0])
        with torch.device("meta"):
            kind(kind.config_class(**content))
        built += 1
    assert built
