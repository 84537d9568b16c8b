"""Facebook's own files of DINOv2, MAE and DeiT-III, such as `dinov2_vitb14_pretrain.pth`.

DINO's and DeiT's files, and MAE's encoders, have the names of timm's `VisionTransformer`. DINOv2
has registers and a packed gated MLP under other names (`dinov2/models/vision_transformer.py`),
MAE's files of the pre-training have a decoder too (`models_mae.py`), and DeiT-III calls the scales
of its branches `gamma_1` and `gamma_2` (`deit/models_v2.py`). MAE's mask token has the decoder's
width and DINOv2's the encoder's, under one name; keras_vit ignores both.
"""

from keras_vit.checkpoints.families.family import Family, Images, Library
from keras_vit.checkpoints.families.names import BLOCKS, Section
from keras_vit.checkpoints.families.protocols import IMAGENET

_NAMES: Section = {
    **BLOCKS,
    "block_{l}/attention/{qkv}/bias": ["blocks.{l}.attn.qkv.bias : (qkv h d)", None],
    "register_tokens/tokens": "register_tokens",
    "block_{l}/attention_scale/gamma": ["blocks.{l}.ls1.gamma", "blocks.{l}.gamma_1"],
    "block_{l}/mlp/{gate}": "blocks.{l}.mlp.w12 : (gate f)",
    "block_{l}/mlp/dense_1": ["blocks.{l}.mlp.fc2", "blocks.{l}.mlp.w3"],
    "block_{l}/mlp_scale/gamma": ["blocks.{l}.ls2.gamma", "blocks.{l}.gamma_2"],
}

_IMAGES = Images(default=lambda config: IMAGENET)

FAMILIES = (
    Family(
        "facebook",
        Library(
            "Facebook's own code",
            images=_IMAGES,
            arithmetic={"block.activation": "gelu", "position_resize": "bicubic"},
            ignored={
                r"mask_token": "the token of masked patches, which the pre-training alone reads",
                r"decoder_.*": "the decoder of MAE's pre-training",
                r"fc\..*": "the projection of MSN's pre-training",
            },
            only_read="files in Facebook's own names, which only Facebook's own code reads",
        ),
        _NAMES,
        fixed={"pool.kind": "token", "position": "learned_except_registers"},
    ),
)
