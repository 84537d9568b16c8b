"""Files, JSON, arguments and models that do not fit are refused by a message that names the fault.

A row has what is given, and words of the message: the field, the key, the array, the value.
"""

import functools
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit import VisionTransformer, checkpoints
from keras_vit.checkpoints.containers import write_npz
from keras_vit.config.fields import nest
from keras_vit.errors import CheckpointError, ConfigError, KerasViTError
from tests.checkpoints.files import arrays_of, copy, find, refused
from tests.checkpoints.shards import INDEX, split
from tests.helpers import random_tiny, tiny
from tests.plain import edit_json, normal, raises, stored

VIT = "vit_token_published.npz"
WIDER = {"image_size": (16, 8), "pool.kind": "gap", "tokens.class_tokens": 0}
INEXPRESSIBLE = (
    ("google", {"pool.kind": "map"}, "pool/probe"),
    ("timm", {"position_grid": (3, 3)}, "grid", "image_size"),
    ("transformers", {"representation_size": 9}, "pre_logits"),
    ("transformers/flava_image_model", {"num_classes": 0}, "text"),
    ("big_vision", WIDER, "grid of k^2 + 1"),
    ("keras_hub", {}, "keras_hub", "transformers"),
    ("open_clip", {"num_classes": 0}, "text tower", "'transformers'"),
    ("torchvision", {}, "'timm'", "'transformers'"),
    *((kind, {}, "Unknown family", "google") for kind in (3, None, ["google"])),
)
"""Family, fields of a model that its files cannot hold, and words of the reason."""


def converts(name, *family, **fields):
    """Converts a reference file."""
    return lambda out: keras_vit.convert(find(name), out, *family, **fields)


def saves(model, *family):
    """Saves what a function makes."""
    return lambda out: checkpoints.save(model(), out, *family)


OTHER = lambda: keras.Sequential([keras.layers.Dense(2)], name="other")  # noqa: E731
CALLS = (
    *(
        (saves(functools.partial(tiny, **nest(fields)), family), *words)
        for family, fields, *words in INEXPRESSIBLE
    ),
    (saves(OTHER), "found a keras.Sequential named 'other'"),
    (saves(lambda: "model"), "found 'model'"),
    (converts(VIT, "google", num_classes=3), "a conversion makes no new head"),
    (converts(VIT, "keras_vit"), "save_to_preset"),
    (converts("px_torchvision.safetensors", "facebook", num_heads=3), "Facebook's own names"),
    (converts("timm_token", "timm", stem={"kind": "resnet"}), "describe has a weight root/conv"),
    (converts("timm_r_ti", "timm", stem={"kind": "none"}), "only the file has a weight root/conv"),
    (converts("timm_token", "timm", pool={"norm": "none"}), "the file has a weight encoder_norm/"),
    (converts("timm_token", "timm", tokens={"mask": True}), "describe has a weight mask_token/"),
)
"""Calls that would write a file in a folder, and words of their refusal."""


@pytest.mark.parametrize(("call", "words"), [(row[0], row[1:]) for row in CALLS])
def test_what_cannot_be_written_is_refused_before_it_is(call, words, tmp_path):
    with pytest.raises(CheckpointError) as caught:
        call(tmp_path / "x")
    assert [word for word in words if word not in str(caught.value)] == []
    assert list(tmp_path.iterdir()) == []


def given(name, *words, change=lambda path: None, error=CheckpointError, **fields):
    """A row: a reference file, a change of it, the error, its words, arguments of the reading."""
    return pytest.param(name, change, error, words, fields, id=f"{name} {words[0]}")


def says(name, at, changes, *words):
    """A row of a folder with other values in the JSON, in the object below the keys `at`."""
    file, *keys = at if at[:1] == ("task.json",) else ("config.json", *at)
    return given(name, *words, change=lambda path: edit_json(path / file, *keys, **changes))


def lacks(name, files, *words):
    """A row of a folder without some of its files."""
    return given(name, *words, change=lambda path: [(path / file).unlink() for file in files])


