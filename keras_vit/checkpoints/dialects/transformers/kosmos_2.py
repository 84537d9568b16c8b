"""transformers' tower of Kosmos-2 (arXiv 2306.14824): CLIP's tower, in files of the whole model."""

from keras_vit.checkpoints.dialects.transformers import clip

FAMILIES = (
    clip.relative(
        "kosmos_2",
        "Kosmos2VisionModel",
        "model.",
        projections=(),
        sizes=(1024, 4096, 24, 16, 224, 14),
        only_read="transformers has no class for the tower of Kosmos-2 alone",
    ),
)
