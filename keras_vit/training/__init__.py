"""Fine-tuning and pre-training by the papers' recipes, with an ordinary `model.fit`.

Names are imported on first use, because the command line reads the recipes without a backend.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