def text_of(arrays):
    return {name: array for name, array in arrays.items() if name.startswith("text_")}


def renumber(arrays):
    return {name.replace("block_1", "block_2"): array for name, array in arrays.items()}


def holds(name, change, *words):
    """A row of a file, or a folder, whose arrays are changed."""

    def rewrite(path):
        file = path / "model.safetensors" if path.is_dir() else path
        arrays = {name: array.copy() for name, array in stored(file).items()}
        arrays = change(arrays) or arrays
        save_file(arrays, file) if path.is_dir() else write_npz(file, arrays.items())

    return given(name, *words, change=rewrite)


NAFLEX, SHARED = "timm_naflex_map", "shared_relative_position_bias"
MLP, NORM = "Transformer/encoderblock_1/MlpBlock_3/Dense_0/kernel", "Transformer/encoder_norm/scale"
CLASSIFIER, TRUNK = "classifier.bias", "px_open_clip_trunk_siglip"
TIMM, HUB, TASK = ("model_args",), ("config",), ("task.json", "config")
ROWS = (
    says("timm_token", TIMM, {"act_layer": "relu"}, "act_layer='relu'", "gelu"),
    says("timm_token", TIMM, {"norm_layer": "batchnorm"}, "norm_layer='batchnorm'"),
    says("timm_token", TIMM, {"reg_tokens": 2}, "tokens.registers=2", "0"),
    says("timm_token", TIMM, {"global_pool": "max"}, "global_pool='max'", "token, avg"),
    says("timm_token", TIMM, {"qkv_bias": False}, "block.qkv_bias=False"),
    says("timm_token", TIMM, {"patch_size": 16}, "patch_size=16", "(4, 4)"),
    says("timm_token", (), {"architecture": "vit_base_patch16_rpn_224"}, "rpn", "norm"),
    says("hf_classifier", (), {"hidden_size": 48}, "hidden_size=48", "24"),
    says("hf_classifier", (), {"num_hidden_layers": 1}, "num_layers=1", "2"),
    says("hf_classifier", (), {"image_size": 24}, "position_embeddings is (1, 17, 24)"),
    says("hf_model", (), {"pooler_act": "gelu"}, "pooler_act='gelu'", "'tanh'"),
    says("kh_intermediate", HUB, {"mlp_dim": 33}, "mlp_dim=33"),
    says("kh_intermediate", HUB, {"use_mlp_bias": False}, "block.mlp_bias=False"),
    says("kh_intermediate", HUB, {"use_class_token": False}, "tokens.class_tokens=0"),
    says("kh_intermediate", TASK, {"num_classes": 6}, "misshapen: task/layers/dense_1/vars/0 is"),
    says("kh_intermediate", TASK, {"intermediate_dim": None}, "unexpected: task/layers/dense_1"),
    says("kh_intermediate", TASK, {"pooling": None}, "pooling=None"),
    says("kh_dinov2", HUB, {"num_heads": 4}, "num_heads=4", "2"),
    says("hf_dinov2_reg_model", (), {"num_register_tokens": 5}, "register_tokens is (1, 4, 24)"),
    says("hf_dinov3_model", (), {"num_attention_heads": 4}, "rope", "heads", "4"),
    says("hf_dinov3_model", (), {"model_type": "dinov4_vit", "architectures": ["V4"]}, "V4"),
    says("hf_clip_two_towers", (), {"vision_config": "large"}, "vision_config='large'", "object"),
    says("hf_clip_vision", (), {"model_type": ["clip"]}, "model_type=", "clip_vision_model"),
    says("timm_token", (), {"architecture": None}, "num_heads"),
    says("hf_beit_classifier", (), {"image_size": [16, 24]}, "image_size=[16, 24]", "square"),
    says("hf_beit_classifier", (), {f"use_{SHARED}": True}, "use_relative", f"use_{SHARED}"),
    says(NAFLEX, TIMM, {"pos_embed": "factorized"}, "rows", "columns"),
    says(NAFLEX, TIMM, {"rope_type": "axial"}, "rotary"),
    says(NAFLEX, TIMM, {"swiglu_mlp": True}, "'naflexvit_base_patch16_map'", "gated"),
    says("hf_classifier", (), {"num_hidden_layers": 10**400}, "num_layers"),
    says("timm_avg", TIMM, {"mlp_ratio": 1e300}, "mlp_dim="),
    says("kh_classifier", HUB, {"num_layers": 10**6}, "num_layers=1000000"),
    says("kh_classifier", HUB, {"image_shape": [*range(10**5)]}, "image_size"),
    lacks("kh_intermediate", ["task.weights.h5"], "dense/vars/0", "missing: task/layers/dense_1"),
    lacks("kh_intermediate", ["task.json"], "unexpected: task/layers/dense_1/vars/0"),
    lacks("kh_intermediate", ["config.json", "task.json"], "config.json", "task.json", "missing"),
    holds("hf_clip_two_towers", text_of, "no Vision Transformer", "transformers/clip", "text_mo"),
    holds("hf_classifier", lambda a: a | {CLASSIFIER: np.zeros(5, "int32")}, CLASSIFIER, "int32"),
    given("hf_dinov3_model/model.safetensors", "rope", "config.json", num_heads=3),
    given("kh_dinov2_reg/model.weights.h5", "config.json", num_heads=3),
    given("kh_clip_vision/model.weights.h5", "block.activation", "config.json", num_heads=3),
    given("hf_clip_vision/model.safetensors", "block.activation", "block={", num_heads=3),
    holds(
        *(VIT, lambda a: a.update({f"{MLP}s": a.pop(MLP), NORM: np.zeros(25, "float32")})),
        *("3 arrays", f"misshapen: {NORM} is (25,), expected (24,)", f"missing: {MLP}, expected"),
        *("[hidden_size, mlp_dim]", "block_1/mlp/dense_0/kernel", f"name: {MLP}s", "unexpected: "),
    ),
    holds(VIT, renumber, "missing: Transformer/encoderblock_1/LayerNorm_0/scale", "16 arrays"),
    holds(VIT, lambda a: a["head/kernel"].put(7, np.nan), "head/kernel", "NaN"),
    holds(VIT, lambda a: a["head/kernel"].put(7, -np.inf), "head/kernel", "infinity"),
    given("hybrid_r26.npz", "hybrid, cells of a feature map", patch_size=2),
    given(f"{TRUNK}.safetensors", "pool.kind, rope, block.activation, block.eps", num_heads=3),
    given(VIT, "vit_ti16", "head/kernel is (24, 7)", read={"variant": "vit_ti16"}),
    given(VIT, "Dense_0/bias is (40,), expected (41,) [mlp_dim]", mlp_dim=41),
    given(VIT, "representation_size=24", "None", representation_size=24),
    given(VIT, "image_siz", "'image_size'", error=ConfigError, image_siz=24),
    given(VIT, "'vit_b16'", error=ConfigError, read={"variant": "vitb16"}),
    given(VIT, "'gogle'", "'google'", error=KerasViTError, read={"family": "gogle"}),
    given("hf_model", "'vit'", "dinov2", read={"family": "transformers/dinov2"}),
    given(VIT, "'prefx'", "'prefix'", error=ConfigError, read={"prefx": "a."}),
    given(VIT, "prefix", "read={'prefix'", error=ConfigError, prefix="a."),
    given(VIT, "read", "family, variant, prefix", error=ConfigError, read="timm"),
    given("vit_gap.npz", "15 positions", "image_size=(height, width)", "position_grid=(rows"),
    given("vit_gap.npz", "15 positions", image_size=(40, 24)),
    given("vit_gap.npz", "position_grid=(4, 4)", "16", "15", position_grid=(4, 4)),
    given("bv_gap.npz", "unexpected: pos_embedding", position="sincos2d", image_size=16),
)


