"""A dialect: the names, axes, JSON and arithmetic of one family of checkpoints, as tables."""

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.dialects.json_fields import (
    ClassNames,
    Facts,
    Json,
    JsonTable,
    merge,
)
from keras_vit.config import Task, ViTConfig
from keras_vit.config.fields import Switch, flatten, nest
from keras_vit.config.rules import pair
from keras_vit.config.stem import ARITHMETIC as STEMS
from keras_vit.config.vit import SWITCHES
from keras_vit.config.weights.conditions import parse, state_others
from keras_vit.config.weights.lexicon import LEXICON, Word
from keras_vit.errors import ConfigError, shown
from keras_vit.images.protocols import ProtocolSpec, complete
from keras_vit.support.text import log


@dataclasses.dataclass(frozen=True)
class StoredAs:
    """The name and axes under which a dialect stores one weight of the lexicon.

    Args:
        name: name template, with the placeholders of the lexicon's path or some of them.
        axes: axes of the array; a placeholder in only one of path and name is an axis of
            the other. None: the axes of the lexicon.
        also: other axes that an array in a file may have.
        when: condition (`keras_vit.config.weights.conditions`), for a weight with several names:
            the models whose files have this name. The first name that applies is written; any name
            is read.
        implies: fields of `ViTConfig`, by path, that follow from this name in a file.
        outside: whether this name lacks the dialect's prefix.
        only: placeholder of the path -> the values that this name serves; a placeholder that
            is absent may have every value.
        parted: axes of the weight where the array parts one of them: `"1 (R S) m"` for positions
            in rows and columns. None: the axes of the lexicon.
    """

    name: str
    axes: str | None = None
    also: tuple[str, ...] = ()
    when: str = ""
    implies: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outside: bool = False
    only: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    parted: str | None = None

    def holds(self, binding: Mapping[str, str]) -> bool:
        """Whether this name serves the weight with these values of the placeholders."""
        return all(binding.get(p, values[0]) in values for p, values in self.only.items())


Names = tuple[StoredAs, ...]
"""All names of one weight; the first whose condition a model meets is written."""

Limits = Mapping[str, str | Callable[[ViTConfig], bool]]
"""Description of models that a library lacks -> the condition on their configuration, in the
language of `keras_vit.config.weights.conditions`; a function where the rule needs arithmetic."""


def find_met(limits: Limits, config: ViTConfig) -> list[str]:
    """Returns the descriptions of the limits that a model meets."""
    return [
        words
        for words, rule in limits.items()
        if (parse(rule).holds(config) if isinstance(rule, str) else rule(config))
    ]


def one_of_several(field: str, *values: Any) -> Limits:
    """Returns the limit of a family that has several values of a field; {} for a single value.

    A single value is one of the `fields` of the dialect, which state their limit themselves.
    """
    return limit_to(field, *values) if len(values) > 1 else {}


def limit_to(field: str, *values: Any) -> Limits:
    """Returns the limit of a family that has these values of a field, by its path, alone.

    A model fits if one of them makes no other model of it: of two words with one meaning for a
    model, its configuration has the plainer one.
    """

    def is_another(config: ViTConfig, value: Any) -> bool:
        try:
            return config.replace(**nest({field: value})) != config
        except ConfigError:
            return True

    words = " or ".join(map(repr, values))
    return {f"{field} other than {words}": lambda c: all(is_another(c, value) for value in values)}


_PARTS_OF_PATHS = {
    "root/": "a ResNet stem",
    "stage": "a ResNet stem",
    "pool/": "attention pooling",
    "pre_logits/": "a representation layer",
}
"""Start of a path -> the part of the paper's models, or of their relatives, that has the weight."""


def name_part(word: Word) -> str:
    """Returns the part of a model that has a weight; "" if a part of every model has it."""
    starts = (part for start, part in _PARTS_OF_PATHS.items() if word.path.startswith(start))
    return word.part or next(starts, "")


ARITHMETIC = {
    "block.activation": "gelu_tanh",
    "block.epsilon": 1e-6,
    "position_resize": "bilinear_align_corners",
    "pool.norm": "before",
    "stem.kind": "resnet",
}
"""Fields, by path, with which a model computes otherwise of the same arrays, and the official
code's values. Of `stem.kind`, the words for a ResNet count."""


@dataclasses.dataclass(frozen=True)
class Fold:
    """The way from the arrays of a library's files to those that the words of a dialect name.

    Args:
        read: takes the arrays of a file and the JSON beside them; returns the arrays that the words
            name.
        write: takes the arrays that the words name and the JSON to write; returns the arrays of
            the library's files, with those that its class has and no weight of the model holds.
    """

    read: Callable[[Reader, Json], Reader] = lambda reader, files: reader
    write: Callable[[Reader, Json], Reader] = lambda reader, files: reader


