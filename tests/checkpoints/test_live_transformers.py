"""Models of transformers: its outputs from its files, and its own classes read what we write."""

import json
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError, ConfigError
from tests.checkpoints.cases import REFUSED, TOWERS, VISION, WHOLE
from tests.checkpoints.files import arrays_of, assert_comes_back, copy, refused, write_arrays
from tests.checkpoints.headers import write_sparse
from tests.helpers import assert_close, to_numpy

# The goldens of transformers are compared on every backend; here files and arguments are.
from tests.live import (
    channels_first,
    load_folder,
    random_transformers,
    torch,
    transformers,
)
from tests.plain import edit_json, normal

pytestmark = pytest.mark.usefixtures("offline", "blank_models")

from transformers.core_model_loading import revert_weight_conversion  # noqa: E402


def saved(case, folder):
    """The model of a row with random weights, its files, and the name of its family."""
    model = random_transformers(case.kind, **({} if case.part else VISION) | case.fields)
    model.save_pretrained(folder)
    return model, f"transformers/{case.family}".removesuffix("/")


def tower_of(model, part):
    """The vision tower, and the module around it."""
    if not part:
        return model, model
    name = next(n for n, _ in model.named_modules() if n.rpartition(".")[2] == part)
    return model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])


def features(output, name, around):
    """The output that our model computes."""
    if name == "projected":
        return around.visual_projection(output.pooler_output)
    if name in ("token", "mean"):
        tokens = output.last_hidden_state
        return tokens[:, 0] if name == "token" else tokens.mean(1)
    return output[name]


def joined(tokens):
    """All tokens of an image in one row."""
    parts = [to_numpy(part) for part in tokens if part is not None]
    return np.concatenate([part.reshape(2, -1, part.shape[-1]) for part in parts], 1)


@pytest.mark.parametrize("case", [*TOWERS, *WHOLE], ids=str)
def test_our_outputs_and_tokens_are_those_of_the_library(case, tmp_path):
    """A whole model is read as its tower, which `verify` cannot run alone."""
    theirs, family = saved(case, tmp_path)
    info = keras_vit.info(tmp_path)
    assert (info.family, info.config.num_heads) == (family, 3)
    tower, around = tower_of(theirs, case.part)
    if hasattr(tower, "make_preprocessor_external"):  # RADIO's own mean and std
        tower.make_preprocessor_external()
    image = normal(2, *case.size, 3)
    with torch.no_grad():
        output = tower(channels_first(image))
        want = features(output, case.output, around).numpy() if case.output else None
    model = VisionTransformer.from_preset(tmp_path, image_size=case.size)
    if case.output:
        assert_close(model(image), want)
    if case.tokens:
        last = f"block_{model.config.num_layers - 1}" + "/norm" * (case.tokens == "norm")
        found = joined(model.tokens(image, last, prepared=True))
        if "feature_maps" in output:
            found, want = found[:, 1:], output.feature_maps[-1].flatten(2).transpose(1, 2)
        else:
            want = output["features" if "features" in output else "last_hidden_state"]
        assert_close(found[:, found.shape[1] - want.shape[1] :], want.numpy())
    if not case.part:
        assert keras_vit.verify(tmp_path).passed
    elif theirs.config.model_type != case.family:  # as for DPT
        refused(tmp_path, "the whole model", ask=keras_vit.verify)


WRITTEN = [case for case in TOWERS if case.is_written]


@pytest.mark.parametrize("case", WRITTEN, ids=str)
def test_the_class_reads_what_we_write_or_the_model_is_refused(case, tmp_path):
    """As it was read; and neither square images nor square patches, which few classes have."""
    theirs, family = saved(case, tmp_path / "theirs")
    model = VisionTransformer.from_preset(tmp_path / "theirs")
    assert_comes_back(tmp_path / "theirs", tmp_path, model)
    assert type(load_folder(tmp_path / "x")) is type(theirs)
    for change in ({"image_size": (16, 32)}, {"patch_size": (4, 8)}):
        folder = tmp_path / str(change)
        try:
            other = VisionTransformer(model.config.replace(position_grid=None, **change))
            checkpoints.save(other, folder, family)
        except (CheckpointError, ConfigError):
            assert not folder.exists()
        else:
            load_folder(folder)


STATED = ("ViT", "DeiT", "DPT", "Flava", "IJepa", "Beit", "Data2Vec", "Dinov2", "DINOv3")
"""Classes whose config.json has to state the number of heads."""


OMITTING = [c for c in TOWERS if not c.kind.startswith(STATED) and "vision_config" not in c.fields]


