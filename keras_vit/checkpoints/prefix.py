"""Finds the arrays of a Vision Transformer in a file, and the prefix of their names.

Training checkpoints store the model under custom names (`state_dict.model.backbone.`), in wrappers,
twice (the weights and their moving average), and with losses, projectors, heads and optimizer
state; a model of images and text has a vision tower. Encoders are found by their patch embedding.
"""

import dataclasses
import fnmatch
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from keras_vit.checkpoints.claims import (
    PATCHES,
    Claims,
    Formats,
    claim_names,
    count_explained,
    is_outside,
)
from keras_vit.checkpoints.containers import Reader, renamed
from keras_vit.checkpoints.moves import EMPTY, Shape
from keras_vit.errors import CheckpointError, ConfigError, listed, shown

_AVERAGE = re.compile(r"(?:^|[._/])(?:ema|teacher|target_encoder)(?=[._/])")
"""Names for the moving average of the weights, which is used for evaluation: timm, DeiT and
Lightning; DINO, DINOv2 and iBOT; I-JEPA."""
OPTIMIZER = re.compile(
    r"(?:^|[./])opt(?:im|imizers?(?:_state(?:_dict|s)?)?|_state)?[./](?!target/)"
)
_KERAS = re.compile(r"(?:.*/)?vars/\d+")

Rules = Iterable[tuple[str, str]]

_MODULE = r"(?<![^.])"
"""The start of the name of a module."""
_WRAPPERS: Rules = (
    # Wrappers of modules: torch.compile, DistributedDataParallel, FSDP, activation checkpointing.
    (r"(?<=\.)(?:_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.", ""),
    # DINOv2's blocks in chunks; the second number is the index of the block in the model.
    (_MODULE + r"blocks\.\d+\.(?=\d+\.)", "blocks."),
)
_LAYERS = _MODULE + r"(?<!encoder\.)layers(\.\d+\.)"
_ATTENTION = _MODULE + r"(encoder\.layer\.\d+\.attention\.)"
_TRANSFORMERS_5: Rules = (
    (_LAYERS + r"mlp\.fc1\.", r"encoder.layer\1intermediate.dense."),
    (_LAYERS + r"mlp\.fc2\.", r"encoder.layer\1output.dense."),
    (_LAYERS + r"(?=attention\.|layernorm_|lambda_)", r"encoder.layer\1"),
    (_ATTENTION + r"q_proj\.", r"\1attention.query."),
    (_ATTENTION + r"k_proj\.", r"\1attention.key."),
    (_ATTENTION + r"v_proj\.", r"\1attention.value."),
    (_ATTENTION + r"o_proj\.", r"\1output.dense."),
)
"""Names of layers in memory since transformers 5 (ViT, DeiT, BEiT, MAE, DINOv2 and others), and in
its files, which keep the names of transformers 4. Files of InternVL have some of the former."""


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The arrays of a file that belong to a Vision Transformer.

    Args:
        reader: the arrays, under the names that a file of the library has without a prefix.
        prefix: prefix of the names in the file.
        names: name in the reader -> name in the file.
        outside: names in the file of arrays that do not belong to it.
        skipped: names in the file of arrays that the caller ignores.
        choice: phrase about other Vision Transformers in the file; "" if there is only one.
        claims: format -> the names in the reader that it explains.
    """

    reader: Reader
    prefix: str
    names: Mapping[str, str]
    outside: Sequence[str]
    skipped: Collection[str]
    choice: str
    claims: Claims


def find_encoder(
    reader: Reader,
    formats: Formats,
    *,
    prefix: str | None = None,
    ignore: str | Sequence[str] = (),
    weights: str | None = None,
) -> Encoder:
    """Returns the arrays of the Vision Transformer in a file, without prefix and wrappers.

    Args:
        reader: the arrays of the file.
        formats: the formats that the file may have.
        prefix, ignore, weights: as in `read` of `VisionTransformer.from_preset`.

    Raises:
        CheckpointError: the file has several Vision Transformers and the choice is ambiguous, no
            array matches an argument, the arrays are empty, or the file is Keras's save_weights.
        ConfigError: `weights` has an unknown value.
    """
    if weights not in (None, "ema", "raw"):
        raise ConfigError(f"read={{'weights': {shown(weights)}}}: expected 'ema' or 'raw'.")
    skipped = _list_ignored(reader, ignore)
    names = [name for name in reader.shapes if name not in skipped]
    found, choice = _find_encoders(reader, names, formats), ""
    if prefix is None:
        prefix, choice = _choose_prefix(reader, found, weights)
    elif weights is not None:
        raise ConfigError("Give either read={'prefix': ...} or read={'weights': ...}, not both.")
    else:
        prefix = _complete(reader, names, prefix)
        below = {other: arrays for other, arrays in found.items() if other.startswith(prefix)}
        if below and prefix not in below:  # a library's own prefix follows: `vit.`
            prefix, choice = _choose_prefix(reader, below, None)
    others = tuple(other for other in found if len(other) > len(prefix))
    own, claims = _list_below([n for n in names if not n.startswith(others)], prefix, formats)
    taken = {*own.values()}
    outside = [name for name in names if name not in taken]
    return Encoder(renamed(reader, own.items()), prefix, own, outside, skipped, choice, claims)


def _find_encoders(
    reader: Reader, names: Sequence[str], formats: Formats
) -> dict[str, set[tuple[str, Shape]]]:
    """Returns names and shapes of every Vision Transformer in a file, by the prefix of its names.

    If several prefixes of a patch embedding are possible, the one for which a format explains most
    arrays is chosen, then the shortest.
    """
    known = frozenset(n.name for own in formats for n in own.names.get(PATCHES, ()))
    ends = tuple(known)
    found: dict[str, set[tuple[str, Shape]]] = {}
    for patches in names:
        if not _plain_name(patches).endswith(ends) or OPTIMIZER.search(patches):
            continue
        best = 0
        for start in (0, *(match.end() for match in re.finditer("[./]", patches))):
            if _plain_name(patches[start:]) not in known:
                continue
            if reader.shapes[patches] == (0,):
                raise CheckpointError(f"{reader.path}: array {shown(patches)} is empty. {EMPTY}")
            own, claims = _list_below(names, patches[:start], formats)
            count = count_explained(claims)
            if count > best:
                best, prefix = count, patches[:start]
                arrays = {(new, reader.shapes[name]) for new, name in own.items()}
        if best:
            found[prefix] = arrays
    if not found and reader.shapes and all(map(_KERAS.fullmatch, reader.shapes)):
        raise CheckpointError(
            f"{reader.path}: this file was written by save_weights of a keras.Model and does not "
            "contain the architecture. Build the model with the same arguments as for training, "
            f"and call model.load_weights({str(reader.path)!r})."
        )
    return found


def _choose_prefix(
    reader: Reader, found: Mapping[str, set[tuple[str, Shape]]], weights: str | None
) -> tuple[str, str]:
    """Returns the prefix to read, and a phrase about other Vision Transformers in the file."""
    averages = [prefix for prefix in found if _AVERAGE.search(prefix)]
    others = [prefix for prefix in found if prefix not in averages]
    if others and not any("student" in prefix for prefix in others):  # of a distillation
        averages = [prefix for prefix in averages if "teacher" not in prefix]
        others = [prefix for prefix in found if prefix not in averages]
    chosen = {"ema": averages, "raw": others, None: list(found)}[weights]
    if found and not chosen:
        kind = "no average of the weights" if weights == "ema" else "only averages of the weights"
        raise CheckpointError(
            f"{reader.path}: read={{'weights': {weights!r}}}, but according to its names the file "
            f"has {kind}. It has a Vision Transformer at {_quoted(found)}."
        )
    if len(chosen) > 1 and len(averages) == 1 and found[averages[0]] in map(found.get, others):
        chosen = averages
    if len(chosen) > 1:
        raise CheckpointError(
            f"{reader.path}: there are {len(chosen)} Vision Transformers, at {_quoted(chosen)}. "
            f"Choose one: read={{'prefix': {chosen[0]!r}}}."
        )
    prefix = chosen[0] if chosen else ""
    rest = [other for other in found if other != prefix]
    if not rest:
        return prefix, ""
    kind = "the average of the weights, " if prefix in averages else ""
    return prefix, f" ({kind}not {_quoted(rest)}, which read={{'prefix': ...}} selects)"


def _complete(reader: Reader, names: Collection[str], prefix: str) -> str:
    """Returns the caller's prefix, with a separator at its end."""
    for ending in ("", ".", "/"):
        completed = prefix + ending
        if completed[-1:] in ("", ".", "/") and any(name.startswith(completed) for name in names):
            return completed
    raise CheckpointError(
        f"{reader.path}: no array matches read={{'prefix': {shown(prefix)}}}. The file has "
        f"{listed(names)}."
    )


