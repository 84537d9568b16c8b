"""The presets of keras_vit itself: names and axes are the lexicon's."""

from keras_vit.checkpoints.dialects.base import Dialect, StoredAs
from keras_vit.config.vit import SWITCHES
from keras_vit.config.weights.lexicon import LEXICON

keras_vit = Dialect(
    name="keras_vit",
    library="keras_vit",
    words={word.path: (StoredAs(word.path),) for word in LEXICON},
    switches=tuple(SWITCHES),
)
