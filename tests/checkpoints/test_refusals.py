"""Models that a library cannot express, and JSON that contradicts the arrays, are refused."""

import json
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.errors import CheckpointError
from tests import family_goldens, golden
from tests.checkpoints.shards import INDEX, split
from tests.helpers import HYBRID, normal, random_tiny, tiny
from tests.words import edit_json, raises

pytestmark = pytest.mark.on_one_backend("torch")

EXACT = {"block": {"activation": "gelu"}}
SINCOS = ({"position": "sincos2d"}, "position other than 'learned'")
NO_POOLING = {"pool": {"kind": "map"}}
CLASS_POSITION = ({"position": "learned_patches"}, "position other than 'learned'")
OTHER_GRID = ({"position_grid": (3, 3)}, "positions of another grid than that of image_size")
MEAN_BESIDE_A_TOKEN = {"pool": {"kind": "gap"}}
TOWER = {"num_classes": 0}
POOLED_TOWER = {"num_classes": 0, "pool": {"kind": "map"}, "tokens": {"class_tokens": 0}}
TWO_HEADS = {"pool": {"kind": "token_and_distillation"}, **EXACT, "tokens": {"distillation": True}}
BIAS = {"relative_position_bias": "block", "position": "none"}
BIAS |= {"block": {"qkv_bias": (True, False, True)}}
INEXPRESSIBLE = {
    "google": (
        (BIAS, "a relative position bias"),
        SINCOS,
        CLASS_POSITION,
        (EXACT, "block.activation='gelu', where it computes 'gelu_tanh'"),
        (NO_POOLING, "no place for pool/probe: no model of the family has attention pooling"),
    ),
    "timm": (
        SINCOS,
        OTHER_GRID,
        ({"representation_size": 9}, "no place for pre_logits/kernel"),
        ({"block": {"epsilon": 1e-12}}, "block.epsilon=1e-12, where it"),
        (
            {"stem": {"kind": "resnet", "units": (1,)}, "patch_size": 2},
            "stages that no architecture",
        ),
        (
            {"stem": {"kind": "resnet", "width_factor": 0.5}, "patch_size": 2},
            "another width than 64",
        ),
        (
            {**TWO_HEADS, "tokens": {"distillation": True, "registers": 1}},
            "a distillation token beside registers",
        ),
        ({**TWO_HEADS, "position": "learned_patches"}, "or tokens without a position"),
        ({**TWO_HEADS, "position": "none"}, "or tokens without a position"),
    ),
    "transformers": (
        SINCOS,
        OTHER_GRID,
        CLASS_POSITION,
        (HYBRID, "no place for root/conv/kernel"),
        (NO_POOLING, "no place for pool/probe: no model of the family has attention pooling"),
        (MEAN_BESIDE_A_TOKEN, "pool.kind other than 'token'"),
        ({"representation_size": 9}, "a head behind a representation layer"),
    ),
    "keras_hub": (({}, "keras_hub is read and not written: keras-hub reads folders of transfor"),),
    "transformers/clip": ((TOWER, "text tower"),),
    "transformers/siglip": ((POOLED_TOWER, "text tower"),),
    "transformers/siglip2_vision_model": (
        (POOLED_TOWER, "stem.kind other than 'packed'"),
        (
            {
                **{**POOLED_TOWER, "stem": {"kind": "packed"}},
                **{"image_size": (16, 32), "patch_size": (8, 8)},
            },
            "patches or images that are not square",
        ),
    ),
    "open_clip": ((TOWER, "open_clip's models have a text tower too; family='transformers'"),),
    "torchvision": (({}, "family='timm' and family='transformers' write the same network"),),
    "transformers/flava_image_model": ((TOWER, "an image model without the text"),),
    "timm/naflex": ((NO_POOLING, "stem.kind other than 'packed'"),),
    "timm/eva": (
        (
            {**BIAS, "pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}},
            "a relative position bias in another network th",
        ),
        ({**BIAS, "tokens": {"registers": 2}}, "in another network than BEiT"),
        (
            {"block": {"qkv_bias": (True, True, False)}},
            "timm/eva has no place for block_0/attention/key/bi",
        ),
    ),
    "transformers/beit": (
        ({**BIAS, "image_size": (16, 32)}, "patches or a grid that are not square"),
        (
            {**BIAS, "pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}},
            "tokens.class_tokens other than 1",
        ),
    ),
}


@pytest.mark.parametrize(
    ("dialect", "fields", "reason"),
    [(dialect, *row) for dialect, rows in INEXPRESSIBLE.items() for row in rows],
)
def test_a_model_that_a_library_cannot_express_is_not_written(dialect, fields, reason, tmp_path):
    """The message gives the reason."""
    with raises(CheckpointError, reason):
        checkpoints.save(tiny(**fields), tmp_path / "x", family=dialect)
    assert list(tmp_path.iterdir()) == []


BLOCK = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block"
NAFLEX = "../naflex/timm_naflex_map"
TIMM, HUB, TASK = ("model_args",), ("config",), ("task.json", "config")
CONTRADICTIONS = (
    ("timm_token", TIMM, {"act_layer": "relu"}, "act_layer='relu', expected one of gelu"),
    ("timm_token", TIMM, {"norm_layer": "batchnorm"}, "norm_layer='batchnorm', expected one of"),
    ("timm_token", TIMM, {"norm_layer": "rmsnorm"}, "unexpected: blocks.0.norm1.bias"),
    ("timm_token", TIMM, {"reg_tokens": 2}, "missing: reg_token, expected (1, 2, 24)"),
    ("timm_token", TIMM, {"global_pool": "max"}, "global_pool='max', expected one of token, avg"),
    ("timm_token", TIMM, {"global_pool": "map"}, "missing: attn_pool.latent"),
    ("timm_token", TIMM, {"depth": 3}, "missing: blocks.2.norm1.weight"),
    ("timm_token", TIMM, {"qkv_bias": False}, "unexpected: blocks.0.attn.qkv.bias"),
    ("timm_token", TIMM, {"patch_size": 16}, "patch_embed.proj.weight is (24, 3, 4, 4)"),
    ("timm_token", (), {"architecture": "vit_base_patch16_rpn_224"}, "norm behind each branch"),
    ("hf_classifier", (), {"hidden_size": 48}, "misshapen: vit.embeddings.cls_token is (1, 1, 24)"),
    ("hf_classifier", (), {"num_hidden_layers": 3}, "vit.encoder.layer.2.layernorm_before.weight"),
    ("hf_classifier", (), {"num_hidden_layers": 1}, "unexpected: vit.encoder.layer.1.attention"),
    ("hf_classifier", (), {"image_size": 24}, "position_embeddings is (1, 17, 24), expected (1, 3"),
    ("hf_classifier", (), {"num_attention_heads": 5}, "hidden_size=24 is not divisible by num_he"),
    ("hf_classifier", (), {"hidden_act": "relu"}, "hidden_act='relu', expected one of gelu"),
    ("hf_classifier", (), {"model_type": "beat"}, "model_type='beat', expected 'vit'"),
    ("hf_classifier", (), {"hidden_size": "24"}, "hidden_size must be a positive int, found '24'"),
    ("hf_classifier", (), {"layer_norm_eps": None}, "block.epsilon must be a number"),
    ("hf_model", (), {"pooler_act": "gelu"}, "pooler_act='gelu', expected 'tanh'"),
    ("kh_intermediate", HUB, {"mlp_dim": 33}, f"misshapen: {BLOCK}/mlp/dense_1/vars/0 is (16, 24)"),
    ("kh_intermediate", HUB, {"num_heads": 4}, f"{BLOCK}/mha/key_dense/vars/0 is (16, 2, 8)"),
    ("kh_intermediate", HUB, {"num_layers": 2}, f"missing: {BLOCK}_1/"),
    ("kh_intermediate", HUB, {"image_shape": [16, 16, 1]}, "expected (4, 4, 1, 16)"),
    ("kh_intermediate", HUB, {"use_mlp_bias": False}, f"unexpected: {BLOCK}/mlp/dense_1/vars/1"),
    ("kh_intermediate", HUB, {"use_class_token": False}, "pool.kind='token' needs a class token"),
    ("kh_intermediate", (), {"class_name": "GemmaBackbone"}, "class_name='GemmaBackbone', expecte"),
    ("kh_intermediate", TASK, {"num_classes": 6}, "misshapen: task/layers/dense_1/vars/0 is"),
    ("kh_intermediate", TASK, {"intermediate_dim": None}, "unexpected: task/layers/dense_1/vars/1"),
    ("kh_intermediate", TASK, {"pooling": None}, "task.json has pooling=None"),
    (
        *("hf_dinov2_reg_model", (), {"num_register_tokens": 5}),
        "misshapen: embeddings.register_tokens is (1, 4, 24), expected (1, 5, 24)",
    ),
    ("hf_dinov3_model", (), {"num_attention_heads": 4}, "rope needs heads of a multiple of 4 chan"),
    (
        *("hf_dinov3_model", (), {"model_type": "dinov4_vit", "architectures": ["DINOv4Model"]}),
        "; the model is a DINOv4Model",
    ),
    *(
        ("hf_beit_classifier", (), {"architectures": [name]}, name)
        for name in ("BeitForSemanticSegmentation", "BeitForMaskedImageModeling")
    ),
    ("hf_beit_classifier", (), {"image_size": [16, 24]}, "image_size=[16, 24], expected a square"),
    (
        *("hf_beit_classifier", (), {"use_shared_relative_position_bias": True}),
        "use_relative_position_bias=True, beside use_shared_relative_position_bias",
    ),
    (NAFLEX, TIMM, {"pos_embed": "factorized"}, "positions of rows and of columns, which keras_vi"),
    (NAFLEX, TIMM, {"rope_type": "axial"}, "rotary positions, which keras_vit lacks"),
    (
        *(NAFLEX, TIMM, {"swiglu_mlp": True}),
        "config.json has architecture='naflexvit_base_patch16_map', an architecture with a gated",
    ),
    ("kh_dinov2", HUB, {"num_heads": 4}, "query_dense/vars/0 is (16, 2, 8), expected (16, 4, 4)"),
)
"""Golden, keys that lead to the object in its JSON, other values of it, and the message."""


def refused(folder) -> str:
    """Loads and converts a folder; returns the message, which must be the same for both."""
    with pytest.raises(CheckpointError) as caught:
        VisionTransformer.from_preset(folder)
    with pytest.raises(CheckpointError) as again:
        keras_vit.convert(folder, folder.with_name("converted"), "google")
    assert str(again.value) == str(caught.value)
    assert str(folder) in str(caught.value)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "at", "changes", "message"),
    CONTRADICTIONS,
    ids=[f"{name} {next(iter(changes))}" for name, _, changes, _ in CONTRADICTIONS],
)
def test_json_that_contradicts_the_arrays_is_refused(name, at, changes, message, tmp_path):
    """The message names the value in the JSON file, or the array that does not fit."""
    source = golden.FOLDER / name
    source = source if source.exists() else family_goldens.FOLDER / name
    folder = shutil.copytree(source, tmp_path / "copy")
    file, *keys = at if at[:1] == ("task.json",) else ("config.json", *at)
    edit_json(folder / file, *keys, **changes)
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("files", "messages"),
    [
        (
            ["task.weights.h5"],
            [
                f"missing: task/layers/{name}, expected"
                for name in ("dense/vars/0", "dense_1/vars/1")
            ],
        ),
        (["task.json"], ["unexpected: task/layers/dense_1/vars/0"]),
        (
            ["config.json", "task.json"],
            ["which name the layer of the head, are missing"],
        ),
    ],
    ids=str,
)
def test_a_preset_without_some_of_its_files_is_refused(files, messages, tmp_path):
    """By the arrays of the head, or by the files that name its layer, which is not guessed."""
    folder = shutil.copytree(golden.FOLDER / "kh_intermediate", tmp_path / "copy")
    for file in files:
        (folder / file).unlink()
    found = refused(folder)
    assert [message for message in messages if message not in found] == []


