"""Fills and matches templates of paths and names, such as `block_{l}/mlp`."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping

from keras_vit.config import ViTConfig

_NUMBER = r"0|[1-9]\d{0,8}"


@dataclasses.dataclass(frozen=True)
class Placeholder:
    """A placeholder of templates, such as `{l}`, and its values.

    Args:
        pattern: regular expression of the values.
        values: function that returns the values in a model, in order; empty if they depend on
            another placeholder.
    """

    pattern: str
    values: Callable[[ViTConfig], list[str]] = lambda config: []


PLACEHOLDERS = {
    "l": Placeholder(_NUMBER, lambda config: [str(i) for i in range(config.num_layers)]),
    "s": Placeholder(_NUMBER),
    "u": Placeholder(_NUMBER),
    "v": Placeholder("1|2"),
    "qkv": Placeholder("query|key|value", lambda config: ["query", "key", "value"]),
    "gate": Placeholder("gate|value", lambda config: ["gate", "value"]),
    "head": Placeholder("class|distillation", lambda config: ["class", "distillation"]),
}


@dataclasses.dataclass(frozen=True)
class Spelling:
    """Another spelling of the values of a placeholder in the names of a file.

    Args:
        placeholder: name of the placeholder.
        pattern: regular expression of the written values.
        write, read: functions from the lexicon's value to the text in the file's name, and back.
    """

    placeholder: str
    pattern: str
    write: Callable[[str], str]
    read: Callable[[str], str]


def _by_words(placeholder: str, words: Mapping[str, str]) -> Spelling:
    """Returns the spelling of a placeholder from a table: value -> word in the file."""
    values = {text: value for value, text in words.items()}
    return Spelling(placeholder, "|".join(values), words.__getitem__, values.__getitem__)


SPELLINGS = {
    "s-1": Spelling("s", _NUMBER, lambda v: str(int(v) - 1), lambda t: str(int(t) + 1)),
    "u-1": Spelling("u", _NUMBER, lambda v: str(int(v) - 1), lambda t: str(int(t) + 1)),
    "_l": Spelling(
        "l", r"(?:_[1-9]\d{0,8})?", lambda v: "" if v == "0" else f"_{v}", lambda t: t[1:] or "0"
    ),
    "q": _by_words("qkv", {"query": "q", "key": "k", "value": "v"}),
    "g": _by_words("gate", {"gate": "g", "value": "x"}),
    "cls": _by_words("head", {"class": "cls", "distillation": "distillation"}),
    "_dist": _by_words("head", {"class": "", "distillation": "_dist"}),
    "up": _by_words("gate", {"gate": "gate", "value": "up"}),
}
"""Spellings by name: stages and units counted from 0; Keras's numbers after a name, which the first
layer of a kind lacks; letters; the names of the two heads; and of gate and value in an MLP."""


def _spelling(name: str) -> Spelling:
    """Returns the spelling with this name, or a placeholder's own spelling."""
    return SPELLINGS.get(name) or Spelling(name, PLACEHOLDERS[name].pattern, str, str)


def placeholders(template: str) -> list[str]:
    """Returns the placeholders of a template, in order, whatever their spelling."""
    return [_spelling(name).placeholder for name in re.findall(r"{([\w-]+)}", template)]


def fill(template: str, binding: Mapping[str, str]) -> str:
    """Returns the template with the values of the binding; other placeholders remain."""

    def value(match: re.Match[str]) -> str:
        spelling = _spelling(match[1])
        own = binding.get(spelling.placeholder)
        return match[0] if own is None else spelling.write(own)

    return re.sub(r"{([\w-]+)}", value, template)


@functools.cache
def matcher(template: str) -> Callable[[str], dict[str, str] | None]:
    """Returns a function that reads the placeholders' values from a name, or returns None."""
    parts = re.split(r"{([\w-]+)}", template)
    spellings = [_spelling(name) for name in parts[1::2]]
    expression = re.escape(parts[0])
    for spelling, literal in zip(spellings, parts[2::2], strict=True):
        expression += f"({spelling.pattern}){re.escape(literal)}"
    compiled = re.compile(expression)

    def match(name: str) -> dict[str, str] | None:
        values = compiled.fullmatch(name)
        if values is None:
            return None
        pairs = zip(spellings, values.groups(), strict=True)
        return {spelling.placeholder: spelling.read(text) for spelling, text in pairs}

    return match


def examples(template: str) -> Iterator[str]:
    """Yields names that match a template, at least one for every form.

    The forms are the words of a choice, and a name with or without a number at its end.
    """
    values = {"l": ("0", "1"), "s": ("1",), "u": ("1",)}
    names = list(dict.fromkeys(placeholders(template)))
    choices = [values.get(name) or PLACEHOLDERS[name].pattern.split("|") for name in names]
    for chosen in itertools.product(*choices):
        yield fill(template, dict(zip(names, chosen, strict=True)))
