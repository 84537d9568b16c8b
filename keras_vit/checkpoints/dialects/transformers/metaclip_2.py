"""transformers' MetaCLIP 2 (arXiv 2507.22062): CLIP's tower."""

from keras_vit.checkpoints.dialects.transformers import clip

FAMILIES = (clip.relative("metaclip_2", "MetaClip2VisionModel"),)
