"""transformers' TIPSv2, such as `google/tipsv2-b14`: DINOv2's network with one register.

The register is a second class token, and the pooled output is the first one. The files have
Facebook's names of DINOv2, and other names of a plain MLP.
"""

import dataclasses

from keras_vit.checkpoints.dialects.dinov3_rows import SCALED
from keras_vit.checkpoints.dialects.json_fields import JsonField
from keras_vit.checkpoints.dialects.names import BLOCKS, TORCH, Section
from keras_vit.checkpoints.dialects.transformers import common, dinov2
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_any_size

_NAMES: Section = {
    **{layer: name for layer, name in BLOCKS.items() if layer != "head"},
    "mask_token/token": "mask_token : 1 m",
    "register_tokens/tokens": "register_tokens",
    "block_{l}/mlp/dense_0": "blocks.{l}.mlp.c_fc",
    "block_{l}/mlp/{gate}/kernel": "blocks.{l}.mlp.w12.weight : (gate f) m",
    "block_{l}/mlp/{gate}/bias": "blocks.{l}.mlp.w12.bias : (gate f)",
    "block_{l}/mlp/dense_1": [
        {"name": "blocks.{l}.mlp.c_proj", "when": "block.gated!"},
        "blocks.{l}.mlp.w3",
    ],
}

_PIXELS = {"name": "transformers", "resize": "tensor", "mean": 0.0, "std": 1.0}
"""The protocol of files that state none: `Tipsv2ImageProcessor` does not normalise pixels."""

FAMILIES = (
    common.dialect(
        "tipsv2_vision_model",
        TORCH.names(_NAMES),
        (
            common.architectures(None, "Tipsv2VisionModel"),
            *common.size_rows(mlp_dim=False),
            *dinov2.BLOCK_ROWS,
            dinov2.MLP,
            JsonField("layerscale_value", "block.layer_scale"),
            JsonField("num_register_tokens", "tokens.registers", default=1),
        ),
        sizes={
            "hidden_size": 768,
            "num_attention_heads": 12,
            "image_size": 448,
            "patch_size": 14,
        },
        resize="bilinear_antialias",
        expresses=("block.activation", "block.epsilon"),
        images=dataclasses.replace(processor_of_any_size, default=lambda config: _PIXELS),
        positions=("learned_except_registers",),
        fields={"num_classes": 0, "block.layer_scale": 1e-5, "tokens.mask": True},
        impossible={**SCALED, **dinov2.UNEVEN},
        only_named=True,
    ),
)
