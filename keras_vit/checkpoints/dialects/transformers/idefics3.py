"""transformers' Idefics 3 (arXiv 2408.12637) and SmolVLM: SigLIP's tower without its head."""

from keras_vit.checkpoints.dialects.base import Feature
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.towers import NAMES, tower_or_whole

FAMILIES = tuple(
    tower_or_whole(
        model,
        f"{model}_vision",
        class_name,
        ("", "model.vision_model.", "vision_model."),
        TORCH.names(NAMES),
        (1152, 3072, 12, 16, 224, 32),
        "gelu_pytorch_tanh",
        1e-6,
        {"block.qkv_bias": True},
        feature=Feature(first_patch=0),
        impossible=common.SQUARE_ALONE,
    )
    for model, class_name in (
        ("idefics3", "Idefics3VisionTransformer"),
        ("smolvlm", "SmolVLMVisionTransformer"),
    )
)
