"""Facebook's own files of DINOv2, DINO, DeiT, DeiT-III and MAE, once they are safetensors.

The arrays are those of goldens of transformers and timm, under the names of Facebook's code.
"""

import re

import numpy as np
import pytest

import keras_vit
from keras_vit import VisionTransformer
from tests.checkpoints.files import arrays_of, refused, write_arrays
from tests.family_goldens import CASES, expected, load_case, outputs, relative_error

OF_TRANSFORMERS = (
    (r"^vit\.|^decoder\.", ""),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.", ""),
    (r"^encoder\.layer\.", "blocks."),
    (r"attention\.output\.dense", "attn.proj"),
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
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
    for name_there, array in arrays_of(name).items():
        for pattern, word in OF_TRANSFORMERS:
            name_there = re.sub(pattern, word, name_there)
        found[name_there] = array
    for query in [name for name in found if ".attention.attention.query." in name]:
        parts = [found.pop(query.replace(".query.", f".{q}.")) for q in ("query", "key", "value")]
        found[query.replace("attention.attention.query", "attn.qkv")] = np.concatenate(parts)
    return found


def write(arrays, folder):
    return write_arrays(folder / "x.safetensors", ("", arrays))


@pytest.mark.parametrize(
    "name", ["hf_dinov2_model", "hf_dinov2_reg_swiglu", "hf_mae_pretraining", "hf_msn_model"]
)
def test_a_file_gives_the_tokens_of_transformers(name, tmp_path):
    """MSN's encoder is DINO's, with the names of timm; DeiT's and MAE's have the same names."""
    want, numerics = expected(name), CASES[name]["config"]["numerics"]
    file = write(facebook_arrays(name), tmp_path)
    family = "timm" if "msn" in name else "facebook"
    assert keras_vit.info(file, num_heads=3).family == family
    fields = {"num_heads": 3, "block": {"epsilon": numerics["ln_eps"]}}
    model = VisionTransformer.from_preset(file, **fields)
    got = outputs(model, want["image"], ["encoded"])["encoded"]
    assert relative_error(got, want["encoded"]) <= 1e-5


def test_the_scales_of_deit_iii_are_read(tmp_path):
    """RoPE-ViT of timm has the same arrays and rotary positions, so the file has to be named."""
    name = "timm_deit3_rect"
    want, again = expected(name), load_case(name).config
    arrays = arrays_of(name)
    file = write({re.sub(r"ls(\d)\.gamma", r"gamma_\1", n): arrays[n] for n in arrays}, tmp_path)
    fields = {"num_heads": again.num_heads, "image_size": want["image"].shape[1:3]}
    refused(file, "rope", "'family': 'facebook'", ask=VisionTransformer.from_preset, **fields)
    model = VisionTransformer.from_preset(file, read={"family": "facebook"}, **fields)
    got = outputs(model, want["image"], ["logits"])["logits"]
    assert relative_error(got, want["logits"]) <= 1e-5
    assert model.config.block.layer_scale


def test_what_the_pre_training_alone_reads_is_left_out(tmp_path):
    """MAE's mask token and decoder, and DINOv2's mask token."""
    file = write(facebook_arrays("hf_mae_pretraining"), tmp_path)
    ignored = keras_vit.info(file, num_heads=3).ignored
    assert "pre-training" in ignored["mask_token"]
    assert "decoder" in ignored["decoder_norm.weight"]
