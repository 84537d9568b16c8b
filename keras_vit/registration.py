"""Makes our classes known to Keras as soon as both packages are imported.

Keras finds the class of a saved model among those registered by import. We import
our model lazily, so that headers are read without a backend; this module imports it,
and the optimizers it may have been trained with, at the moment when Keras is there,
whichever package comes first.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

_ROOMS = ("keras_vit.model", "keras_vit.finetune", "keras_vit.tasks")


def register_with_keras() -> None:
    """Imports our Keras classes now if Keras is imported, else right after Keras."""
    if "keras" in sys.modules:
        _import_rooms()
    else:
        sys.meta_path[:0] = [_After("keras"), _After("keras_vit.model")]


class _After(importlib.abc.MetaPathFinder):
    """Steps aside at the first import of a module, and registers behind it.

    Our model may be what imports Keras; the other rooms, which need the model, wait for it.
    """

    running: ClassVar[set[str]] = set()

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            self.running.add(fullname)
            try:
                execute(module)
            finally:
                self.running.remove(fullname)
            if not self.running:
                _import_rooms()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def _import_rooms() -> None:
    for room in _ROOMS:
        importlib.import_module(room)
