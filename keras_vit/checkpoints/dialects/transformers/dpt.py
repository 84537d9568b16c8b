"""transformers' encoder of DPT (arXiv 2103.13413), which has the blocks of ViT."""

from keras_vit.checkpoints.dialects.json_fields import constant
from keras_vit.checkpoints.dialects.transformers import vit

FAMILIES = (
    vit.family_with_blocks(
        "dpt",
        "dpt.",
        (None, "DPTModel"),
        vit.POOLER,
        ignored={
            r"(neck|head|auxiliary_head)\..*": "the decoder of depths or segments",
            r"dpt\.pooler\..*": "a layer that no class with a decoder reads",
        },
        rows=(
            *vit.POOLER_ROWS,
            constant("is_hybrid", False),
            constant("backbone_config", None),
        ),
        only_read="an encoder without the decoder of DPT",
    ),
)
