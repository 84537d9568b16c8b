"""Sources of models: files of this machine, the Hub, the official bucket, the catalog."""

from keras_vit.sources.augreg import AugRegRow, search_augreg

__all__ = ["AugRegRow", "search_augreg"]