@pytest.mark.parametrize(("name", "change", "error", "words", "fields"), ROWS)
def test_a_source_that_does_not_fit_is_refused(name, change, error, words, fields, tmp_path):
    """By the same words when it is loaded and converted, and before anything is written."""
    source = copy(name, tmp_path)
    change(source)
    message = refused(source, *words, error=error, ask=VisionTransformer.from_preset, **fields)
    with pytest.raises(error) as again:
        keras_vit.convert(source, tmp_path / "converted", "google", **fields)
    assert str(again.value) == message
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_a_class_token_without_positions_may_have_lost_them(tmp_path):
    """Unless the caller says that the positions are fixed."""
    path = tmp_path / "x.npz"
    for name in ("vit_token_published.npz", "vit_token_linen.npz"):
        arrays = arrays_of(name).items()
        write_npz(path, ((key, array) for key, array in arrays if "pos_embedding" not in key))
        refused(path, "pos_embedding" if "published" in name else "position='sincos2d'")
    assert keras_vit.info(path, position="sincos2d", image_size=16).config.position == "sincos2d"


def test_a_source_that_is_no_checkpoint_is_refused(tmp_path):
    """A dict, an absent path, folders of none and of two, and one whose subfolders are presets."""
    with raises(CheckpointError, "path", "found {'w': 1}", "save_file"):
        keras_vit.info({"w": 1})
    refused(tmp_path / "absent.npz", "not exist")
    refused(tmp_path, "one file of weights", "none")
    for name in ("best", "last"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    refused(tmp_path, f"{tmp_path}/best")
    for name in ("a.npz", "b.npz"):
        (tmp_path / name).write_bytes(b"")
    refused(tmp_path, "one file of weights", "a.npz, b.npz")


def test_a_keras_file_is_refused_by_the_class_of_its_model(tmp_path):
    """A .keras file is a zip, as an npz file is."""
    tiny().save(tmp_path / "vit.keras")
    keras.Sequential([keras.layers.Dense(2)]).save(tmp_path / "sequential.keras")
    for name, kind in (("vit", "keras_vit>VisionTransformer"), ("sequential", "Sequential")):
        refused(tmp_path / f"{name}.keras", "whole model", kind)


def test_sharded_safetensors_load_and_bad_indices_are_refused(tmp_path):
    """A missing shard, a long name, and an array in two shards."""
    folder, images = copy("hf_classifier", tmp_path), normal(1, 16, 16, 3)
    whole = VisionTransformer.from_preset(folder).predict(images, verbose=0)
    places = split(folder)
    found = VisionTransformer.from_preset(folder).predict(images, verbose=0)
    np.testing.assert_array_equal(found, whole)
    first = folder / places[CLASSIFIER]
    shutil.copy(first, folder / "extra.safetensors")
    for place, words in (("extra.safetensors", "two files"), ("x" * 5000, "xxx")):
        edit_json(folder / INDEX, "weight_map", **{CLASSIFIER: place})
        refused(folder, words)
    first.unlink()
    edit_json(folder / INDEX, "weight_map", **{CLASSIFIER: first.name})
    refused(folder, first.name, "no such")


def test_other_files_and_the_source_are_not_overwritten(tmp_path):
    """A folder with an older checkpoint is."""
    model, out = random_tiny(block={"activation": "gelu", "epsilon": 1e-12}), tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").touch()
    with raises(CheckpointError, "notes.txt"):
        checkpoints.save(model, out, "transformers")
    (out / "notes.txt").unlink()
    for _ in range(2):
        checkpoints.save(model, out, "transformers")
    assert VisionTransformer.from_preset(out).config.hidden_size == model.config.hidden_size
    model.save_to_preset(tmp_path / "preset")
    weights = tmp_path / "preset" / "model.safetensors"
    before = weights.read_bytes()
    with raises(CheckpointError, "source and destination"):
        keras_vit.convert(tmp_path / "preset", weights, "keras_vit", num_classes=0)
    assert weights.read_bytes() == before
    source = copy(VIT, tmp_path)
    with raises(CheckpointError, "source and destination are one file"):
        keras_vit.convert(source, source, "google")
    assert source.read_bytes() == find(VIT).read_bytes()
