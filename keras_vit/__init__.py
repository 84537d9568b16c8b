"""Vision Transformers for Keras 3, on TensorFlow, JAX and PyTorch.

Names are imported on first use, so that `import keras_vit` is quick and reading a
checkpoint's headers (`keras_vit.info`) starts no backend. Keras can load saved
models of keras_vit after `import keras, keras_vit`, in this order, or after the first use of a
name such as `keras_vit.VisionTransformer`. If only one backend is installed and the user has not
chosen another, Keras takes the installed backend.

`__init__.pyi` lists the public names, also for type checkers.
"""

import sys
from types import ModuleType
from typing import Any

import lazy_loader

from keras_vit.support import __version__  # noqa: F401  a public name
from keras_vit.support.backend import choose, refusal
from keras_vit.support.habits import answer_habit
from keras_vit.support.registration import register_with_keras

choose()
_resolve, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        value = _resolve(name)
    except AttributeError as error:
        message = f"module 'keras_vit' has no attribute {name!r}.{answer_habit(name)}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__]) from error
    except (ImportError, ValueError) as error:  # ValueError: Keras knows no such backend
        if reason := refusal():
            raise reason from error
        raise
    if not isinstance(value, ModuleType):  # rooms import one another while they register
        register_with_keras()
    return value


register_with_keras()
