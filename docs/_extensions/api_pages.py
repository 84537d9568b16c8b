"""Writes a page of the API reference per room of keras_vit, from every `__all__`.

A page has a table of its names, linked, and then their docstrings. A name that also stands at the
top, such as `keras_vit.explain`, is described there alone.
"""

import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType

from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer

import keras_vit

INSIDE = {"kernels", "fixes"}  # public to the package, not to its users
SECTIONS = ("Classes", "Functions", "Exceptions", "Constants")


def rooms() -> list[ModuleType]:
    """Returns `keras_vit` and its modules and packages that declare public names."""
    names = [i.name for i in pkgutil.iter_modules(keras_vit.__path__) if i.name not in INSIDE]
    modules = [importlib.import_module(f"keras_vit.{n}") for n in names if n[0] != "_"]
    return [keras_vit, *(module for module in modules if hasattr(module, "__all__"))]


def write_pages(folder: Path) -> None:
    """Writes `<module>.rst` for each room, and leaves unchanged files alone."""
    folder.mkdir(exist_ok=True)
    pages = {f"{module.__name__}.rst": page(module) for module in rooms()}
    for old in set(folder.glob("*.rst")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def page(module: ModuleType) -> str:
    """Returns the page of one module."""
    name = module.__name__
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", "   :no-members:", ""]
    described: dict[str, list[str]] = {section: [] for section in SECTIONS}
    table = []
    for word in module.__all__:
        value = getattr(module, word)
        if inspect.ismodule(value):
            continue
        if module is not keras_vit and word in keras_vit.__all__:
            table.append(f"   ~keras_vit.{word}")
            continue
        section, text = _described(module, word, value)
        described[section] += text
        if section != "Constants":
            table.append(f"   {word}")
    if table:
        lines += [".. autosummary::", "   :nosignatures:", "", *table, ""]
    for section, texts in described.items():
        if texts:
            lines += [section, "-" * len(section), "", *texts]
    return "\n".join(lines) + "\n"


def _described(module: ModuleType, word: str, value: object) -> tuple[str, list[str]]:
    """Returns the section of a name, and the lines that describe it."""
    full = f"{module.__name__}.{word}"
    if inspect.isclass(value):
        section = "Exceptions" if issubclass(value, Exception) else "Classes"
        return section, [f".. autoclass:: {full}", ""]
    if callable(value):
        return "Functions", [f".. autofunction:: {full}", ""]
    text = _comment(module, word)
    if not text:
        raise ExtensionError(f"{full}: expected a docstring below the constant, found none.")
    return "Constants", [f".. py:data:: {full}", "", *(f"   {line}" for line in text), ""]


def _comment(module: ModuleType, word: str) -> list[str]:
    """Returns the docstring of a constant, from the file that defines it.

    Files are read, not imported: some need another backend than the installed one.
    """
    inside = [module.__name__]
    if hasattr(module, "__path__"):
        found = pkgutil.walk_packages(module.__path__, f"{module.__name__}.")
        inside += [info.name for info in found if not info.name.endswith("__main__")]
    for name in inside:
        file = importlib.util.find_spec(name).origin  # type: ignore[union-attr]
        comments = ModuleAnalyzer.for_file(file, name).find_attr_docs()  # type: ignore[arg-type]
        if ("", word) in comments:
            return comments["", word]
    return []


def tables(app: object, what: str, name: str, value: object, options: object, lines: list) -> None:
    """Turns Markdown tables of a docstring into tables of reStructuredText."""
    del app, what, name, value, options
    written: list[str] = []
    for line in lines:
        if not line.startswith("|"):
            written.append(line)
        elif re.fullmatch(r"[|\s:-]+", line) and "-" in line:
            continue
        else:
            if not (written and written[-1].startswith("     ")):
                written += ["", ".. list-table::", "   :header-rows: 1", ""]
            first, *rest = [cell.strip() for cell in line.strip("|").split("|")]
            written += [f"   * - {first}", *(f"     - {cell}" for cell in rest)]
    lines[:] = written


def setup(app: object) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for its sources."""
    write_pages(Path(app.srcdir) / "api")  # type: ignore[attr-defined]
    app.connect("autodoc-process-docstring", tables)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
