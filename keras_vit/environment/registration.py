"""Makes the classes of keras_vit known to Keras, which looks them up when it loads a model.

Keras knows a class of a saved model once the module of the class was imported. `import keras_vit`
imports these modules if Keras is already imported. Otherwise `import keras_vit` starts no backend,
so that it is quick: the first use of a public name of keras_vit that needs Keras then imports the
modules.
"""

import importlib
import sys

_MODULES = ("keras_vit.model", "keras_vit.finetune")


def register_with_keras() -> None:
    """Imports the modules with classes that a saved model can hold, if Keras is imported."""
    if "keras" in sys.modules:
        for module in _MODULES:
            importlib.import_module(module)
