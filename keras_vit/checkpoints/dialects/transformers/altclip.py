"""transformers' AltCLIP (arXiv 2211.06679): CLIP's tower.

transformers 5 writes the whole model with the text tower's word for a block.
"""

import dataclasses

from keras_vit.checkpoints.dialects.transformers import clip

_BLOCKS = ("encoder.layers.", "encoder.layer.")

FAMILIES = (
    clip.relative(
        "altclip",
        "AltCLIPVisionModel",
        words={
            path: (*names, *(dataclasses.replace(n, name=n.name.replace(*_BLOCKS)) for n in names))
            if path.startswith("block_")
            else names
            for path, names in clip.WORDS.items()
        },
    ),
)
