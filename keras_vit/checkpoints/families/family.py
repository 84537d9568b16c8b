"""A family of checkpoints as a table of names, JSON keys, constants and limits."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.families.keys import Codec, Facts, Json, Keys, make_codecs, naming
from keras_vit.checkpoints.families.names import TORCH, Layout, Names, Section
from keras_vit.config import Task, ViTConfig
from keras_vit.config.fields import flatten, nest
from keras_vit.config.weights.conditions import parse
from keras_vit.config.weights.lexicon import LEXICON
from keras_vit.images.protocols import ProtocolSpec
from keras_vit.support.text import log

ARITHMETIC = {
    "block.activation": "gelu_tanh",
    "block.epsilon": 1e-6,
    "position_resize": "bilinear_align_corners",
}
"""Fields that change the outputs without changing arrays, with the values of the official code."""

PLAIN = flatten(ViTConfig((16, 16), 64, 64, num_heads=1, num_layers=1).to_dict())
"""The default of every field, by its path."""

Empty: Mapping[str, Any] = MappingProxyType({})
Rule = str | Callable[[ViTConfig], bool]
"""A condition on a configuration; a function if it needs arithmetic."""


def table() -> Any:
    """Returns a field of a dataclass whose default is an empty table."""
    return dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Images:
    """A library's JSON for the preprocessing of images.

    Args:
        default: returns the protocol of files that do not state one.
        read: returns the protocol of the JSON files, or None.
        write: returns the JSON files for a protocol with every parameter.
        expresses: whether the library's JSON can express a protocol with every parameter.
        image_size: returns (height, width) of the prepared images, for a library whose class
            resizes its positions to them; None if the size of the stored positions is used.
    """

    default: Callable[[ViTConfig], ProtocolSpec] = lambda config: "paper"
    read: Callable[[Json], ProtocolSpec | None] = lambda files: None
    write: Callable[[dict[str, Any], ViTConfig], dict[str, Any]] = lambda protocol, config: {}
    expresses: Callable[[Mapping[str, Any]], bool] = lambda protocol: False
    image_size: Callable[[Json], tuple[int, int] | None] | None = None


class Stated(NamedTuple):
    """The content of a checkpoint's JSON files, read for one library.

    Args:
        words: the words that name a family, such as `model_type`; empty if there are no such words.
        class_name: the library's class that the files name, or "".
        keys: the keys of the network in the files.
        defaults: the default values of keys in the library's class or architecture.
        task: the task of the model, see `keras_vit.config.Prediction`.
        unread: keys of the network with another value than the library's default, whether or
            not a family reads them.
    """

    words: tuple[str, ...] = ()
    class_name: str = ""
    keys: Json = Empty
    defaults: Json = Empty
    task: Task = "single_label"
    unread: Json = Empty


@dataclasses.dataclass(frozen=True, eq=False)
class Library:
    """The common properties of a library's families.

    Args:
        name: name of the library, for messages.
        container: format of the file: `"npz"`, `"safetensors"`, or `"h5"`, which is only read.
        layout: names and axes of a layer's parameters.
        json: names of the JSON files; the first describes the network.
        named_by: the key that names a family, for messages.
        read: returns the content of the JSON files for one of the library's formats.
        write: takes a format, the keys of a network, a configuration, the class names and
            the task, and returns the JSON files; None if the library has only files of arrays.
        class_names: returns the class names, from the JSON files and the number of classes.
        images: the JSON for the preprocessing of images.
        arithmetic: its values of fields in `ARITHMETIC`, if they differ from the official code's.
        ignored: regular expressions of names that are not weights, and the reason for each.
        limits: as in `Family`.
        states_task: whether the JSON states the task.
        only_read: reason why files are read and not written, or "".
        metadata: metadata of a safetensors file.
    """

    name: str
    container: str = "safetensors"
    layout: Layout = TORCH
    json: tuple[str, ...] = ()
    named_by: str = ""
    read: Callable[[Json, "Sequence[Format]"], Stated] = lambda files, formats: Stated()
    write: Callable[..., dict[str, Any]] | None = None
    class_names: Callable[[Json, int], str | tuple[str, ...] | None] = lambda files, num_classes: (
        None
    )
    images: Images = Images()
    arithmetic: Mapping[str, Any] = table()
    ignored: Mapping[str, str] = table()
    limits: Mapping[str, Rule] = table()
    states_task: bool = False
    only_read: str = ""
    metadata: Mapping[str, str] = table()


_PLAIN_TOO = {
    "pool.kind": ("gap", "token_and_distillation"),
    "pool.norm": ("after",),
    "tokens.distillation": (True,),
}
"""Field -> its values in MAE and DeiT, which differ from the paper's model in the last layers."""


