"""transformers' Chinese CLIP (arXiv 2211.01335): CLIP's tower."""

from keras_vit.checkpoints.dialects.transformers import clip

FAMILIES = (clip.relative("chinese_clip", "ChineseCLIPVisionModel"),)
