"""Every private name of another library has a row in the table of docs/upstream/README.md."""

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_backend

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "keras_vit"
TABLE = ROOT / "docs" / "upstream" / "README.md"
LIBRARIES = ("keras", "tensorflow", "torch", "jax")
STANDARD = {"_replace", "_asdict", "_fields", "_unit", "_ft_", "_global", "_seed"}
"""Public methods of named tuples, and parts of words that are no names."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> tuple[set[str], set[str], set[str]]:
    """The private names that a file defines, those it reads, and those it imports."""
    defined, read, imported, words = set(), set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            stores = isinstance(node.ctx, ast.Store) and of_self
            (defined if stores else read).add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            imported.update(modules)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"_[a-z][a-z_]+", str(node.value)):
            words.add(node.value)  # possibly an argument of getattr or setattr
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).startswith("vars("):
            defined.add(ast.literal_eval(node.slice))  # written without the library's setter
    if any(name.split(".")[0] in LIBRARIES for name in imported):  # else no library's names
        read |= words
    return defined, read - STANDARD, {name for name in imported if _is_private_import(name)}


def _is_private_import(name: str) -> bool:
    first, *rest = name.split(".")
    inside = ("src", "python") if first in ("keras", "tensorflow") else ()
    return first in LIBRARIES and any(part in inside or is_private(part) for part in rest)


FILES = sorted(PACKAGE.rglob("*.py"))
PER_FILE = {path: private_names(ast.parse(path.read_text())) for path in FILES}
DEFINED = set().union(*(defined for defined, _, _ in PER_FILE.values()))
ROWS = {
    cells[1].strip().strip("`"): cells
    for line in TABLE.read_text().splitlines()
    if len(cells := line.split("|")) == 6 and cells[1].strip().startswith("`")
}
LISTED = {part for name in ROWS for part in name.split(".") if is_private(part)}


CLASSES = {
    node.name: node
    for path in FILES
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ClassDef)
}


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [part for part in node.body if isinstance(part, ast.FunctionDef)]


def inherited(node: ast.ClassDef) -> set[str]:
    """The methods that a class inherits from classes of keras_vit."""
    names: set[str] = set()
    for base in node.bases:
        if (parent := CLASSES.get(ast.unparse(base).split(".")[-1])) and parent is not node:
            names |= {method.name for method in methods(parent)} | inherited(parent)
    return names


def overridden(tree: ast.AST) -> set[str]:
    """The private methods in a file that extend a method of another library's class.

    A method that a class of keras_vit defines belongs to keras_vit. If it extends a method of
    another library itself, the file of that class has the row.
    """
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        for method in methods(node):
            calls_super = any(
                isinstance(part, ast.Attribute)
                and part.attr == method.name
                and isinstance(part.value, ast.Call)
                and getattr(part.value.func, "id", None) == "super"
                for part in ast.walk(method)
            )
            if is_private(method.name) and calls_super and method.name not in inherited(node):
                names.add(method.name)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_private_name_of_another_library_has_a_row_in_the_table(path):
    """Names that keras_vit itself defines need no row."""
    _, read, imported = PER_FILE[path]
    foreign = (read - DEFINED) | overridden(ast.parse(path.read_text()))
    assert foreign <= LISTED, f"{path}: {foreign - LISTED} have no row in {TABLE}."
    for name in imported:
        has_row = any(row.startswith(name) or name.startswith(row) for row in ROWS)
        assert has_row, f"{path} imports {name}, which has no row in {TABLE}."


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_of_the_table_names_an_existing_use_and_canary(name):
    """The file of the row contains the name, and the tests contain the canary."""
    _, _, where, _, canary, _ = ROWS[name]
    assert name.split(".")[-1] in (ROOT / where.strip().strip("`")).read_text()
    file, test = canary.strip().strip("`").split("::")
    assert f"def {test}(" in (ROOT / file).read_text()
