"""Writes the API reference from every `__all__`: a page per room, and a page per class.

A room's page has one sentence, a table of its names and their first sentences, and its functions.
The functions of `keras_vit` itself have a page each. A name that also stands at the top, such as
`keras_vit.explain`, is described there alone.
"""

import fnmatch
import importlib
import importlib.util
import inspect
import pkgutil
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature

import keras_vit
from keras_vit.config.variants import VARIANTS
from keras_vit.config.weights.lexicon import num_parameters

INSIDE = {"kernels", "fixes"}  # public to the package, not to its users
HELPERS = ("blank_weights", "demand_*", "refuse_*", "reset_output", "norm_and_turn")
"""Names without an underscore that only the package uses."""
SECTIONS = ("Functions", "Exceptions", "Constants")


def rooms() -> list[ModuleType]:
    """Returns `keras_vit` and its modules and packages that declare public names."""
    names = [i.name for i in pkgutil.iter_modules(keras_vit.__path__) if i.name not in INSIDE]
    modules = [importlib.import_module(f"keras_vit.{n}") for n in names if n[0] != "_"]
    return [keras_vit, *(module for module in modules if hasattr(module, "__all__"))]


def write_pages(folder: Path) -> None:
    """Writes the pages of all rooms and their index, and leaves unchanged files alone."""
    pages = {"index": _index()}
    for room in rooms():
        pages |= pages_of(room)
    paths = {folder / f"{name}.rst": text for name, text in pages.items()}
    for old in set(folder.rglob("*.rst")) - paths.keys():
        old.unlink()
    for path, text in paths.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _index() -> str:
    names = [room.__name__ for room in rooms()]
    sentence = "The public names of keras_vit, by module."
    tree = [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names)]
    return "\n".join([*_title("API reference"), sentence, "", *_summary(names), *tree]) + "\n"


def _title(text: str, line: str = "=") -> list[str]:
    return [text, line * len(text), ""]


def _summary(names: list[str]) -> list[str]:
    """Returns a table of names and first sentences."""
    if not names:
        return []
    return [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""]


