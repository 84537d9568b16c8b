"""transformers' GIT (arXiv 2205.14100): CLIP's tower, without a projection."""

from keras_vit.checkpoints.dialects.transformers import clip

FAMILIES = (
    clip.relative(
        "git",
        "GitVisionModel",
        own_prefix="vision_model.",
        prefixes=("git.image_encoder.vision_model.", "image_encoder.vision_model."),
        projections=(),
        sizes=(768, 3072, 12, 12, 224, 16),
    ),
)