@dataclasses.dataclass(frozen=True)
class Open:
    """A field that the arrays do not determine.

    Args:
        words: its values in published files.
        when: condition of the models for which it is open; `"another"` for models that are not the
            paper's network, according to the arrays.
    """

    words: str
    when: str = ""

    def is_asked(self, shows: Facts, facts: Facts) -> bool:
        """Whether the caller must give the field.

        Args:
            shows: the fields that arrays show.
            facts: every known field of the model.
        """
        if not self.when:
            return True
        if self.when != "another":
            config = {**facts, "image_size": None, "position_grid": (1, 1)}
            config.pop("num_positions", None)
            return parse(self.when).holds(ViTConfig.from_dict(nest(config)))
        return any(
            value not in (PLAIN[field], *_PLAIN_TOO.get(field, ()))
            for field, value in shows.items()
            if field.partition(".")[0] in ("block", "pool", "stem", "tokens")
            or field == "patch_bias"
        )


class Output(NamedTuple):
    """The output of a library's class by which `verify` compares an encoder.

    Args:
        class_name: the class for the encoder, if files name the class of a larger model.
        has_pooler: whether to compare the pooled output, if there is one.
        first_patch: index of the first patch token, for the mean of the patches; None for the
            first token.
        arguments: additional arguments of the class.
    """

    class_name: str = ""
    has_pooler: bool = True
    first_patch: int | None = None
    arguments: Mapping[str, Any] = Empty


class Class(NamedTuple):
    """A row of a family: a class of the library, or a layout of its files.

    Args:
        words: words in the JSON that name the family, separated by blanks; the first is written.
        name: name of the format after the library's, `"deit"` in `"transformers/deit"`; a suffix of
            the family's name, if it begins with `_`; "" for the family's name.
        inside: key of the vision tower's object, for a class that nests it.
        head: whether its files have a head: True, False, or None for both.
        prefix: prefix of the names in files that are written.
        fixed: constants of its files, in addition to the family's.
        keys, shapes: keys in addition to the family's.
        names: names that differ from the family's.
        ignored: as in `Library`.
        limits: as in `Family`.
        output: the output that `verify` compares.
        only_read: as in `Library`.
    """

    words: str = ""
    name: str = ""
    inside: str = ""
    head: bool | None = None
    prefix: str = ""
    fixed: Mapping[str, Any] = Empty
    keys: Keys = Empty
    shapes: Keys = Empty
    names: Section = Empty
    ignored: Mapping[str, str] = Empty
    limits: Mapping[str, Rule] = Empty
    output: Output = Output()
    only_read: str = ""