def pages_of(room: ModuleType) -> dict[str, str]:
    """Returns the page of a room and those of its classes, by their paths without `.rst`."""
    name = room.__name__
    pages: dict[str, str] = {}
    described: dict[str, list[str]] = {section: [] for section in SECTIONS}
    table = []
    for word in room.__all__:
        value = getattr(room, word)
        if inspect.ismodule(value) or word in VARIANTS or _is_helper(word, value):
            continue
        if room is not keras_vit and word in keras_vit.__all__:
            table.append(f"~keras_vit.{word}")
            continue
        full = f"{name}.{word}"
        if inspect.isclass(value) and not (issubclass(value, Exception) and room is not keras_vit):
            members = ", ".join(public_members(value))
            lines = [f".. autoclass:: {full}", f"   :members: {members}" if members else ""]
            pages[f"{name}/{word}"] = "\n".join([*_title(word), *lines]) + "\n"
        elif inspect.isroutine(value) and room is keras_vit:
            pages[f"{name}/{word}"] = "\n".join([*_title(word), f".. autofunction:: {full}"]) + "\n"
        elif inspect.isclass(value):
            described["Exceptions"] += [f".. autoexception:: {full}", "   :no-members:", ""]
        elif inspect.isroutine(value):
            described["Functions"] += [f".. autofunction:: {full}", ""]
        else:
            described["Constants"] += _constant(room, word)
            continue
        table.append(word)
    lines = [*_title(name), f".. py:module:: {name}", "", first_sentence(room), ""]
    lines += [f".. currentmodule:: {name}", "", *_summary(table)]
    if pages:
        lines += [".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""]
    if room is keras_vit:
        lines += [*_title("Builders", "-"), ".. builders::", ""]
    for section, texts in described.items():
        if texts:
            lines += [*_title(section, "-"), *texts]
    return {name: "\n".join(lines) + "\n", **pages}


def first_sentence(room: ModuleType) -> str:
    """Returns the first paragraph of a module's docstring in one line, up to its first period."""
    paragraph = " ".join(str(inspect.getdoc(room)).partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", paragraph, maxsplit=1)[0]


def _is_helper(word: str, value: object) -> bool:
    """Whether a name serves the package alone; Keras has initializers for its users."""
    is_initializer = inspect.isclass(value) and issubclass(value, keras.initializers.Initializer)
    return is_initializer or any(fnmatch.fnmatch(word, pattern) for pattern in HELPERS)


def public_members(kind: type) -> list[str]:
    """Returns the documented methods and properties of a class and of its bases in keras_vit.

    A method of Keras is one of them only where keras_vit documents arguments of its own.
    """
    ours = [base for base in kind.__mro__ if base.__module__.startswith("keras_vit")]
    names = dict.fromkeys(name for base in ours for name in vars(base) if name[0] != "_")
    theirs = {name for base in kind.__mro__ if base not in ours for name in vars(base)}
    members = []
    for name in names:
        member = next(vars(base)[name] for base in ours if name in vars(base))
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        text = getattr(function, "__doc__", None) if callable(function) else None
        if text and not _is_helper(name, None) and (name not in theirs or "Args:" in text):
            members.append(name)
    return members


def _constant(room: ModuleType, word: str) -> list[str]:
    """Returns the lines that describe a constant."""
    text = _comment(room, word)
    if not text:
        raise ExtensionError(f"{room.__name__}.{word}: expected a docstring below it, found none.")
    return [f".. py:data:: {word}", "", *(f"   {line}" for line in text), ""]


def _comment(room: ModuleType, word: str) -> list[str]:
    """Returns the docstring of a constant, from the file that defines it.

    Files are read, not imported: some need another backend than the installed one.
    """
    inside = [room.__name__]
    if hasattr(room, "__path__"):
        found = pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
        inside += [info.name for info in found if not info.name.endswith("__main__")]
    for name in inside:
        file = importlib.util.find_spec(name).origin  # type: ignore[union-attr]
        comments = ModuleAnalyzer.for_file(file, name).find_attr_docs()  # type: ignore[arg-type]
        if ("", word) in comments:
            return comments["", word]
    return []


class Builders(SphinxDirective):
    """The directive `builders`: the papers' models in one table, and the call that they share."""

    def run(self) -> list[nodes.Node]:
        """Returns the nodes; each name of the table is the anchor of its builder."""
        call = type(keras_vit.vit_b16).__call__
        text = GoogleDocstring(str(inspect.getdoc(call)), Config(napoleon_use_rtype=False))
        signature = "vit_b16(image_size=224, num_classes=1000, **arguments)"
        lines = [
            f".. py:function:: {signature}", "", *(f"   {line}" for line in text.lines()), "",
            "All builders have these arguments:", "",
            ".. list-table::", "   :header-rows: 1", "",
            *_row("name", "layers", "hidden size", "MLP", "heads", "patch", "stem", "params, M"),
        ]  # fmt: skip
        for name, variant in VARIANTS.items():
            config = variant.config()
            sizes = (config.num_layers, config.hidden_size, config.mlp_dim, config.num_heads)
            stem = "ResNet" if config.stem.is_resnet else ""
            millions = f"{num_parameters(config) / 1e6:,.1f}"
            lines += _row(f"``{name}``", *sizes, config.patch_size[0], stem, millions)
        container = nodes.container()
        self.state.nested_parse(StringList(lines, source="builders"), 0, container)
        (table,) = container.findall(nodes.tbody)
        for name, row in zip(VARIANTS, table.children, strict=True):
            anchor = f"keras_vit.{name}"
            if name == "vit_b16":  # of the function above
                continue
            next(iter(row.findall(nodes.paragraph)))["ids"].append(anchor)
            self.env.domains["py"].note_object(anchor, "function", anchor, location=container)
        return [container]


def _row(first: str, *cells: object) -> list[str]:
    return [f"   * - {first}", *(f"     - {cell}".rstrip() for cell in cells)]


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
            written += _row(*(cell.strip() for cell in line.strip("|").split("|")))
    lines[:] = written


def signature_of(
    app: object, what: str, name: str, value: Any, options: object, words: str, returns: str
) -> tuple[str, str] | None:
    """Returns the constructor's signature of a class whose `__new__` is Keras's."""
    del app, name, options
    if what != "class" or words != "(*args, **kwargs)":
        return None
    _, *parameters = inspect.signature(value.__init__).parameters.values()
    signature = inspect.Signature(parameters)
    return stringify_signature(signature, show_annotation=False), returns


def setup(app: Any) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for its sources."""
    write_pages(Path(app.srcdir) / "api")
    app.add_directive("builders", Builders)
    app.connect("autodoc-process-docstring", tables)
    app.connect("autodoc-process-signature", signature_of)
    return {"parallel_read_safe": True}
