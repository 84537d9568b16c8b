"""The package lets Keras train: ceilings that a change may lower."""

import ast
import importlib.util
import re
from pathlib import Path

import keras
import pytest

import keras_vit

PACKAGE = Path(keras_vit.__file__).parent
NAMES_OF_KERAS_MODEL = 10
FOREIGN_PRIVATE_NAMES = 10
"""Ceilings. Raise one only for something that users asked for, and say so in the commit."""

KERAS = Path(importlib.util.find_spec("keras").submodule_search_locations[0]) / "src"
EXTENDED = (
    "layers/layer.py",
    "layers/core/*dense.py",
    "models/*.py",
    "trainers/trainer.py",
    "callbacks/callback.py",
    "optimizers/*.py",
    "backend/*/trainer.py",
    "backend/*/layer.py",
    "backend/*/optimizer.py",
)
"""Modules of Keras whose classes the package extends."""
_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


def test_the_model_defines_few_names_of_keras_model_and_each_once():
    """Python's own names, and `__init__`, are in every class."""
    order = keras_vit.VisionTransformer.__mro__
    own = order[: order.index(keras.Model)]
    own = [base for base in own if base.__module__.startswith("keras_vit")]
    known = {name for name in dir(keras.Model) if not name.startswith("__") and name != "_abc_impl"}
    defined = [name for base in own for name in vars(base) if name in known]
    assert len(own) <= 2, own
    assert len(defined) == len(set(defined)), sorted(defined)
    assert len(defined) <= NAMES_OF_KERAS_MODEL, sorted(defined)


def defined_names(trees: list[ast.AST]) -> set[str]:
    """Functions, classes, variables and attributes of `self` that the package itself defines."""
    names = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
    return names


def foreign_names(trees: list[ast.AST], extended: set[str]) -> set[str]:
    """Private names of other libraries that are read, looked up, imported or overridden."""
    own, found = defined_names(trees), set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute):
            found |= {node.attr} - own
        elif isinstance(node, ast.ImportFrom) and re.search(
            r"(^|\.)_?src(\.|$)", node.module or ""
        ):
            found.add(f"_{node.module}")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr"):
            found |= {word.value for word in node.args[1:2] if isinstance(word, ast.Constant)} - own
        elif isinstance(node, ast.ClassDef):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            found |= {f"_{node.name}.{name}" for name in methods & extended}
    return {name for name in found if re.match(r"_[a-zA-Z]", str(name))} - _NAMED_TUPLES


def test_foreign_names_are_found_where_they_are_read_and_overridden():
    code = "class A:\n  def _step(self): return x._other + getattr(x, '_third') + self._own()\n"
    code += "  def _own(self): pass\nfrom keras.src.backend import y\n"
    names = foreign_names([ast.parse(code)], {"_step"})
    assert names == {"_other", "_third", "_keras.src.backend", "_A._step"}


def foreign_names_of_the_package() -> set[str]:
    """The private methods of Keras are those of the installed release."""
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    sources = [path for pattern in EXTENDED for path in KERAS.glob(pattern)]
    methods = (re.findall(r"^    def (_[a-z]\w*)\(", path.read_text(), re.M) for path in sources)
    return foreign_names(trees, {name for each in methods for name in each})


@pytest.mark.without_backend
def test_the_package_uses_few_private_names_of_other_libraries():
    names = foreign_names_of_the_package()
    assert len(names) <= FOREIGN_PRIVATE_NAMES, sorted(names)
