"""The configuration of a Vision Transformer: frozen, validated, to and from dict.

Field names come from the paper's own code (`vit_jax/configs/models.py`). This package does not
import Keras, so a configuration can be read, checked and shown without starting a backend. Names
are imported on first use, because the command line needs only the rules for valid values.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
