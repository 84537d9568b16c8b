"""transformers' encoder of MAE (arXiv 2111.06377), with or without the decoder of pretraining."""

from keras_vit.checkpoints.dialects.base import Feature
from keras_vit.checkpoints.dialects.json_fields import note
from keras_vit.checkpoints.dialects.transformers import vit

FAMILIES = (
    vit.family_with_blocks(
        "vit_mae",
        "vit.",
        (None, "ViTMAEModel"),
        {},
        ignored={r"decoder\..*": "the decoder of pretraining"},
        fields={"num_classes": 0},
        prefix_for=lambda config: "",
        # A share of hidden patches belongs to pretraining; the class hides that share in inference
        # too.
        rows=(note("mask_ratio", 0.0),),
        feature=Feature("ViTMAEModel", arguments={"mask_ratio": 0.0}),
    ),
)