@dataclasses.dataclass(frozen=True)
class Fold:
    """A conversion between the arrays of a library's files and the arrays that the names describe.

    Args:
        read: takes the arrays of a file and the content of its JSON; returns the arrays that the
            names describe.
        write: takes the arrays that the names describe and the JSON files to write; returns the
            arrays of the library's files, including those that only the library's class has.
        unused: takes the arrays that the names describe and the content of the JSON; returns the
            names of arrays that the class has but does not use, and the reason for each.
    """

    read: Callable[[Reader, Json], Reader] = lambda reader, keys: reader
    write: Callable[[Reader, Json], Reader] = lambda reader, files: reader
    unused: Callable[[Reader, Json], dict[str, str]] = lambda reader, keys: {}


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A family of checkpoints: one network in the files of one library, as a table.

    Args:
        name: name in `checkpoints.save(..., family=name)`: the library's, or `"library/family"`.
        library: the library.
        names: layer or weight of the lexicon -> its name in a file, see `families.names`.
        keys: JSON keys that arrays do not show; they take precedence over the arrays.
        shapes: JSON keys that arrays show: written for the library, and compared on reading.
        classes: the library's class -> the differences of its files; the first that can store a
            model is written.
        fixed: constants of every file, including the arithmetic; `position_resize` for a class that
            resizes positions for each image.
        limits: models that the library could not load, or would compute differently, as a phrase
            -> the condition on their configuration (`keras_vit.config.weights.conditions`).
            Models that the files cannot describe are refused without a limit.
        ignored: as in `Library`.
        open: fields that arrays do not show. Files without JSON are read if the caller gives them.
        fold: conversion between the arrays of files and those that `names` describe.
    """

    name: str
    library: Library
    names: Section
    keys: Keys = table()  # noqa: RUF009
    shapes: Keys = table()  # noqa: RUF009
    classes: Mapping[str, Class] = dataclasses.field(default_factory=lambda: {"": Class()})
    fixed: Mapping[str, Any] = table()
    limits: Mapping[str, Rule] = table()
    ignored: Mapping[str, str] = table()
    open: Mapping[str, Open] = table()
    fold: Fold = Fold()


@dataclasses.dataclass(frozen=True, eq=False)
class Format:
    """The format of a file: a family, and one of its classes.

    Args:
        family: the family.
        class_name: name of the class in the library.
        row: the class.
    """

    family: Family
    class_name: str
    row: Class

    @functools.cached_property
    def name(self) -> str:
        """Name of the format, the family's by default."""
        family, own = self.family.name, self.row.name
        is_other = own and not own.startswith("_")
        return f"{family.partition('/')[0]}/{own}" if is_other else family + own

    @property
    def library(self) -> Library:
        """The library of the family."""
        return self.family.library

    @functools.cached_property
    def words(self) -> tuple[str, ...]:
        """The words in the JSON that name the format."""
        return tuple(self.row.words.split())

    @functools.cached_property
    def names(self) -> dict[str, Names]:
        """Path template of the lexicon -> the names of the weight in a file."""
        names = self.library.layout.names(self.family.names, self.row.names)
        is_headless = self.row.head is False
        return {p: own for p, own in names.items() if not (is_headless and p.startswith("head/"))}

    @functools.cached_property
    def ignored(self) -> dict[str, str]:
        """Regular expressions of names that are not weights, and the reason for each."""
        return {**self.library.ignored, **self.family.ignored, **self.row.ignored}

    @functools.cached_property
    def keys(self) -> dict[str, Codec]:
        """The codecs of the keys that arrays do not show."""
        return make_codecs({**self.family.keys, **self.row.keys})

    @functools.cached_property
    def shapes(self) -> dict[str, Codec]:
        """The codecs of the keys that arrays show."""
        return make_codecs({**self.family.shapes, **self.row.shapes})

    @functools.cached_property
    def fixed(self) -> dict[str, Any]:
        """Constants of every file, by path."""
        fixed = {"num_classes": 0} if self.row.head is False else {}
        if not {"class_token/token", "class_tokens/tokens"} & self.names.keys():
            fixed["tokens.class_tokens"] = 0
        return {**fixed, **self.family.fixed, **self.row.fixed}

    @functools.cached_property
    def stated(self) -> frozenset[str]:
        """Fields that JSON keys state, by path."""
        codecs = (*self.keys.values(), *self.shapes.values())
        return frozenset(field for codec in codecs for field in codec.fields.split())

    @functools.cached_property
    def optional(self) -> frozenset[str]:
        """Fields of parts that the paper's model has and some files of the format lack."""
        lost = [w for w in LEXICON if any(own.optional for own in self.names.get(w.path, ()))]
        return self.stated.union(term.field for word in lost for term in word.terms)

    def names_for(self, path: str, config: ViTConfig, binding: Mapping[str, str] = Empty) -> Names:
        """Returns the names of a weight in files of a model; the first is the one to write."""
        return tuple(
            stored
            for stored in self.names.get(path, ())
            if parse(stored.when).holds(config) and stored.holds(binding)
        )

    @functools.cached_property
    def limits(self) -> dict[str, Rule]:
        """The limits of the library, the family and the class."""
        return {**self.library.limits, **self.family.limits, **self.row.limits}

    def find_met(self, config: ViTConfig) -> list[str]:
        """Returns the phrases of the limits that apply to a model."""
        limits = self.limits
        return [words for words, rule in limits.items() if _holds(rule, config)]

    def read_keys(self, stated: Stated, codecs: Mapping[str, Codec]) -> tuple[Facts, Facts]:
        """Returns the fields that the JSON states, and those that follow from default values.

        Raises:
            ValueError: a value is invalid; the message names key, value and expected values.
        """
        content = {**stated.defaults, **stated.keys}
        told: Facts = {}
        assumed: Facts = {}
        for keys, codec in codecs.items():
            names = keys.split()
            if not codec.fields and not stated.keys.keys() & {*names}:
                continue
            if content.keys() & {*names}:
                first = next(name for name in names if name in content)
                with naming(f"{self.library.json[0]} has {first}", content[first]):
                    facts = codec.read(content)
                (told if stated.keys.keys() & {*names} else assumed).update(facts)
        return told, assumed

    def write_json(
        self,
        config: ViTConfig,
        class_names: tuple[str, ...] | None = None,
        task: Task = "single_label",
    ) -> dict[str, Any]:
        """Returns the JSON files that describe a model, without the preprocessing of images.

        Raises:
            KeyError, ValueError: a key cannot express a value.
        """
        if self.library.write is None:
            return {}
        keys: dict[str, Any] = {}
        for codec in (*self.keys.values(), *self.shapes.values()):
            try:
                keys |= codec.write(config)
            except KeyError as error:
                raise ValueError(f"{codec.fields}={error.args[0]!r}") from error
        return self.library.write(self, keys, config, class_names, task)


def _holds(rule: Rule, config: ViTConfig) -> bool:
    return rule(config) if callable(rule) else parse(rule).holds(config)


def warn_of_protocol(statement: str) -> None:
    """Warns that a file states a preprocessing of images that keras_vit does not support.

    Args:
        statement: file, key and value, such as `"config.json with interpolation='box'"`.
    """
    log.warning(
        "%s is a preprocessing that keras_vit does not support. The default for these files is "
        "used; give protocol=... to choose another.",
        statement,
    )


def warn_of_crop(library: str) -> None:
    """Warns that the offset of a library's center crop may differ by a pixel."""
    log.warning(
        "The offset of a center crop in %s may differ by one pixel: timm rounds an odd margin to "
        "even, transformers rounds down.",
        library,
    )


def per_channel(value: float | list[float], config: ViTConfig) -> list[float]:
    """Returns a protocol's mean or std as one value per channel."""
    return list(value) if isinstance(value, list) else [value] * config.channels
