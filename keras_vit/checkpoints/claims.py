"""Looks up the names of a file's arrays in the tables of all formats at once."""

import functools
import re
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

from keras_vit.checkpoints.families.family import Format
from keras_vit.checkpoints.families.names import StoredAs
from keras_vit.config.weights import lexicon, templates

Bindings = dict[str, str]
Formats = tuple[Format, ...]

PATCHES = "patch_embedding/kernel"
"""The weight by which an encoder is found."""


class Claim(NamedTuple):
    """A weight that a name in a file may refer to.

    Args:
        path: path template of the weight in the lexicon.
        stored: name and axes in the format.
        binding: values of the placeholders.
    """

    path: str
    stored: StoredAs
    binding: Bindings


Claims = dict[Format, dict[str, Claim]]
"""Format -> the names of a file that it explains, and the weight of each."""


class _Template(NamedTuple):
    match: Callable[[str], Bindings | None]
    places: list[tuple[Format, str, StoredAs]]


def claim_names(names: Iterable[str], formats: Formats, outside: Container[str] = ()) -> Claims:
    """Returns the names that each format explains, with the first weight that matches each name.

    Args:
        names: names of arrays.
        formats: the formats.
        outside: the names of arrays outside of the prefix.
    """
    index = _index(formats)
    claims: Claims = {format: {} for format in formats}
    for name in names:
        for template in index.get(re.sub(r"\d+", "#", name), ()):
            if (binding := template.match(name)) is not None:
                for format, path, stored in template.places:
                    if stored.outside or name not in outside:
                        claims[format].setdefault(name, Claim(path, stored, binding))
    return claims


def count_explained(claims: Claims) -> int:
    """Returns the most names that a format explains, of formats with patch embedding and blocks."""
    counts = [0]
    for own in claims.values():
        paths = {claim.path for claim in own.values()}
        if PATCHES in paths and any("{l}" in path for path in paths):
            counts.append(len(own))
    return max(counts)


@functools.lru_cache(maxsize=128)
def _index(formats: Formats) -> dict[str, list[_Template]]:
    """Returns templates by their names with `#` in place of every number."""
    templates_of: dict[str, _Template] = {}
    index: dict[str, list[_Template]] = {}
    for format in formats:
        for word in lexicon.LEXICON:
            for stored in format.names.get(word.path, ()):
                own = templates_of.get(stored.name)
                if own is None:
                    own = templates_of[stored.name] = _Template(templates.matcher(stored.name), [])
                    for skeleton in _skeletons(stored.name):
                        index.setdefault(skeleton, []).append(own)
                own.places.append((format, word.path, stored))
    return index


@functools.cache
def _skeletons(template: str) -> tuple[str, ...]:
    """Returns the names that match a template, with `#` in place of every number."""
    names = templates.examples(template)
    return tuple(dict.fromkeys(re.sub(r"\d+", "#", name) for name in names))


def is_outside(name: str, formats: Formats) -> bool:
    """Whether a format has this name, or the weight of its module, outside of the prefix."""
    return any(
        stored.outside
        for own in {name, f"{find_module(name)}.weight"}
        for template in _index(formats).get(re.sub(r"\d+", "#", own), ())
        if template.match(own) is not None
        for _, _, stored in template.places
    )


def find_module(name: str) -> str:
    """Returns the name of an array's module."""
    return re.sub("[./]?[^./]*$", "", name)
