"""Facebook's original files of DINOv2, MAE and DeiT-III, such as `dinov2_vitb14_pretrain.pth`.

The files of DINO, DeiT and MAE's encoders have the names of timm's `VisionTransformer`. DINOv2
has other names for registers and its packed gated MLP (`dinov2/models/vision_transformer.py`),
MAE's pretraining files also have a decoder (`models_mae.py`), and DeiT-III calls its layer scales
`gamma_1` and `gamma_2` (`deit/models_v2.py`). The mask tokens of MAE, with the decoder's width, and
of DINOv2, with the encoder's, have the same name; keras_vit ignores both.
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
            "Facebook's code",
            images=_IMAGES,
            arithmetic={"block.activation": "gelu", "position_resize": "bicubic"},
            ignored={
                r"mask_token": "the mask token, which only pretraining uses",
                r"decoder_.*": "the decoder of MAE's pretraining",
                r"fc\..*": "the projection of MSN's pretraining",
            },
            only_read="only Facebook's code reads files with these names",
        ),
        _NAMES,
        fixed={"pool.kind": "token", "position": "learned_except_registers"},
    ),
)