def test_a_clip_file_without_its_vision_tower_is_refused(tmp_path):
    """The message names the arrays that are there."""
    folder = shutil.copytree(family_goldens.FOLDER / "hf_clip_two_towers", tmp_path / "x")
    path = folder / "model.safetensors"
    arrays = {name: a for name, a in load_file(path).items() if name.startswith("text_")}
    save_file(arrays, path)
    with raises(
        CheckpointError,
        "no Vision Transformer in any of the families transformers/clip",
        "text_model.",
    ):
        VisionTransformer.from_preset(folder)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hf_dinov3_model/model.safetensors", "theta of the rotary positions stands in config"),
        ("kh_dinov2_reg/model.weights.h5", "which numbered array is which token stands in config"),
        ("kh_clip_vision/model.weights.h5", "the form of the GELU stands in config.json"),
        ("hf_clip_vision/model.safetensors", "do not tell block.activation. Give block={"),
    ],
)
def test_a_file_without_json_is_refused_by_the_missing_fact(name, reason, tmp_path):
    """The message names the fact that decides the output and that no array shows."""
    alone = shutil.copy(family_goldens.FOLDER / name, tmp_path)
    with pytest.raises(CheckpointError, match=reason):
        VisionTransformer.from_preset(alone, num_heads=3)


