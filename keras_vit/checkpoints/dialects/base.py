"""What a dialect declares."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from keras_vit.checkpoints.lexicon import LEXICON
from keras_vit.config import Numerics, ViTConfig
from keras_vit.preparation.protocols import ProtocolSpec

log = logging.getLogger("keras_vit")


def _always(config: ViTConfig) -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class Theirs:
    """How a dialect writes one of our words.

    Args:
        name: name template, with the placeholders of our path or some of them.
        axes: its axes; a placeholder that stands on only one side is an axis on
            the other. None: the same axes as ours.
        also: other axes that files of this dialect are read with.
        when: which models have this name, where a word has several.
        implies: fields of `ViTConfig` that a file with this name has; those of
            `Numerics` under `"numerics"`.
        outside: whether the dialect's prefix does not stand in front of this name.
    """

    name: str
    axes: str | None = None
    also: tuple[str, ...] = ()
    when: Callable[[ViTConfig], bool] = _always
    implies: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outside: bool = False


@dataclasses.dataclass(frozen=True)
class Cannot:
    """Why a dialect has no name for one of our words."""

    reason: str


def modules(names: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, Theirs]:
    """Returns the words of layers whose parameters a library names alike everywhere.

    Args:
        names: our layer (the path without its last part) to theirs.
        parameters: our last part to theirs, separator included: `"gamma": "/scale"`.
    """
    return {
        word.path: Theirs(names[layer] + parameters[parameter])
        for word in LEXICON
        for layer, _, parameter in [word.path.rpartition("/")]
        if layer in names
    }


Limit = tuple[Callable[[ViTConfig], bool], str]
Words = Theirs | Cannot | tuple[Theirs, ...]


@dataclasses.dataclass(frozen=True)
class Stated:
    """What the files beside the weights state.

    Args:
        fields: of `ViTConfig`; those of `Numerics` under `"numerics"`.
        labels: a name per class, the word of a shipped list, or None.
        protocol: how images are prepared, or None.
    """

    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: str | tuple[str, ...] | None = None
    protocol: ProtocolSpec | None = None


def _states_nothing(files: Mapping[str, Any]) -> Stated:
    return Stated()


def _writes_nothing(
    config: ViTConfig, labels: tuple[str, ...] | None = None, protocol: ProtocolSpec | None = None
) -> dict[str, Any]:
    return {}


def not_ours(what: str) -> None:
    """Says that a file states a preparation of images that no protocol of ours has."""
    log.warning(
        "%s is no protocol of keras_vit: images are prepared by its default for these files. "
        "Give protocol=... to choose.",
        what,
    )


@dataclasses.dataclass(frozen=True)
class Dialect:
    """A family of checkpoints: its word for each of ours, and what it takes for granted.

    Args:
        name: as in `checkpoints.save(..., dialect=name)`.
        library: whose files these are.
        container: `"npz"`, `"safetensors"` or `"h5"`.
        words: our path template to `Theirs`, several of them with conditions, or
            `Cannot`, for every word of the lexicon.
        prefixes: what may stand in front of every name.
        prefix_for: the prefix to write a model with.
        ignored: regular expressions of names that are no weights, with the reason.
        numerics: the arithmetic of the library, which its weights were made for; None
            if it expresses any.
        expresses: fields of `Numerics` that the library can vary.
        fields: fields of `ViTConfig` that every file of the dialect has.
        impossible: models whose files the library would not load: a condition on the
            configuration, and the words for it.
        limits: models that the library loads and computes otherwise, likewise.
        crops: whether the library drops pixels that fill no patch.
        states: reads the JSON files beside the weights, `{file name: content}`.
        writes: the JSON files to write beside the weights, given labels and a protocol
            that the library has words for; if there are any, a checkpoint of the
            dialect is a folder.
        protocol: how images are prepared for files that do not state it, and where the
            library has no words for a model's own.
        prepares: whether the library has words for a protocol, given with every
            parameter.
        metadata: of a safetensors file.
    """

    name: str
    library: str
    container: str
    words: Mapping[str, Words]
    prefixes: tuple[str, ...] = ("",)
    prefix_for: Callable[[ViTConfig], str] = lambda config: ""
    ignored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    numerics: Numerics | None = None
    expresses: tuple[str, ...] = ("position_resize",)
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    impossible: tuple[Limit, ...] = ()
    limits: tuple[Limit, ...] = ()
    crops: bool = True
    states: Callable[[Mapping[str, Any]], Stated] = _states_nothing
    writes: Callable[..., dict[str, Any]] = _writes_nothing
    protocol: Callable[[ViTConfig], ProtocolSpec] = lambda config: "paper"
    prepares: Callable[[Mapping[str, Any]], bool] = lambda protocol: False
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def word_for(self, path: str, config: ViTConfig) -> Theirs | Cannot:
        """Returns the answer to a word of the lexicon that holds for a model."""
        answer = self.words[path]
        if isinstance(answer, tuple):
            return next(theirs for theirs in answer if theirs.when(config))
        return answer

    def all_words(self, path: str) -> tuple[Theirs, ...]:
        """Returns every name that a word may have."""
        answer = self.words[path]
        if isinstance(answer, Cannot):
            return ()
        return answer if isinstance(answer, tuple) else (answer,)
