"""The weights of a model: path, axes, the models that have them."""
