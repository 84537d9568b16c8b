"""Tables of names: a library's names of layers and weights, such as timm's `cls_token`.

A table maps a layer of the lexicon (`block_{l}/mlp_norm`), or one weight (`class_token/token`), to
the name in the library's files. `name : axes` adds the axes of an array, or of a layer's output; an
object has the fields of `StoredAs`. A list gives several names: the first whose condition `when` a
model meets is written, and all are read. None in a list means that some files lack the weight,
though the paper's model has it; None alone removes a name.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from keras_vit.config.weights import templates
from keras_vit.config.weights.lexicon import LEXICON, Word

Section = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class StoredAs:
    """The name and axes under which a family stores a weight of the lexicon.

    Args:
        name: name template, with some or all placeholders of the lexicon's path.
        axes: axes of the array; a placeholder in only one of path and name is an axis of
            the other. None for the axes of the lexicon.
        when: condition (`keras_vit.config.weights.conditions`) of the models whose files have this
            name, for a weight with several names. The first name that applies is written; all are
            read.
        implies: fields of `ViTConfig`, by path, that follow from this name in a file.
        outside: whether this name is outside of the prefix.
        only: placeholder of the path -> the values for which this name is used; every value if the
            placeholder is absent.
        parted: axes of the weight, if the array splits one of them: `"1 (R S) m"` for positions
            in rows and columns. None for the axes of the lexicon.
        optional: whether some files lack the weight, though the paper's model has it.
    """

    name: str
    axes: str | None = None
    when: str = ""
    implies: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outside: bool = False
    only: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    parted: str | None = None
    optional: bool = False

    def holds(self, binding: Mapping[str, str]) -> bool:
        """Whether this name is used for the weight with these values of the placeholders."""
        return all(binding.get(p, values[0]) in values for p, values in self.only.items())


Names = tuple[StoredAs, ...]
"""Every name of a weight; the first whose condition a model meets is written."""

_WORDS_AT: dict[str, list[Word]] = {word.path: [word] for word in LEXICON}
"""Path of a weight, or of a layer -> the words of the lexicon there."""
for _word in LEXICON:
    _WORDS_AT.setdefault(_word.path.rpartition("/")[0], []).append(_word)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A framework's names and axes for the parameters of a layer.

    Args:
        parameters: parameter in the lexicon -> the framework's name with its separator, such as
            `"gamma": "/scale"`.
        axes: axes in the lexicon -> axes in the framework, if they differ.
    """

    parameters: Mapping[str, str]
    axes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def names(self, *sections: Section) -> dict[str, Names]:
        """Returns the names of each weight; a later table replaces those of an earlier one.

        Args:
            *sections: tables of names.

        Raises:
            LookupError: a table has a key that is neither a layer nor a weight of the lexicon.
        """
        names: dict[str, Names] = {}
        for section in sections:
            for place, entry in section.items():
                entries = entry if isinstance(entry, list) else [entry] if entry else []
                own = dict(self._names_at(place, [own for own in entries if own is not None]))
                if None in entries:
                    mark = functools.partial(dataclasses.replace, optional=True)
                    own = {path: tuple(map(mark, stored)) for path, stored in own.items()}
                if not own:
                    raise LookupError(f"{place} is neither a layer nor a weight of the lexicon")
                names |= own
        return {path: own for path, own in names.items() if own}

    def _names_at(self, place: str, entries: list[Any]) -> Iterator[tuple[str, Names]]:
        """Yields path and names of a weight, or of each weight of a layer."""
        for word in _WORDS_AT.get(place, ()):
            names = tuple(_stored(word, entry) for entry in entries)
            if place != word.path:
                suffix = self.parameters[word.path.rpartition("/")[2]]
                names = tuple(
                    dataclasses.replace(
                        stored, name=stored.name + suffix, axes=self._find_axes(word, stored.axes)
                    )
                    for stored in names
                )
            yield word.path, tuple(_stack(word, stored) for stored in names)

    def _find_axes(self, word: Word, of_output: str | None) -> str | None:
        """Returns the axes of a parameter; a kernel has the layer's input axis first or last.

        Args:
            word: the parameter.
            of_output: axes of the layer's output, which are those of its bias; None for the
                layout's default.
        """
        if of_output is None or not word.path.endswith("/kernel"):
            return of_output or self.axes.get(word.axes)
        of_input = word.axes.partition(" ")[0]
        is_last = self.axes.get("m f") == "f m"
        return f"{of_output} {of_input}" if is_last else f"{of_input} {of_output}"


