"""transformers' tower of CLIPSeg (arXiv 2112.10003): CLIP's tower, without a projection."""

from keras_vit.checkpoints.dialects.transformers import clip

FAMILIES = (
    clip.relative(
        "clipseg",
        "CLIPSegVisionModel",
        prefixes=("clip.vision_model.", "vision_model."),
        projections=("visual_projection.weight", "clip.visual_projection.weight"),
    ),
)
