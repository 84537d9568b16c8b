"""Vision Transformers: the graph, the model, its builders, heads, inference and costs.

Names are imported on first use, because costs need no backend.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