def test_a_keras_file_is_refused_by_the_class_of_its_model(tmp_path):
    """A .keras file is a zip, as an npz file is."""
    tiny().save(tmp_path / "vit.keras")
    keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "sequential.keras")
    for name, kind in (("vit", "keras_vit>VisionTransformer"), ("sequential", "Sequential")):
        with pytest.raises(CheckpointError, match=f"whole model of the class {kind}"):
            VisionTransformer.from_preset(tmp_path / f"{name}.keras")


@pytest.fixture
def folder(tmp_path):
    """A copy of a transformers checkpoint, which the tests damage."""
    return shutil.copytree(golden.FOLDER / "hf_classifier", tmp_path / "copy")


def test_an_array_of_integers_is_refused(folder):
    """The message names the array, the type found and the type expected."""
    arrays = load_file(folder / "model.safetensors")
    arrays["classifier.bias"] = arrays["classifier.bias"].astype("int32")
    save_file(arrays, folder / "model.safetensors")
    assert "classifier.bias is int32, expected a float" in refused(folder)


def test_a_folder_with_several_files_of_weights_is_refused(tmp_path):
    """The message names the files."""
    for name in ("a.npz", "b.npz"):
        shutil.copy(golden.FOLDER / "vit_rep.npz", tmp_path / name)
    with pytest.raises(CheckpointError, match="expected one file of weights .* found a.npz, b.npz"):
        VisionTransformer.from_preset(tmp_path)


