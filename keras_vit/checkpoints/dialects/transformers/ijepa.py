"""transformers' I-JEPA (arXiv 2301.08243): ViT without a class token."""

from keras_vit.checkpoints.dialects.base import Feature
from keras_vit.checkpoints.dialects.transformers import common, vit

FAMILIES = (
    vit.family_with_blocks(
        "ijepa",
        "ijepa.",
        ("IJepaForImageClassification", "IJepaModel"),
        common.classifier_names(),
        poolings=("gap",),
        fields={"class_token": None},
        feature=Feature(first_patch=0),
    ),
)
