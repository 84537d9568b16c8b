"""The names in Facebook's own files of DINOv2, MAE and DeiT-III, once they are safetensors.

DINO's and DeiT's files, and MAE's encoders, have the names of timm's `VisionTransformer`. DINOv2
has registers and a packed gated MLP under other names (`dinov2/models/vision_transformer.py`),
MAE's files of the pre-training have a decoder too (`models_mae.py`), and DeiT-III calls the scales
of its branches `gamma_1` and `gamma_2` (`deit/models_v2.py`). MAE's mask token has the decoder's
width and DINOv2's the encoder's, under one name; both are left out.
"""

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Names,
    PreparationWords,
    StoredAs,
    alternatives,
    with_reasons,
)
from keras_vit.checkpoints.dialects.torch_layout import IMAGENET, torch_modules
from keras_vit.config import Numerics

_BLOCK = "blocks.{l}."


_WORDS: dict[str, Names] = {
    "class_token/token": StoredAs("cls_token"),
    "register_tokens/tokens": StoredAs("register_tokens"),
    "position_embedding/embedding": StoredAs("pos_embed"),
    "block_{l}/attention/{qkv}/kernel": StoredAs(_BLOCK + "attn.qkv.weight", "(qkv h d) m"),
    "block_{l}/attention/{qkv}/bias": StoredAs(_BLOCK + "attn.qkv.bias", "(qkv h d)"),
    "block_{l}/attention_scale/gamma": (
        StoredAs(_BLOCK + "ls1.gamma"),
        StoredAs(_BLOCK + "gamma_1"),
    ),
    "block_{l}/mlp_scale/gamma": (
        StoredAs(_BLOCK + "ls2.gamma"),
        StoredAs(_BLOCK + "gamma_2"),
    ),
    **{
        f"block_{{l}}/mlp/{{gate}}/{part}": StoredAs(f"{_BLOCK}mlp.w12.{name}", axes)
        for part, name, axes in (("kernel", "weight", "(gate f) m"), ("bias", "bias", "(gate f)"))
    },
    **torch_modules(
        {
            "patch_embedding": "patch_embed.proj",
            "block_{l}/attention_norm": _BLOCK + "norm1",
            "block_{l}/attention/out": _BLOCK + "attn.proj",
            "block_{l}/mlp_norm": _BLOCK + "norm2",
            "block_{l}/mlp/dense_0": _BLOCK + "mlp.fc1",
            "encoder_norm": "norm",
            "head": "head",
        }
    ),
    # `w3` behind a gate, else `fc2`.
    **alternatives(
        torch_modules({"block_{l}/mlp/dense_1": f"{_BLOCK}mlp.fc2"}),
        torch_modules({"block_{l}/mlp/dense_1": f"{_BLOCK}mlp.w3"}),
    ),
}

facebook = Dialect(
    name="facebook",
    library="Facebook's own code",
    container="safetensors",
    words=with_reasons({"": "Facebook's VisionTransformer has no such part"}, _WORDS),
    ignored={
        r"mask_token": "the token of masked patches, which the pre-training alone reads",
        r"decoder_.*": "the decoder of MAE's pre-training",
    },
    images=PreparationWords(default=lambda config: IMAGENET),
    numerics=Numerics(gelu="exact", position_resize="bicubic"),
    fields={"classifier": "token", "position": "learned", "position_before_registers": True},
    switches=("num_registers", "layer_scale", "mlp"),
    only_read="files in Facebook's own names, which nothing but Facebook's own code reads",
)
