"""What an encoder can be trained for besides naming what it sees."""

from keras_vit.tasks.corruption import PatchCorruption
from keras_vit.tasks.masked_patches import MaskedPatchPrediction, mean_colours

__all__ = ["MaskedPatchPrediction", "PatchCorruption", "mean_colours"]
