"""A dialect: the names, axes, JSON and arithmetic of one family of checkpoints, as tables."""

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.json_fields import (
    Facts,
    Json,
    JsonTable,
    Labels,
    always,
    merged,
)
from keras_vit.checkpoints.dialects.switches import DEFAULTS, SWITCHES
from keras_vit.checkpoints.lexicon import LEXICON
from keras_vit.config import Numerics, ViTConfig
from keras_vit.errors import shown
from keras_vit.preparation.protocols import ProtocolSpec, complete

log = logging.getLogger("keras_vit")


@dataclasses.dataclass(frozen=True)
class StoredAs:
    """The name and axes under which a dialect stores one weight of the lexicon.

    Args:
        name: name template, with the placeholders of the lexicon's path or some of them.
        axes: its axes; a placeholder that stands on only one side is an axis on
            the other. None: the axes of the lexicon.
        also: other axes that files of this dialect are read with.
        when: the models that have this name, where a weight has several names. Of those
            that hold, the first is written; a file may have any of them.
        implies: fields of `ViTConfig` that a file with this name has; those of
            `Numerics` under `"numerics"`.
        outside: whether the dialect's prefix does not stand in front of this name.
        only: by placeholder of the path, the values that this name holds; a placeholder that
            is absent may have every value.
    """

    name: str
    axes: str | None = None
    also: tuple[str, ...] = ()
    when: Callable[[ViTConfig], bool] = always
    implies: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outside: bool = False
    only: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def holds(self, binding: Mapping[str, str]) -> bool:
        """Whether this is a name of the weight with these values of the placeholders."""
        return all(binding.get(p, values[0]) in values for p, values in self.only.items())


@dataclasses.dataclass(frozen=True)
class Unsupported:
    """Why a dialect has no name for a weight of the lexicon."""

    reason: str


Names = StoredAs | Unsupported | tuple[StoredAs, ...]


def modules(names: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, StoredAs]:
    """Returns the names of layers whose parameters a library names alike everywhere.

    Args:
        names: from the layer (a path of the lexicon without its last part) to the library's.
        parameters: from the last part to the library's, separator included:
            `"gamma": "/scale"`.
    """
    return {
        word.path: StoredAs(names[layer] + parameters[parameter])
        for word in LEXICON
        for layer, _, parameter in [word.path.rpartition("/")]
        if layer in names
    }


def unsupported(reasons: Mapping[str, str], words: Mapping[str, Names]) -> dict[str, Names]:
    """Returns the names, and a reason for every weight of the lexicon that has none.

    Args:
        reasons: from the start of a path to the reason; `""` is the start of every path.
        words: the names that there are.

    A part that the paper's model has not needs no reason of its own.

    Raises:
        LookupError: another weight has neither, or a name is of no weight of the lexicon.
    """
    complete_words = dict(words)
    if strange := words.keys() - {word.path for word in LEXICON}:
        raise LookupError(f"{min(strange)} is no weight of the lexicon")
    for word in LEXICON:
        if word.path not in words:
            starts = [start for start in reasons if word.path.startswith(start)]
            if not starts and word.part:
                complete_words[word.path] = Unsupported(f"none of its models has {word.part}")
                continue
            if not starts:
                raise LookupError(f"{word.path} has neither a name nor a reason")
            complete_words[word.path] = Unsupported(reasons[max(starts, key=len)])
    return complete_words


Limit = tuple[Callable[[ViTConfig], bool], str]


@dataclasses.dataclass(frozen=True)
class Statement:
    """What the JSON files beside the weights state.

    Args:
        fields: of `ViTConfig`; those of `Numerics` under `"numerics"`.
        labels: a name per class, the word of a shipped list, or None.
        protocol: how images are prepared, or None.
    """

    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: Labels = None
    protocol: ProtocolSpec | None = None


@dataclasses.dataclass(frozen=True)
class Identity:
    """The key of a JSON file that says which family of models the weights are of.

    Args:
        file, key: where it stands.
        pattern: regular expression of the values of this family.
        expected: the values in words, for a refusal.
    """

    file: str
    key: str
    pattern: str
    expected: str

    def value(self, files: Json) -> str | None:
        """Returns what the files say, or None where they say nothing."""
        content = files.get(self.file)
        value = content.get(self.key) if isinstance(content, Mapping) else None
        return None if value is None else str(value)


@dataclasses.dataclass(frozen=True)
class PreparationWords:
    """A library's words for how images are prepared.

    Args:
        default: the protocol of files that do not state one.
        read: the protocol that the JSON files state, or None.
        write: the JSON files that state a protocol, given with every parameter.
        expresses: whether the library has words for a protocol, given with every parameter.
    """

    default: Callable[[ViTConfig], ProtocolSpec] = lambda config: "paper"
    read: Callable[[Json], ProtocolSpec | None] = lambda files: None
    write: Callable[[dict[str, Any], ViTConfig], dict[str, Any]] = lambda protocol, config: {}
    expresses: Callable[[Mapping[str, Any]], bool] = lambda protocol: False


def not_a_protocol(what: str) -> None:
    """Says that a file states a preparation of images that no protocol of keras_vit has."""
    log.warning(
        "%s is no protocol of keras_vit: images are prepared by its default for these files. "
        "Give protocol=... to choose.",
        what,
    )


def same_everywhere(value: float | list[float], config: ViTConfig) -> list[float]:
    """Returns a protocol's mean or std as a number for each channel."""
    return list(value) if isinstance(value, list) else [value] * config.channels


