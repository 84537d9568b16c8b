"""transformers' DINOv2 (arXiv 2304.07193), such as `facebook/dinov2-base`, and its variants.

The classifier reads the class token concatenated with the mean of the patches. The class token and
the patches have positions; registers are added after the positions (arXiv 2309.16588).

TIPSv2, such as `google/tipsv2-b14`: DINOv2's network with one register, which is a second class
token; the pooled output is the first class token. The files have Facebook's names of DINOv2, except
for a plain MLP. Pixio, such as `facebook/pixio-huge`: an encoder with several class tokens,
whose mean after the norm is the feature. Every token has a position.
"""

import dataclasses

from keras_vit.checkpoints.families.codecs import mask_token, mlp_by_ratio
from keras_vit.checkpoints.families.family import Class, Family
from keras_vit.checkpoints.families.keys import Keys
from keras_vit.checkpoints.families.names import BLOCKS, Section
from keras_vit.checkpoints.families.transformers import library, vit
from keras_vit.checkpoints.families.transformers.processor import processor_of_any_size

NAMES: Section = {
    **vit.NAMES,
    **vit.CLASSIFIER,
    "mask_token/token": "embeddings.mask_token : 1 m",
    "block_{l}/attention_norm": "encoder.layer.{l}.norm1",
    "block_{l}/attention_scale/gamma": "encoder.layer.{l}.layer_scale1.lambda1",
    "block_{l}/mlp_norm": "encoder.layer.{l}.norm2",
    "block_{l}/mlp/dense_0": "encoder.layer.{l}.mlp.fc1",
    "block_{l}/mlp/{gate}": "encoder.layer.{l}.mlp.weights_in : (gate f)",
    "block_{l}/mlp_scale/gamma": "encoder.layer.{l}.layer_scale2.lambda1",
    "block_{l}/mlp/dense_1": [
        {"name": "encoder.layer.{l}.mlp.fc2", "when": "block.gated!"},
        "encoder.layer.{l}.mlp.weights_out",
    ],
}
_REGISTERS: Section = {"register_tokens/tokens": "embeddings.register_tokens"}

BLOCK_KEYS: Keys = {**library.KEYS, **library.DROPOUT, "drop_path_rate": "stochastic_depth_rate"}
"""The keys of DINOv2's blocks except the MLP, which RADIO and TIPSv2 have too."""
SCALE: Keys = {"layerscale_value": "block.layer_scale"}
BLOCK_SHAPES: Keys = {**library.SHAPES, "intermediate_size": None, "qkv_bias": "block.qkv_bias"}

_OF_TIPS: Section = {
    **BLOCKS,
    "mask_token/token": "mask_token : 1 m",
    "register_tokens/tokens": "register_tokens",
    "block_{l}/mlp/dense_0": "blocks.{l}.mlp.c_fc",
    "block_{l}/mlp/{gate}": "blocks.{l}.mlp.w12 : (gate f)",
    "block_{l}/mlp/dense_1": [
        {"name": "blocks.{l}.mlp.c_proj", "when": "block.gated!"},
        "blocks.{l}.mlp.w3",
    ],
}


_PIXELS = {"name": "transformers", "resize": "tensor", "mean": 0.0, "std": 1.0}
"""The default protocol: `Tipsv2ImageProcessor` does not normalise pixels."""
_IMAGES_OF_TIPS = dataclasses.replace(processor_of_any_size, default=lambda config: _PIXELS)

PLAIN = {"position": "learned", "position_resize": "bicubic"}
_REGISTERED = {"position": "learned_except_registers", "position_resize": "bicubic_antialias"}
_MASK: Keys = {"use_mask_token": mask_token}
_NUMBER: Keys = {"num_register_tokens": "tokens.registers"}
_WITH = "dinov2_with_registers"

DINOV2 = Family(
    "transformers/dinov2",
    library.ANY_SIZE,
    names=NAMES,
    keys={**BLOCK_KEYS, **SCALE, "mlp_ratio use_swiglu_ffn": mlp_by_ratio(whole=True)},
    shapes=BLOCK_SHAPES,
    classes={
        **library.encoder_and_classifier(
            "Dinov2",
            Class("dinov2", keys=_MASK, fixed=PLAIN),
            fixed={**PLAIN, "pool.kind": "token_and_mean"},
        ),
        **library.encoder_and_classifier(
            "Dinov2WithRegisters",
            Class(_WITH, _WITH, names=_REGISTERS, keys=_NUMBER, fixed=_REGISTERED),
            fixed={**_REGISTERED, "pool.kind": "token_and_mean"},
        ),
    },
    fixed={"pool.kind": "token"},
)

TIPSV2 = Family(
    "transformers/tipsv2_vision_model",
    library.make_library(_IMAGES_OF_TIPS),
    names=_OF_TIPS,
    keys={**BLOCK_KEYS, **SCALE, "mlp_ratio use_swiglu_ffn": mlp_by_ratio(whole=False)},
    shapes={**BLOCK_SHAPES, "num_register_tokens": "tokens.registers"},
    classes={"Tipsv2VisionModel": Class("tipsv2_vision_model", head=False)},
    fixed={
        "pool.kind": "token",
        "position": "learned_except_registers",
        "position_resize": "bilinear_antialias",
        "tokens.mask": True,
    },
)

PIXIO = Family(
    "transformers/pixio",
    library.ANY_SIZE,
    names={
        **vit.NAMES,
        "class_tokens/tokens": "embeddings.cls_token",
        "block_{l}/attention_norm": "encoder.layer.{l}.norm1",
        "block_{l}/mlp_norm": "encoder.layer.{l}.norm2",
    },
    keys={**library.KEYS, **library.DROPOUT, "mlp_ratio": mlp_by_ratio(whole=True)},
    shapes={**BLOCK_SHAPES, "n_cls_tokens": "tokens.class_tokens"},
    classes={"PixioModel": Class("pixio", head=False)},
    fixed={"pool.kind": "token", "position": "learned", "position_resize": "bicubic"},
    limits=library.SQUARE_ALONE,
)
