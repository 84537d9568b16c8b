"""Registers the classes of keras_vit with Keras, which looks them up when it loads a model.

Keras can load a saved model once the modules of its classes are imported. If Keras is already
imported, `import keras_vit` imports these modules. Otherwise it starts no backend, to be quick, and
the first use of a public name that needs Keras imports them.
"""

import importlib
import sys

_MODULES = ("keras_vit.models.vision_transformer", "keras_vit.training.compiling")


def register_with_keras() -> None:
    """Imports the modules with classes that a saved model can contain, if Keras is imported."""
    if "keras" in sys.modules:
        for module in _MODULES:
            importlib.import_module(module)