def _list_ignored(reader: Reader, ignore: str | Sequence[str]) -> set[str]:
    """Returns the names that match one of the caller's names or patterns."""
    ignored: set[str] = set()
    for pattern in [ignore] if isinstance(ignore, str) else ignore:
        hits = {name for name in reader.shapes if fnmatch.fnmatchcase(name, str(pattern))}
        if not hits:
            raise CheckpointError(
                f"{reader.path}: read={{'ignore': {shown(pattern)}}} matches no array. Give a full "
                f"name, or a pattern such as 'decoder.*'. The file has {listed(reader.shapes)}."
            )
        ignored |= hits
    return ignored


def _list_below(
    names: Iterable[str], prefix: str, formats: Formats
) -> tuple[dict[str, str], Claims]:
    """Returns the names of an encoder without prefix and wrappers -> names in the file.

    The names of a head or a projection may lack the prefix, or a part of it. Of two possible
    spellings, the one that formats explain better is chosen; its claims are returned too.
    """
    ends = [match.end() for match in re.finditer("[./]", prefix)][:-1]
    parents = [prefix[:end] for end in reversed(ends)] + [""] * bool(prefix)
    inside: dict[str, str] = {}
    others: dict[str, str] = {}
    for name in names:
        if name.startswith(prefix):
            inside[name.removeprefix(prefix)] = name
            continue
        for parent in parents:
            own = _plain_name(name.removeprefix(parent))
            if name.startswith(parent) and own not in others and is_outside(own, formats):
                others[own] = name
                break
    plain = {_plain_name(name): full for name, full in inside.items()}
    other = {_name_in_file(name): full for name, full in plain.items()}
    # Two numbers of a block are chunk and block in DINOv2, stage and block in other files.
    spelled = [own for own in (plain, other) if len(own) == len(inside)] or [inside]
    found = [
        (both := own | others | own, claim_names(both, formats, others.keys() - own.keys()))
        for own in (spelled[:1] if plain == other else spelled)
    ]
    return max(found, key=lambda pair: count_explained(pair[1])) if found[1:] else found[0]


def _quoted(prefixes: Iterable[str]) -> str:
    return listed([repr(prefix) if prefix else "no prefix" for prefix in prefixes])


def _plain_name(name: str) -> str:
    """Returns the name of an array without wrappers such as DistributedDataParallel."""
    return _replaced(name, _WRAPPERS)


def _name_in_file(name: str) -> str:
    """Returns the name in transformers' files for the name of an array in memory."""
    return _replaced(name, _TRANSFORMERS_5)


def _replaced(name: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