def _stored(word: Word, entry: str | Section) -> StoredAs:
    """Returns the name and axes of a weight from an entry of a table."""
    fields = {"name": entry} if isinstance(entry, str) else dict(entry)
    name, _, axes = fields.pop("name").partition(" : ")
    return StoredAs(name, **{"axes": axes or None, **fields})


def _stack(word: Word, stored: StoredAs) -> StoredAs:
    """Adds a first axis for the blocks, if one array contains the weights of all blocks.

    Raises:
        LookupError: the name is one array of several weights, and its axes do not state how.
    """
    absent = {*templates.placeholders(word.path)} - {*templates.placeholders(stored.name)}
    own = re.findall(r"\w+", stored.axes or "")
    if lacking := sorted(absent - {*own, "l"}):
        raise LookupError(
            f"{stored.name!r} is one array of several {word.path}: give its axes after a colon, "
            f"with {', '.join(lacking)}, such as ' : (qkv h d)'"
        )
    if "l" not in absent or "l" in own:
        return stored
    return dataclasses.replace(stored, axes=f"l {stored.axes or word.axes}")


BLOCKS: Section = {
    "patch_embedding": "patch_embed.proj",
    "class_token/token": "cls_token",
    "position_embedding/embedding": "pos_embed",
    "block_{l}/attention_norm": "blocks.{l}.norm1",
    "block_{l}/attention/{qkv}": "blocks.{l}.attn.qkv : (qkv h d)",
    "block_{l}/attention/out": "blocks.{l}.attn.proj",
    "block_{l}/attention_scale/gamma": "blocks.{l}.ls1.gamma",
    "block_{l}/mlp_norm": "blocks.{l}.norm2",
    "block_{l}/mlp/dense_0": "blocks.{l}.mlp.fc1",
    "block_{l}/mlp/dense_1": "blocks.{l}.mlp.fc2",
    "block_{l}/mlp_scale/gamma": "blocks.{l}.ls2.gamma",
    "encoder_norm": "norm",
    "head": "head",
}
"""The names of timm's `VisionTransformer`, and of Facebook's, which is derived from it."""


def norms_of_qk(name: str, kind: str) -> Section:
    """Returns the names of the norms of queries and keys; `{q}` in `name` is `q` or `k`."""
    return {
        f"block_{{l}}/attention/{part}_norm": {
            "name": name.replace("{q}", part[0]),
            "implies": {"block.qk_norm": kind},
        }
        for part in ("query", "key")
    }


def last_norms(of_mean: str, usual: str) -> list[Section]:
    """Returns the names of the last norm: after the mean of the patches, and otherwise."""
    implied = {"pool.kind": "gap", "pool.norm": "after"}
    return [
        {"name": of_mean, "when": "pool.norm=after", "implies": implied},
        {"name": usual, "when": "pool.norm!=after", "implies": {"pool.norm": "before"}},
    ]


FLAX = Layout({"kernel": "/kernel", "gamma": "/scale", "beta": "/bias", "bias": "/bias"})
KERAS = Layout({"kernel": "/vars/0", "gamma": "/vars/0", "beta": "/vars/1", "bias": "/vars/1"})
"""Keras numbers the arrays of a layer in the order of their creation, trainable arrays first."""
TORCH = Layout(
    {
        **{"kernel": ".weight", "gamma": ".weight", "beta": ".bias", "bias": ".bias"},
        **{"moving_mean": ".running_mean", "moving_variance": ".running_var"},
    },
    {
        "p q c m": "m c p q",  # convolutions
        "y x i w": "w i y x",
        "y x a o": "o a y x",
        "y x a w": "w a y x",
        "y x w v": "v w y x",
        "y x o a": "a o y x",  # transposed convolutions
        "a o": "o a",
        "y x w o": "o w y x",
        "m h d": "(h d) m",  # matrices
        "h d": "(h d)",
        "h d m": "m (h d)",
        "m f": "f m",
        "f m": "m f",
        "m r": "r m",
        "e k": "k e",
    },
)
