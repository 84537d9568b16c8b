"""The presets of keras_vit: names and axes are those of the lexicon."""

from keras_vit.checkpoints.families.family import Family, Library
from keras_vit.config.weights.lexicon import LEXICON

FAMILIES = (
    Family(
        "keras_vit",
        Library("keras_vit"),
        names={word.path: [word.path, None] for word in LEXICON},
    ),
)
