"""Makes the classes of keras_vit known to Keras, which looks them up when it loads a model.

Keras knows a class of a saved model once the module of the class was imported. `import keras_vit`
imports those modules where Keras is imported already. Where it is not, `import keras_vit` starts
no backend, so that the headers of a checkpoint are read at once: the modules are then imported
with the first public name of keras_vit that needs Keras.
"""

import importlib
import sys

_MODULES = ("keras_vit.model", "keras_vit.finetune", "keras_vit.tasks")


def register_with_keras() -> None:
    """Imports the modules with classes that a saved model can hold, if Keras is imported."""
    if "keras" in sys.modules:
        for module in _MODULES:
            importlib.import_module(module)