@pytest.mark.parametrize("case", OMITTING, ids=str)
def test_the_defaults_of_the_class_fill_what_config_json_omits(case, tmp_path):
    """A release writes only what differs from the defaults of its class."""
    kind = getattr(transformers, case.kind)
    config = kind.config_class(**case.fields, num_hidden_layers=2, architectures=[case.kind])
    with torch.device("meta"):
        theirs = kind(config)
    arrays = revert_weight_conversion(theirs, theirs.state_dict())
    shapes = {name: ["F32", list(array.shape)] for name, array in arrays.items()}
    write_sparse(tmp_path / "model.safetensors", shapes)
    theirs.config.save_pretrained(tmp_path)
    whole = keras_vit.info(tmp_path).config
    names = {**case.fields, **dict.fromkeys(("model_type", "architectures", "num_hidden_layers"))}
    content = json.loads((tmp_path / "config.json").read_text())
    few = {key: value for key, value in content.items() if key in names}
    (tmp_path / "config.json").write_text(json.dumps(few))
    found = keras_vit.info(tmp_path).config
    initial = {"layer_scale": whole.block.layer_scale}  # only new models have this value
    assert found.replace(block=initial) == whole


@pytest.mark.parametrize(("kind", "fields", "words"), REFUSED)
def test_what_we_do_not_compute_is_refused_by_its_key(kind, fields, words, tmp_path):
    values = {key: value for key, value in fields.items() if key in words}
    valid = {key: value for key, value in fields.items() if key not in values}
    random_transformers(kind, **{**VISION, **valid}).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", **values)
    refused(tmp_path, words)


def test_a_pooler_beside_a_classifier_is_not_read_as_a_layer_of_it(tmp_path):
    """transformers' classifier reads the class token, and leaves the pooler out too."""
    folder, pooler = copy("hf_classifier", tmp_path), {"vit.pooler.dense.weight": (24, 24)}
    write_arrays(folder / "model.safetensors", ("", arrays_of("hf_classifier")), ("", pooler))
    info = keras_vit.info(folder)
    assert info.config.representation_size is None
    assert list(info.ignored) == list(pooler)


@pytest.mark.parametrize("depth", [3, 9])
def test_a_tower_is_sought_at_few_levels(depth, tmp_path):
    """A hostile file of many or deep objects costs no minutes, and names no family."""
    fields = {**VISION, "vision_use_head": False}
    random_transformers("SiglipVisionModel", **fields).save_pretrained(tmp_path)
    part = json.loads((tmp_path / "config.json").read_text())
    for _ in range(depth):
        part = {"part": part}
    config = {"model_type": "whole", **part, **{str(k): {"model_type": "x"} for k in range(99)}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if depth == 3:
        assert keras_vit.info(tmp_path).family == "transformers/siglip"
    else:
        refused(tmp_path, "model_type='whole'")


def test_files_of_dinov2_with_the_names_of_tipsv2_stay_facebooks(tmp_path):
    """Facebook's own names of a gated DINOv2 with registers are those of TIPSv2."""
    theirs = random_transformers("Tipsv2VisionModel", **VISION, use_swiglu_ffn=True)
    theirs.save_pretrained(tmp_path)
    alone = shutil.copy(tmp_path / "model.safetensors", tmp_path / "alone.safetensors")
    assert keras_vit.info(alone, num_heads=3).family == "facebook"
    read = {"family": "transformers/tipsv2_vision_model"}
    assert keras_vit.info(alone, num_heads=3, read=read, image_size=16).config.tokens.mask


def test_images_of_tipsv2_are_those_of_its_own_processor(tmp_path):
    """`Tipsv2ImageProcessor` resizes tensors by the bilinear filter, and has no mean and no std."""
    random_transformers("Tipsv2VisionModel", **VISION).save_pretrained(tmp_path)
    own = {"name": "transformers", "resize": "tensor", "mean": 0.0, "std": 1.0}
    assert keras_vit.info(tmp_path).protocol == own
    processor = {"image_processor_type": "Tipsv2ImageProcessor", "size": 16}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    assert keras_vit.info(tmp_path).protocol == own


def test_radios_mean_and_std_are_those_of_the_model_and_of_its_processor(tmp_path):
    """A processor that normalises comes before the model's own mean and std."""
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    fields = {**VISION, "max_img_size": 32, "norm_mean": mean, "norm_std": std}
    random_transformers("RadioModel", **fields).save_pretrained(tmp_path)
    own = {"image_processor_type": "CLIPImageProcessor", "size": {"height": 24, "width": 24}}
    own |= {"do_center_crop": False, "do_normalize": False}
    normalises = {**own, "do_normalize": True, "image_mean": [0.5] * 3}
    joined = round(0.5 + 0.26862954 * 0.5, 9)
    # The table of positions is of the largest image.
    for processor, first, side in ((None, 0.5, 16), (own, 0.5, 24), (normalises, joined, 24)):
        if processor:
            (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
        info = keras_vit.info(tmp_path)
        assert info.protocol["mean"][0] == first
        assert info.config.image_size == (side, side)
        assert processor is normalises or info.protocol["std"] == std