@dataclasses.dataclass(frozen=True)
class Statement:
    """The contents of the JSON files beside the weights, in the words of keras_vit.

    Args:
        fields: fields of `ViTConfig`, by path.
        class_names: one name per class, the name of a shipped list, or None.
        protocol: preparation of images, or None.
        task: what the outputs say, see `keras_vit.config.Prediction`.
    """

    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    class_names: ClassNames = None
    protocol: ProtocolSpec | None = None
    task: Task = "single_label"


@dataclasses.dataclass(frozen=True)
class Identity:
    """The key of a JSON file that names the family of models.

    Args:
        key: the key in config.json.
        values: the values of this family, the first of which is written; or a function that tells
            whether a value is one.
        words: the values in words, for a message; "" for the first one.
        class_name: the class of transformers that wrote the file, where several classes of the
            library share the family; `architectures` of config.json names it, or is absent.
    """

    key: str
    values: tuple[str, ...] | Callable[[str], bool]
    class_name: str = ""
    words: str = ""

    @property
    def expected(self) -> str:
        """The values in words."""
        return self.words if callable(self.values) else repr(self.values[0])

    def value(self, files: Json) -> str | None:
        """Returns the value of the key, or None if it is absent."""
        content = files.get("config.json")
        value = content.get(self.key) if isinstance(content, Mapping) else None
        return None if value is None else str(value)

    def names_class(self, files: Json) -> bool:
        """Whether the file names the class."""
        content = files.get("config.json")
        classes = content.get("architectures") if isinstance(content, Mapping) else None
        return bool(self.class_name) and classes == [self.class_name]


@dataclasses.dataclass(frozen=True)
class Feature:
    """The output by which `verify` compares an encoder with its library.

    Args:
        class_name: the library's class for the encoder, where files name a larger model's class.
        has_pooler: whether the pooled output, if there is one, is the model's.
        first_patch: number of the token at which the mean begins, for the mean of the patches;
            None for the first token.
        arguments: values that the library's class gets beside those of its files.
    """

    class_name: str = ""
    has_pooler: bool = True
    first_patch: int | None = None
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PreparationWords:
    """A library's JSON for the preparation of images.

    Args:
        default: returns the protocol of files that do not state one.
        read: returns the protocol that the JSON files state, or None.
        write: returns the JSON files for a protocol with all of its parameters.
        expresses: whether the library's JSON can express a protocol with all its parameters.
        image_size: returns (height, width) of the prepared images, for a library whose class
            resizes its positions to them; None where the size of the stored positions counts.
    """

    default: Callable[[ViTConfig], ProtocolSpec] = lambda config: "paper"
    read: Callable[[Json], ProtocolSpec | None] = lambda files: None
    write: Callable[[dict[str, Any], ViTConfig], dict[str, Any]] = lambda protocol, config: {}
    expresses: Callable[[Mapping[str, Any]], bool] = lambda protocol: False
    image_size: Callable[[Json], tuple[int, int] | None] | None = None


def warn_of_protocol(statement: str) -> None:
    """Warns that a file states a preparation of images that keras_vit cannot express.

    Args:
        statement: file, key and value, such as `"config.json with interpolation='box'"`.
    """
    log.warning(
        "%s is no protocol of keras_vit, which prepares images by its default for these files. "
        "Give protocol=... to choose another protocol.",
        statement,
    )


def warn_of_crop(library: str) -> None:
    """Warns that a library begins the same central crop at another pixel."""
    log.warning(
        "%s begins a central crop up to one pixel elsewhere: timm rounds an odd margin to even, "
        "transformers down.",
        library,
    )


def per_channel(value: float | list[float], config: ViTConfig) -> list[float]:
    """Returns a protocol's mean or std as one number per channel."""
    return list(value) if isinstance(value, list) else [value] * config.channels