def test_sharded_safetensors_load_and_bad_indices_are_refused(folder):
    """A missing shard, a long name, and an array in two shards."""
    images = normal(1, 16, 16, 3)
    whole = VisionTransformer.from_preset(folder).predict(images, verbose=0)
    weight_map, index = split(folder), folder / INDEX
    np.testing.assert_array_equal(
        VisionTransformer.from_preset(folder).predict(images, verbose=0), whole
    )

    shutil.copy(folder / "model-00001-of-00002.safetensors", folder / "extra.safetensors")
    assert weight_map["classifier.bias"].startswith("model-00001")
    double = {**weight_map, "classifier.bias": "extra.safetensors"}
    index.write_text(json.dumps({"weight_map": double}))
    assert "stands in two files" in refused(folder)
    index.write_text(json.dumps({"weight_map": {**weight_map, "classifier.bias": "x" * 5000}}))
    assert len(refused(folder)) < 2000
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model-00001-of-00002.safetensors").unlink()
    missing = "names 'model-00001-of-00002.safetensors', but the folder has no such file"
    assert missing in refused(folder)


def test_a_folder_with_other_files_is_not_overwritten(tmp_path):
    """A folder with an older checkpoint is."""
    model = random_tiny(block={"activation": "gelu", "epsilon": 1e-12})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="holds notes.txt, so it is not overwritten"):
        checkpoints.save(model, tmp_path / "out", "transformers")
    (tmp_path / "out" / "notes.txt").unlink()
    checkpoints.save(model, tmp_path / "out", "transformers")
    checkpoints.save(model, tmp_path / "out", "transformers")
    assert (
        VisionTransformer.from_preset(tmp_path / "out").config.hidden_size
        == model.config.hidden_size
    )


def test_a_conversion_does_not_overwrite_the_weights_of_its_preset(tmp_path):
    """A preset without its head's weights would not load again."""
    random_tiny().save_to_preset(tmp_path / "preset")
    weights = tmp_path / "preset" / "model.safetensors"
    before = weights.read_bytes()
    with pytest.raises(CheckpointError, match="source and destination are one file"):
        keras_vit.convert(tmp_path / "preset", weights, "keras_vit", num_classes=0)
    assert weights.read_bytes() == before


@pytest.mark.parametrize("dialect", [3, None, ["google"]])
def test_a_dialect_that_is_no_text_is_refused_with_the_known_ones(tmp_path, dialect):
    """The search for a similar name took it for text."""
    with pytest.raises(CheckpointError, match="Unknown family .* Known: keras_vit, google"):
        checkpoints.save(random_tiny(), tmp_path / "model.npz", dialect)
