"""transformers' relatives of CLIP: its tower, alone or inside of a whole model.

AltCLIP (arXiv 2211.06679), Chinese CLIP (arXiv 2211.01335), CLIPSeg (arXiv 2112.10003), GIT (arXiv
2205.14100), Kosmos-2 (arXiv 2306.14824), MetaCLIP 2 (arXiv 2507.22062), OWL-ViT (arXiv 2205.06230)
and OWLv2 (arXiv 2306.09683).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Names
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.transformers import clip, common
from keras_vit.checkpoints.dialects.transformers.towers import (
    PROJECTION,
    projection,
    tower_or_whole,
)

_BLOCKS = ("encoder.layers.", "encoder.layer.")
_WORDS_OF_ALTCLIP = {
    # transformers 5 writes the whole model with the text tower's word for a block.
    path: (*names, *(dataclasses.replace(n, name=n.name.replace(*_BLOCKS)) for n in names))
    if path.startswith("block_")
    else names
    for path, names in clip.WORDS.items()
}


def _relative(
    model: str,
    class_name: str,
    own_prefix: str = "",
    prefixes: tuple[str, ...] = ("vision_model.",),
    words: Mapping[str, Names] = clip.WORDS,
    projections: tuple[str, ...] = (PROJECTION,),
    sizes: tuple[int, int, int, int, int, int] = (768, 3072, 12, 12, 224, 32),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a relative of CLIP.

    Args:
        model: `model_type` of the whole model.
        class_name: name of the vision class.
        own_prefix, prefixes: prefix in the vision class's files, and in others.
        words: names of the weights.
        projections: names that the projection has in whole models.
        sizes: the class's defaults of width, MLP, blocks, heads, pixels and patch.
        **more: further fields of `Dialect`.
    """
    return tower_or_whole(
        model,
        f"{model}_vision_model",
        class_name,
        (own_prefix, *prefixes),
        {**words, **projection(*projections)} if projections else words,
        sizes,
        "quick_gelu",
        1e-5,
        clip.FIELDS,
        undetermined=lambda fields: common.ACTIVATION_OF_CLIP,
        impossible=common.SQUARE_ALONE,
        **more,
    )


def _owl(model: str, class_name: str, patch_size: int) -> Dialect:
    return _relative(
        model,
        class_name,
        own_prefix="vision_model.",
        prefixes=(f"{model}.vision_model.",),
        words={**clip.WORDS, **TORCH.names({"pre_norm": "pre_layernorm"})},
        projections=(PROJECTION, f"{model}.{PROJECTION}"),
        sizes=(768, 3072, 12, 12, 768, patch_size),
    )


FAMILIES = (
    _relative("altclip", "AltCLIPVisionModel", words=_WORDS_OF_ALTCLIP),
    _relative("chinese_clip", "ChineseCLIPVisionModel"),
    _relative("clipseg", "CLIPSegVisionModel"),
    _relative(
        "git",
        "GitVisionModel",
        own_prefix="vision_model.",
        prefixes=("git.image_encoder.vision_model.", "image_encoder.vision_model."),
        projections=(),
        sizes=(768, 3072, 12, 12, 224, 16),
    ),
    _relative(
        "kosmos_2",
        "Kosmos2VisionModel",
        "model.",
        projections=(),
        sizes=(1024, 4096, 24, 16, 224, 14),
        only_read="transformers has no class for the tower of Kosmos-2 alone",
    ),
    _relative("metaclip_2", "MetaClip2VisionModel"),
    clip.classifier(
        dataclasses.replace(clip.ENCODER, model_type="metaclip_2"),
        "MetaClip2ForImageClassification",
    ),
    _owl("owlvit", "OwlViTVisionModel", 32),
    _owl("owlv2", "Owlv2VisionModel", 16),
)
