"""Vision Transformers: configuration, weights and graph, the model, its builders and its costs.

Names are imported on first use, because configurations and weights are read without a backend.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
