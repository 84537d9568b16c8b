"""transformers' OWL-ViT (arXiv 2205.06230) and OWLv2 (arXiv 2306.09683): CLIP's tower."""

from keras_vit.checkpoints.dialects.base import Dialect
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.transformers import clip
from keras_vit.checkpoints.dialects.transformers.towers import PROJECTION

_NAMES: Section = {
    "pre_norm": "pre_layernorm",
}


def _owl(model: str, class_name: str, size: tuple[int, int]) -> Dialect:
    return clip.relative(
        model,
        class_name,
        own_prefix="vision_model.",
        prefixes=(f"{model}.vision_model.",),
        words={**clip.WORDS, **TORCH.names(_NAMES)},
        projections=(PROJECTION, f"{model}.{PROJECTION}"),
        sizes=(768, 3072, 12, 12, *size),
    )


FAMILIES = (
    _owl("owlvit", "OwlViTVisionModel", (768, 32)),
    _owl("owlv2", "Owlv2VisionModel", (768, 16)),
)