@dataclasses.dataclass(frozen=True, eq=False)
class Dialect:
    """A family of checkpoints: its name for each weight, and what it takes for granted.

    Args:
        name: as in `checkpoints.save(..., dialect=name)`; of several families of one
            library `"library/family"`, but for the plain ViT.
        library: whose files these are.
        container: `"npz"`, `"safetensors"` or `"h5"`.
        words: from the lexicon's path template to `StoredAs`, several of them with
            conditions, or `Unsupported`, for every word of the lexicon.
        prefixes: what may stand in front of every name.
        prefix_for: the prefix to write a model with.
        ignored: regular expressions of names that are no weights, with the reason.
        derived: names of arrays that the library computes from others, with the reason; which
            they are depends on the model. They are neither read nor written.
        row_numbers: from the name of an array to that of integers `(1, rows)`: the model reads
            the rows by these numbers.
        identity: where JSON says that weights are of this family.
        json: tables of the JSON files beside the weights; if there are any, a checkpoint
            of the dialect is a folder.
        labels: the names of the classes, from the JSON files and the number of classes,
            where they do not stand in a row.
        notes: further JSON files that the library wants, the same for every model.
        images: the library's words for how images are prepared.
        numerics: the arithmetic of the library, which its weights were made for; None
            if it expresses any.
        expresses: fields of `Numerics` that the library can vary.
        fields: fields of `ViTConfig` that every file of the dialect has.
        switches: names of `SWITCHES` that the library has. Files are read without all
            others, and models that use one of these are refused.
        impossible: models whose files the library would not load: a condition on the
            configuration, and the words for it.
        limits: models that the library loads and computes otherwise, likewise.
        only_read: why no file of the dialect is written, or "".
        crops: whether the library drops pixels that fill no patch.
        metadata: of a safetensors file.
    """

    name: str
    library: str
    container: str
    words: Mapping[str, Names]
    prefixes: tuple[str, ...] = ("",)
    prefix_for: Callable[[ViTConfig], str] = lambda config: ""
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    derived: Callable[[ViTConfig], Mapping[str, str]] = lambda config: {}
    row_numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    identity: Identity | None = None
    json: tuple[JsonTable, ...] = ()
    labels: Callable[[Json, int], Labels] = lambda files, num_classes: None
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    images: PreparationWords = PreparationWords()
    numerics: Numerics | None = None
    expresses: tuple[str, ...] = ("position_resize",)
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    switches: tuple[str, ...] = ()
    impossible: tuple[Limit, ...] = ()
    limits: tuple[Limit, ...] = ()
    only_read: str = ""
    crops: bool = True
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def conventions(self) -> dict[str, Any]:
        """Fields of `ViTConfig` that every file has: `fields`, and switches that it lacks."""
        defaults = {name: DEFAULTS[name] for name in self._lacking if name in DEFAULTS}
        return {**defaults, **self.fields}

    @property
    def refusals(self) -> tuple[Limit, ...]:
        """Models that no file can hold: the `impossible` ones, and those of a lacking switch."""
        lacking = (SWITCHES[name] for name in self._lacking)
        unwritten = ((always, self.only_read),) if self.only_read else ()
        switches = ((switch.is_used, switch.words) for switch in lacking)
        return (*unwritten, *self.impossible, *switches)

    @property
    def _lacking(self) -> list[str]:
        return [name for name in SWITCHES if name not in self.switches]

    def names_for(
        self, path: str, config: ViTConfig, binding: Mapping[str, str] = MappingProxyType({})
    ) -> tuple[StoredAs, ...] | Unsupported:
        """Returns the names of a weight in files of a model; the first is the one to write."""
        answer = self.words[path]
        if isinstance(answer, Unsupported):
            return answer
        names = self.all_names(path)
        return tuple(stored for stored in names if stored.when(config) and stored.holds(binding))

    def all_names(self, path: str) -> tuple[StoredAs, ...]:
        """Returns every name that a weight may have in files of this dialect."""
        answer = self.words[path]
        if isinstance(answer, Unsupported):
            return ()
        return answer if isinstance(answer, tuple) else (answer,)

    def is_named_by(self, files: Json) -> bool | None:
        """Whether the JSON files name this family; None where they name none."""
        value = self.identity.value(files) if self.identity else None
        if value is None or self.identity is None:
            return None
        return re.fullmatch(self.identity.pattern, value) is not None

    def read_json(self, files: Json) -> Statement:
        """Returns what the JSON files beside the weights state.

        Raises:
            ValueError: names the file and the key, what was found and what is expected.
        """
        if self.is_named_by(files) is False and self.identity is not None:
            where, value = self.identity, self.identity.value(files)
            raise ValueError(
                f"{where.file} has {where.key}={shown(value)}, expected {where.expected}"
            )
        flat: dict[str, Any] = {}
        for table in self.json:
            flat |= table.stated(files)
        labels = flat.pop("labels", None) or None
        fields = {name: value for name, value in flat.items() if "." not in name}
        numerics = {k.removeprefix("numerics."): v for k, v in flat.items() if "." in k}
        if numerics:
            fields["numerics"] = numerics
        if labels is None and "num_classes" in fields:
            labels = self.labels(files, fields["num_classes"])
        return Statement(fields, labels, self.images.read(files))

    def write_json(
        self,
        config: ViTConfig,
        labels: tuple[str, ...] | None = None,
        protocol: ProtocolSpec | None = None,
    ) -> dict[str, Any]:
        """Returns the JSON files to write beside the weights, by name.

        Args:
            config, labels: of the model.
            protocol: one that the library has words for; None for its default.
        """
        if not self.json:
            return {}
        facts = Facts(config, labels)
        images = complete(protocol or self.images.default(config))
        parts = [table.written(facts) for table in self.json]
        return merged([*parts, self.images.write(images, config), self.notes])
