"""From image files, arrays and tensors to the batch that a model expects."""

from keras_vit.preparation.preprocessor import Preprocessor

__all__ = ["Preprocessor"]
