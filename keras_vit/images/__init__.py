"""Image preprocessing: turns files, arrays and tensors into the batch that a model expects.

Names are imported on first use, because the command line reads lists of class names without NumPy
and Pillow.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
