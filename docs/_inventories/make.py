"""Writes keras.inv and numpy.inv: addresses of public names, for links from the API pages.

    KERAS_BACKEND=torch python docs/_inventories/make.py

Names are those of the installed packages. TensorFlow's site documents Keras under addresses that
follow from the names, which keras.io does not; NumPy's do too.
"""

import inspect
import types
from pathlib import Path

import keras
import numpy as np
from sphinx.util.inventory import InventoryFile

HERE = Path(__file__).parent
ROOMS = ("callbacks", "initializers", "layers", "losses", "metrics", "models", "optimizers",
         "optimizers.schedules", "random", "regularizers", "saving", "tree", "utils")  # fmt: skip


def rows(package: types.ModuleType, room: str, address: str) -> list[tuple[str, str, str]]:
    """Returns name, role and address of the classes and functions of a module."""
    module = package
    for word in filter(None, room.split(".")):
        module = getattr(module, word)
    names = getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]
    found = []
    for name in sorted(names):
        role = "class" if inspect.isclass(getattr(module, name)) else "function"
        if callable(getattr(module, name)):
            full = ".".join(filter(None, (package.__name__, room, name)))
            found.append((full, role, address.format(name=full, path=full.replace(".", "/"))))
    return found


class _Names:
    """What Sphinx's writer of inventories asks of an environment and a builder."""

    name = "py"

    def __init__(self, project: str, version: str, found: list[tuple[str, str, str]]) -> None:
        self.config = types.SimpleNamespace(project=project, version=version)
        self.domains = types.SimpleNamespace(sorted=lambda: [self])
        self.found = found

    def get_objects(self) -> list[tuple[str, str, str, str, str, int]]:
        """Returns the objects of the domain, in the form of `sphinx.domains.Domain`."""
        return [(name, name, role, address, "", 1) for name, role, address in self.found]

    def get_target_uri(self, address: str) -> str:
        """Returns the address itself."""
        return address


def write(project: str, version: str, found: list[tuple[str, str, str]]) -> None:
    """Writes one inventory."""
    names = _Names(project, version, found)
    InventoryFile.dump(str(HERE / f"{project}.inv"), names, names)  # type: ignore[arg-type]
    print(project, len(found), "names")


if __name__ == "__main__":
    in_keras = [row for room in ("", *ROOMS) for row in rows(keras, room, "{path}")]
    write("keras", keras.__version__, in_keras)
    page = "reference/generated/{name}.html"
    write("numpy", np.__version__, rows(np, "", page))
