"""Finds the format of an encoder from the names of its arrays and the JSON."""

import collections
import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_vit.checkpoints import inference
from keras_vit.checkpoints.claims import (
    PATCHES,
    Bindings,
    Claim,
    Formats,
    claim_names,
    find_module,
)
from keras_vit.checkpoints.containers import Reader, computed, renamed
from keras_vit.checkpoints.families.family import Format, Library, Stated
from keras_vit.checkpoints.moves import Shape
from keras_vit.checkpoints.prefix import Encoder
from keras_vit.config.weights import axes, lexicon
from keras_vit.config.weights.conditions import Term
from keras_vit.errors import CheckpointError, listed, shown

_LOCAL = {"w": "root", "f": "pool"}
"""Axis -> the part of the model in which it may have another size than elsewhere."""
_AXES = {word.path: word.axes for word in lexicon.LEXICON}
_CORE = (
    PATCHES,
    "position_embedding/embedding",
    "block_{l}/attention/{qkv}/kernel",
    "block_{l}/mlp/dense_0/kernel",
)
"""The weights that a message names if a file lacks them."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What names and shapes imply if the file has this format.

    Args:
        format: the format.
        fields: fields by path, with `num_positions` (`inference.fields_from`).
        present: the fields that only the presence of weights shows, with the terms of the weights.
        bindings: path template of the lexicon -> the values of its placeholders.
        explained: names of weights.
        ignored: names of arrays that are not weights, and the reason for each.
    """

    format: Format
    fields: dict[str, Any]
    present: dict[str, list[Term]]
    bindings: dict[str, list[Bindings]]
    explained: frozenset[str]
    ignored: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Match:
    """An encoder in a file, and its format.

    Args:
        evidence: what its names and shapes imply.
        stated: what the JSON states, read for the format's library.
        reader: the arrays under the names of the format.
        encoder: the arrays as they are in the file.
    """

    evidence: Evidence
    stated: Stated
    reader: Reader
    encoder: Encoder

    @property
    def format(self) -> Format:
        """The format."""
        return self.evidence.format

    def name_in_file(self, name: str) -> str:
        """Returns the name that an array of the reader has, or would have, in the file."""
        return self.encoder.names.get(name, self.encoder.prefix + name)


def find_match(
    encoder: Encoder, stated: Mapping[Library, Stated], formats: Sequence[Format]
) -> Match:
    """Finds the format that fits the arrays of an encoder.

    The formats are tried in three groups: the class that the JSON names, the family that it names,
    and the formats of libraries that it does not mention. The last group is for a folder whose JSON
    belongs to another file of the same repository.

    Args:
        encoder: the arrays.
        stated: what the JSON states, by library.
        formats: the formats that the file may have.

    Raises:
        CheckpointError: the arrays do not fit any format.
    """
    shapes, claims = encoder.reader.shapes, encoder.claims
    named = [f for f in formats if any(word in f.words for word in stated[f.library].words)]
    exact = [f for f in named if f.class_name == stated[f.library].class_name]
    silent = [f for f in formats if not stated[f.library].words]
    if not named and len(silent) < len(formats):  # a family that keras_vit does not read
        silent = [f for f in silent if stated[f.library].keys]
    for group, is_named in ((exact, True), (named, True), (silent, False)):
        most = max((len(claims[f]) for f in group), default=0)
        tied = [f for f in group if claims[f] and (is_named or 2 * len(claims[f]) > most)]
        found = [interpret(format, shapes, claims[format]) for format in tied]
        whole = [evidence for evidence in found if _is_whole(evidence)]
        if whole:
            best = max(whole, key=functools.partial(_rank, is_named))
            own = _drop_strays(encoder, best)
            return _unfold(own, best, stated[best.format.library])
    raise CheckpointError(_describe(encoder, stated, formats, tuple(named or silent or formats)))


def _drop_strays(encoder: Encoder, evidence: Evidence) -> Encoder:
    """Returns the encoder without arrays that only other formats have outside of its prefix.

    An additional array of a known module, such as a bias of the projection, stays and is refused.
    """
    inside = {name for name, full in encoder.names.items() if full.startswith(encoder.prefix)}
    modules = {find_module(name) for name in evidence.explained - inside}
    names = {
        name: full
        for name, full in encoder.names.items()
        if name in inside or name in evidence.ignored or find_module(name) in modules
    }
    return dataclasses.replace(
        encoder,
        reader=renamed(encoder.reader, ((name, name) for name in names)),
        names=names,
        outside=[*encoder.outside, *(f for n, f in encoder.names.items() if n not in names)],
    )


def _unfold(encoder: Encoder, evidence: Evidence, stated: Stated) -> Match:
    """Returns the match, with the arrays under the names of its format."""
    fold = evidence.format.family.fold
    reader = fold.read(encoder.reader, stated.keys)
    if unused := fold.unused(reader, stated.keys):
        reader = computed(reader, {}, unused)
    if reader is not encoder.reader:
        claims = claim_names(reader.shapes, (evidence.format,))
        evidence = interpret(evidence.format, reader.shapes, claims[evidence.format])
    evidence = dataclasses.replace(evidence, ignored={**evidence.ignored, **unused})
    return Match(evidence, stated, reader, encoder)


