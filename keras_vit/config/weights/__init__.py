"""The weights of a model: their paths, their axes, and which models have them."""
