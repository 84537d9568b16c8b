"""Tasks that train an encoder without labels."""

from keras_vit.tasks.corruption import PatchCorruption
from keras_vit.tasks.masked_patches import MaskedPatchPrediction, masked_patch_optimizer
from keras_vit.tasks.targets import mean_colours

__all__ = ["MaskedPatchPrediction", "PatchCorruption", "masked_patch_optimizer", "mean_colours"]
