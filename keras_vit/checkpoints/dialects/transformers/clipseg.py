"""transformers' tower of CLIPSeg (arXiv 2112.10003): CLIP's tower."""

from keras_vit.checkpoints.dialects.transformers import clip

FAMILIES = (clip.relative("clipseg", "CLIPSegVisionModel"),)
