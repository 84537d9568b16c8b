"""Prepares image files, arrays and tensors as the batch that a model expects."""

from keras_vit.images.image_files import ImageFiles, is_image_file, list_images
from keras_vit.images.preprocessor import Preprocessor

__all__ = ["ImageFiles", "Preprocessor", "is_image_file", "list_images"]