def interpret(format: Format, shapes: Mapping[str, Shape], claims: Mapping[str, Claim]) -> Evidence:
    """Returns what names and shapes imply if the file has this format.

    Args:
        format: the format.
        shapes: the shapes of the arrays.
        claims: the names that the format explains.
    """
    ignored = {name: "an empty array" for name, shape in shapes.items() if 0 in shape}
    claims = {name: claim for name, claim in claims.items() if name not in ignored}
    ignored |= list_known((name for name in shapes if name not in claims), format)
    votes: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    bindings: dict[str, list[Bindings]] = collections.defaultdict(list)
    implied: dict[str, Any] = {}
    for name, (path, stored, binding) in claims.items():
        bindings[path].append(binding)
        implied |= stored.implies
        for symbol, size in axes.solve(stored.axes or _AXES[path], shapes[name]).items():
            # The width of the root, and of the pooling's MLP, may differ from other layers.
            local = path.startswith(f"{_LOCAL.get(symbol, symbol)}/")
            votes[f"{_LOCAL[symbol]} {symbol}" if local else symbol][size] += 1
    fields, present = inference.fields_from(votes, bindings, format)
    fields |= implied
    present = {field: terms for field, terms in present.items() if field not in implied}
    return Evidence(format, fields, present, dict(bindings), frozenset(claims), ignored)


def list_known(names: Iterable[str], format: Format) -> dict[str, str]:
    """Returns the names of arrays that are not weights of a model, and the reason for each."""
    patterns = [(re.compile(own).fullmatch, reason) for own, reason in format.ignored.items()]
    return {name: reason for name in names for match, reason in patterns if match(name)}


def _rank(is_named: bool, evidence: Evidence) -> tuple[Any, ...]:
    """Returns the sort key of an interpretation; the smallest is chosen.

    The format with the fewest unknown names is chosen first. Named classes differ in the parts that
    they skip: the one that reads most is chosen. Of other formats, the one whose constants agree
    with the arrays is chosen, then the one that reads least, then the first.
    """
    explained, ignored = len(evidence.explained), len(evidence.ignored)
    fixed = evidence.format.fixed.items()
    agrees = all(evidence.fields.get(field, value) == value for field, value in fixed)
    agrees &= evidence.format.row.head in (None, bool(evidence.fields.get("num_classes")))
    return (
        explained + ignored,
        is_named and explained,
        agrees,
        ignored,
    )


def _is_whole(evidence: Evidence) -> bool:
    """Whether the names include a patch embedding and a block."""
    # If the sides of a patch are merged in one axis of a matrix, the JSON states them.
    has_patches = "patch_size" in evidence.fields or PATCHES in evidence.bindings
    return has_patches and evidence.fields["num_layers"] > 0


def _describe(
    encoder: Encoder, stated: Mapping[Library, Stated], formats: Sequence[Format], tried: Formats
) -> str:
    """Returns the message about an unknown file: its family and names, and the nearest families.

    Args:
        encoder: the arrays.
        stated: what the JSON states.
        formats: the formats that the JSON may name.
        tried: the formats whose names were looked up.
    """
    shapes, claims = encoder.reader.shapes, encoder.claims
    names = {f.name: f for f in tried}
    reason = _foreign_family(stated, formats) or (
        f"no Vision Transformer of a known family ({listed(names, 3)})"
    )
    lines = [f"{encoder.reader.path}: {reason}."]
    found = {f.name: claims[f] for f in tried if claims[f]}
    nearest = sorted(found, key=lambda name: -len(found[name]))[:3]
    for name in nearest:
        paths = {claim.path for claim in found[name].values()}
        weights = [
            own[0].name for p in _CORE if p not in paths and (own := names[name].names.get(p))
        ]
        lacks = f", lacks {listed(weights, 2)}" if weights else ""
        lines.append(f"{name}: {len(found[name]):,} of {len(shapes):,} names{lacks}.")
    some = listed((shown(name, 60, quoted=False) for name in shapes), 4)
    lines.append(f"Arrays of the file: {some}.")
    if nearest:
        lines.append("read={'family': ...} reads it as one of them, and lists all differences.")
    return "\n  ".join(lines)


def _foreign_family(stated: Mapping[Library, Stated], formats: Sequence[Format]) -> str:
    """Returns a phrase about a family that the JSON names and keras_vit does not read, or ""."""
    for library, own in stated.items():
        words = dict.fromkeys(repr(f.words[0]) for f in formats if f.library is library and f.words)
        if own.words and not any(word in f.words for f in formats for word in own.words):
            model = f"; the model is a {own.class_name}" if own.class_name else ""
            found = f"{library.json[0]} has {library.named_by}={shown(own.words[0])}"
            return f"{found}, expected {listed(words, 8)}{model}"
    return ""