@dataclasses.dataclass(frozen=True, eq=False)
class Dialect:
    """A family of checkpoints: its names of weights, its JSON, its arithmetic and its limits.

    Args:
        name: name in `checkpoints.save(..., dialect=name)`. A family other than the plain
            ViT is called `"library/family"`.
        library: name of the library.
        words: path template of the lexicon -> the names of the weight.
        container: format of the file: `"npz"`, `"safetensors"`, or `"h5"`, which is only read.
        prefixes: prefixes that all names in a file may have.
        prefix_for: returns the prefix for writing a model.
        ignored: regular expressions of names that are no weights, and the reason for each.
        needs_json: fact that only the JSON beside the weights states; "" if the model can be
            inferred from the arrays, except for the number of heads and `undetermined`.
        undetermined: takes the fields inferred from the arrays, with the prefix of the file under
            `"prefix"`. Returns, for files without JSON, the path of each field of `ViTConfig` that
            a caller must give, and the values of published weights.
        derived: takes a configuration and returns the names of arrays that the library computes
            from others, and the reason for each. They are neither read nor written.
        row_numbers: name of an array -> name of an array of integers `(1, rows)`, by which the
            model reads the rows.
        identity: the JSON key that names the family.
        json: tables of the JSON files beside the weights; with tables, a checkpoint of the
            dialect is a folder.
        class_names: returns the names of the classes, from the JSON files and the number of
            classes, if no row of `json` reads them.
        images: the library's JSON for the preparation of images.
        arithmetic: the library's values of fields in `ARITHMETIC`, for which its weights were
            trained, where they are not the official code's; None if the files state any
            arithmetic.
        gate: activation of the library's gated MLP.
        expresses: fields of `ARITHMETIC` that the library can vary.
        varies: field of `ARITHMETIC` -> the values that the library can give it, for a field that
            the library cannot vary freely.
        fields: fields of `ViTConfig`, by path, that every file of the dialect has; models that
            differ in one of them are refused, unless a row of `json` states the field.
        switches: names of the `SWITCHES` that the library has and that neither a name of a weight
            nor a row of `json` shows (`parts`). Files are read without all other switches, and
            models that use them are refused.
        impossible: models whose files the library would not load, or would read as others.
        only_read: reason why files of the dialect are read and not written, or "".
        metadata: metadata of a safetensors file.
        only_named: whether files are read as this family only where the JSON, or the caller, names
            it: their names are also those of other files.
        fold: the way from the arrays of files to those that `words` name, and back; None where
            they are the same.
        feature: the output that `verify` compares.
    """

    name: str
    library: str
    words: Mapping[str, Names]
    container: str = "safetensors"
    prefixes: tuple[str, ...] = ("",)
    prefix_for: Callable[[ViTConfig], str] = lambda config: ""
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    needs_json: str = ""
    undetermined: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda fields: {}
    derived: Callable[[ViTConfig], Mapping[str, str]] = lambda config: {}
    row_numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    identity: Identity | None = None
    json: tuple[JsonTable, ...] = ()
    class_names: Callable[[Json, int], ClassNames] = lambda files, num_classes: None
    images: PreparationWords = PreparationWords()
    arithmetic: Mapping[str, Any] | None = None
    gate: str = "silu"
    expresses: tuple[str, ...] = ("position_resize",)
    varies: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    switches: tuple[str, ...] = ()
    impossible: Limits = dataclasses.field(default_factory=dict)
    only_read: str = ""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only_named: bool = False
    fold: Fold | None = None
    feature: Feature = Feature()

    @property
    def conventions(self) -> dict[str, Any]:
        """Fields of every file: `fields`, and the plain values of the switches that it lacks."""
        plain = {own.field: own.plain[0] for own in self.lacking if len(own.plain) == 1}
        return {**plain, **self.fields}

    @functools.cached_property
    def refusals(self) -> Limits:
        """Models that no file can hold."""
        return {
            **{
                words: rule
                for field, value in self.fields.items()
                if field not in self.stated_fields
                for words, rule in limit_to(field, value).items()
            },
            **self.impossible,
            **{switch.words: state_others(switch.field, *switch.plain) for switch in self.lacking},
        }

    @functools.cached_property
    def stated_fields(self) -> frozenset[str]:
        """The fields that a row of `json` states, by path."""
        rows = [row for table in self.json for row in table.rows]
        return frozenset(field for row in rows for field in row.fields)

    @functools.cached_property
    def lacking(self) -> tuple[Switch, ...]:
        """The `SWITCHES` that no model in a file of the dialect has."""
        return tuple(switch for name, switch in SWITCHES.items() if name not in self.parts)

    @functools.cached_property
    def parts(self) -> frozenset[str]:
        """Names of the `SWITCHES` that models in files of the dialect can have.

        The switch has a weight with a name, a key of the JSON, a value in every file, or a value
        that the name of a weight implies; `switches` are further ones.
        """
        named = [word for word in LEXICON if self.all_names(word.path)]
        implied = [stored.implies for word in named for stored in self.all_names(word.path)]
        words = {word.part for word in named}
        shown_parts = {
            name
            for name, switch in SWITCHES.items()
            if switch.words in words
            or (switch.field in self.stated_fields and len(switch.plain) == 1)
            or any(
                fields.get(switch.field, switch.plain[0]) not in switch.plain
                for fields in (self.fields, *implied)
            )
        }
        return frozenset(shown_parts.union(self.switches))

    def all_names(self, path: str) -> Names:
        """Returns every name that a weight may have in files of this dialect; () for none."""
        return self.words.get(path, ())

    def names_for(
        self, path: str, config: ViTConfig, binding: Mapping[str, str] = MappingProxyType({})
    ) -> Names:
        """Returns the names of a weight in files of a model; the first is the one to write."""
        names = self.all_names(path)
        return tuple(
            stored for stored in names if parse(stored.when).holds(config) and stored.holds(binding)
        )

    def compute_arithmetic(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the library's arithmetic for a model, by path.

        Args:
            facts: fields of the model, by path; a gated MLP and a ResNet have values of their own.
        """
        own = {**ARITHMETIC, **(self.arithmetic or {})}
        if facts.get("block.gated"):
            own["block.activation"] = self.gate
        if facts.get("stem.kind") not in STEMS:
            del own["stem.kind"]
        return own

    def find_other_arithmetic(self, config: ViTConfig) -> list[str]:
        """Returns a phrase for each field with which the library computes otherwise."""
        facts = flatten(config.to_dict())
        own = {} if self.arithmetic is None else self.compute_arithmetic(facts)
        if config.pool.norm == "none":
            own.pop("pool.norm", None)
        return [
            f"{path}={facts[path]!r}, where it computes {value!r}"
            for path, value in own.items()
            if path not in self.expresses and facts[path] not in (value, *self.varies.get(path, ()))
        ]

    def is_named_by(self, files: Json) -> bool | None:
        """Whether the JSON files name this family; None if they name no family."""
        value = self.identity.value(files) if self.identity else None
        if value is None or self.identity is None:
            return None
        values = self.identity.values
        return values(value) if callable(values) else value in values

    def has_json_of_its_own(self, files: Json) -> bool:
        """Whether a JSON file lies beside the weights that other libraries do not write."""
        return any(table.file in files and table.file != "config.json" for table in self.json)

    def read_json(self, files: Json, arrays: Mapping[str, Any] = MappingProxyType({})) -> Statement:
        """Returns the contents of the JSON files beside the weights.

        Args:
            files: the JSON objects, by file name.
            arrays: fields, by path, that the arrays show; they decide what an object leaves out
                and the name of an architecture only suggests.

        Raises:
            ValueError: a value is invalid; the message names file, key and expected value.
        """
        if self.is_named_by(files) is False and self.identity is not None:
            where, value = self.identity, self.identity.value(files)
            raise ValueError(
                f"config.json has {where.key}={shown(value)}, expected {where.expected}"
            )
        fields: dict[str, Any] = {}
        for table in self.json:
            fields |= table.read_from(files, arrays)
        class_names = fields.pop("class_names", None) or None
        task = fields.pop("task", "single_label")
        if class_names is None and "num_classes" in fields:
            class_names = self.class_names(files, fields["num_classes"])
        size = self.images.image_size and self.images.image_size(files)
        if size is not None and fields.get("image_size") is not None:
            fields |= _resized(size, {**arrays, **fields})
        return Statement(fields, class_names, self.images.read(files), task)

    def write_json(
        self,
        config: ViTConfig,
        class_names: tuple[str, ...] | None = None,
        protocol: ProtocolSpec | None = None,
        task: Task = "single_label",
    ) -> dict[str, Any]:
        """Returns the JSON files to write beside the weights, by name.

        Args:
            config, class_names: configuration of the model and names of its classes.
            protocol: a protocol that the library can express; None for its default.
            task: what the outputs of the model say.
        """
        if not self.json:
            return {}
        facts = Facts(config, class_names, task)
        images = complete(protocol or self.images.default(config))
        parts = [table.write_for(facts) for table in self.json]
        return merge([*parts, self.images.write(images, config)])


def _resized(image_size: tuple[int, int], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a model whose stored positions are resized to images of a size."""
    sides, patches = (pair(name, stored[name]) for name in ("image_size", "patch_size"))
    grid = tuple(side // patch for side, patch in zip(sides, patches, strict=True))
    return {"image_size": image_size, "position_grid": grid}


def collect(package: str, path: Iterable[str], first: tuple[str, ...]) -> tuple[Dialect, ...]:
    """Returns the dialects of a package: those in `FAMILIES` of its modules.

    Args:
        package: name of the package.
        path: its `__path__`.
        first: modules whose dialects come first; the others follow by name.
    """
    found = sorted(module.name for module in pkgutil.iter_modules(path))
    names = (*first, *(name for name in found if name not in first))
    modules = (importlib.import_module(f"{package}.{name}") for name in names)
    return tuple(dialect for module in modules for dialect in getattr(module, "FAMILIES", ()))
