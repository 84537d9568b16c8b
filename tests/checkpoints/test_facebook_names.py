"""Facebook's own files of DINOv2, DINO, DeiT, DeiT-III and MAE, once they are safetensors.

The arrays are those of goldens of transformers and timm, under the names of Facebook's code.
"""

import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import keras_vit
from keras_vit import VisionTransformer
from keras_vit.errors import CheckpointError
from tests.family_goldens import CASES, FOLDER, expected, load_case, outputs, relative_error
from tests.words import raises

OF_TRANSFORMERS = (
    (r"^vit\.|^decoder\.", ""),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.", ""),
    (r"^encoder\.layer\.", "blocks."),
    (r"attention\.output\.dense", "attn.proj"),
    (r"layernorm_before|layernorm_after", lambda m: f"norm{1 + ('after' in m[0])}"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(?<!attn\.)output\.dense", "mlp.fc2"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"weights_in", "w12"),
    (r"weights_out", "w3"),
    (r"^layernorm", "norm"),
)
"""Names of transformers -> names of Facebook's code, but for query, key and value."""


def facebook_arrays(name: str) -> dict[str, np.ndarray]:
    """The arrays of a golden of transformers by Facebook's names; query, key, value are one."""
    found = {}
    for name_there, array in load_file(FOLDER / name / "model.safetensors").items():
        for pattern, word in OF_TRANSFORMERS:
            name_there = re.sub(pattern, word, name_there)
        found[name_there] = array
    for query in [name for name in found if ".attention.attention.query." in name]:
        parts = [found.pop(query.replace(".query.", f".{q}.")) for q in ("query", "key", "value")]
        found[query.replace("attention.attention.query", "attn.qkv")] = np.concatenate(parts)
    return found


@pytest.mark.on_one_backend("torch")
@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("hf_dinov2_model", "facebook"),
        ("hf_dinov2_reg_model", "facebook"),
        ("hf_dinov2_reg_swiglu", "facebook"),
        ("hf_mae_pretraining", "facebook"),
        ("hf_msn_model", "timm"),
    ],
)
def test_a_file_gives_the_tokens_of_transformers(name, dialect, tmp_path):
    """MSN's encoder is DINO's; DeiT's and MAE's encoders have the same names."""
    case, want = CASES[name], expected(name)
    save_file(facebook_arrays(name), tmp_path / "x.safetensors")
    assert keras_vit.info(tmp_path / "x.safetensors", num_heads=3).family == dialect
    heads, epsilon = case["config"]["num_heads"], case["config"]["numerics"]["ln_eps"]
    model = VisionTransformer.from_preset(
        tmp_path / "x.safetensors", num_heads=heads, block={"epsilon": epsilon}
    )
    got = outputs(model, want["image"], ["encoded"])["encoded"]
    assert relative_error(got, want["encoded"]) <= case["tolerance_tokens"]


def test_the_scales_of_deit_iii_are_read(tmp_path):
    """RoPE-ViT of timm has the same arrays and rotary positions, so the file has to be named."""
    name = "timm_deit3_rect"
    case, want = CASES[name], expected(name)
    arrays = load_file(FOLDER / name / "model.safetensors")
    renamed = {re.sub(r"ls(\d)\.gamma", r"gamma_\1", n): array for n, array in arrays.items()}
    save_file(renamed, tmp_path / "x.safetensors")
    fields = {"num_heads": case["config"]["num_heads"], "image_size": want["image"].shape[1:3]}
    with pytest.raises(CheckpointError, match="do not tell.*rope.*'family': 'facebook'"):
        VisionTransformer.from_preset(tmp_path / "x.safetensors", **fields)
    model = VisionTransformer.from_preset(
        tmp_path / "x.safetensors", read={"family": "facebook"}, **fields
    )
    got = outputs(model, want["image"], ["logits"])["logits"]
    assert relative_error(got, want["logits"]) <= case["tolerance"]
    assert model.config.block.layer_scale
    again = load_case(name).config
    same = {"block": {"layer_scale": 1.0, "epsilon": again.block.epsilon}}
    same["position_resize"] = again.position_resize
    assert model.config.replace(**same) == again.replace(**same)


def test_what_the_pre_training_alone_reads_is_left_out(tmp_path):
    """MAE's mask token and decoder, and DINOv2's mask token; nothing is written in these names."""
    save_file(facebook_arrays("hf_mae_pretraining"), tmp_path / "x.safetensors")
    info = keras_vit.info(tmp_path / "x.safetensors", num_heads=3)
    reasons = {info.ignored["mask_token"], info.ignored["decoder_norm.weight"]}
    assert reasons == {
        "the token of masked patches, which the pre-training alone reads",
        "the decoder of MAE's pre-training",
    }
    with raises(CheckpointError, "Facebook's own names"):
        keras_vit.convert(
            tmp_path / "x.safetensors", tmp_path / "y.safetensors", "facebook", num_heads=3
        )
