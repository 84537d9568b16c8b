"""Finds the Vision Transformer in a file of a training: below a prefix, beside other arrays.

A training keeps its model under names of its own (`state_dict.model.backbone.`), in wrappers, twice
(the weights and their average), and beside losses, projectors, heads and the optimizer's state.
"""

import collections
import dataclasses
import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from keras_vit.checkpoints.containers import Reader, renamed
from keras_vit.checkpoints.dialects import Dialect
from keras_vit.checkpoints.plain_names import name_in_file, plain_name
from keras_vit.checkpoints.recognition import Recognition, recognise
from keras_vit.checkpoints.translate import EMPTY, Move, Shape
from keras_vit.errors import CheckpointError, ConfigError, listed, shown
from keras_vit.support.text import log

_OF_ARRAYS = ("prefix", "ignore", "weights")
"""Keys of `read` of `from_preset` that say which arrays of a file to read."""

_AVERAGE = re.compile(r"(?:^|[._/])(?:ema|teacher|target_encoder)(?=[._/])")
"""Words for the average of a model's weights over its training, as evaluations read it: timm, DeiT
and Lightning; DINO, DINOv2 and iBOT; I-JEPA."""
_OPTIMIZER = re.compile(r"(?:^|[./])opt(?:im|imizers?(?:_state(?:_dict|s)?)?|_state)?[./]")
_PATCHES = "patch_embedding/kernel"
_KERAS = re.compile(r".*/vars/\d+|vars/\d+")


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The arrays of a file that belong to a Vision Transformer, as far as their place shows it.

    Args:
        reader: the arrays, under the names that a file of the library has.
        prefix: prefix of their names in the file.
        names: name in the reader -> name in the file.
        outside: names of the arrays elsewhere in the file.
        ignored: names of the arrays that the caller leaves out.
        choice: words about other Vision Transformers in the file; "" if there is one.
    """

    reader: Reader
    prefix: str
    names: Mapping[str, str]
    outside: Sequence[str]
    ignored: Collection[str]
    choice: str = ""

    def announce(self, beside: Iterable[str]) -> None:
        """Logs in one line which arrays are left out, in the caller's file.

        Args:
            beside: names in the reader that are left out too.
        """
        names = [*self.outside, *(self.names[name] for name in beside)]
        left = collections.Counter(find_part(name, self.prefix) for name in names)
        if left or self.choice:
            parts = [f"{part} ({count})" for part, count in left.items()]
            log.warning(
                "%s: the Vision Transformer is read from %s%s; left out, with the number of "
                "arrays: %s.",
                *(self.reader.path, repr(self.prefix) if self.prefix else "the top", self.choice),
                listed(parts, 12),
            )


def find_encoder(
    reader: Reader,
    dialects: tuple[Dialect, ...],
    *,
    prefix: str | None = None,
    ignore: str | Sequence[str] = (),
    weights: str | None = None,
) -> Encoder:
    """Returns the arrays of the Vision Transformer in a file, without prefix and wrappers.

    Args:
        reader: the arrays of the file.
        dialects: the dialects that the names may have.
        prefix, ignore, weights: as in `read` of `VisionTransformer.from_preset`.

    Raises:
        CheckpointError: the file has several Vision Transformers and nothing tells which to read,
            no array fits an argument, or the arrays are empty or Keras's own file of weights.
        ConfigError: `weights` is an unknown word.
    """
    if weights not in (None, "ema", "raw"):
        raise ConfigError(f"read={{'weights': {shown(weights)}}}: expected 'ema' or 'raw'.")
    ignored = _ignored_by(reader, ignore)
    names = [name for name in reader.shapes if name not in ignored]
    found, choice = _encoders(reader, names, dialects), ""
    if prefix is None:
        prefix, choice = _choose(reader, found, weights)
    elif weights is not None:
        raise ConfigError("Give read={'prefix': ...} or read={'weights': ...}, one of the two.")
    else:
        prefix = _completed(reader, names, prefix)
    others = tuple(other for other in found if len(other) > len(prefix))
    own = {name: None for name in names if name.startswith(prefix) and not name.startswith(others)}
    inner = _below(reader, own, prefix, dialects)[1]
    below = renamed(reader, inner)
    elsewhere = [name for name in names if name not in own]
    return Encoder(below, prefix, dict(inner), elsewhere, ignored, choice)


def _ignored_by(reader: Reader, ignore: str | Sequence[str]) -> set[str]:
    """Returns the names that fit one of the caller's names or patterns."""
    ignored: set[str] = set()
    for pattern in [ignore] if isinstance(ignore, str) else ignore:
        hits = {name for name in reader.shapes if fnmatch.fnmatchcase(name, str(pattern))}
        if not hits:
            raise CheckpointError(
                f"{reader.path}: read={{'ignore': {shown(pattern)}}} fits no array. It is a whole "
                f"name, or a pattern such as 'decoder.*'. The file has {listed(reader.shapes)}."
            )
        ignored |= hits
    return ignored


def _completed(reader: Reader, names: Collection[str], prefix: str) -> str:
    """Returns the caller's prefix, with the separator that it may lack."""
    for ending in ("", ".", "/"):
        completed = prefix + ending
        if completed[-1:] in ("", ".", "/") and any(name.startswith(completed) for name in names):
            return completed
    raise CheckpointError(
        f"{reader.path}: no array is below read={{'prefix': {shown(prefix)}}}. The file has "
        f"{listed(names)}."
    )


def _below(
    reader: Reader, names: Collection[str], prefix: str, dialects: tuple[Dialect, ...]
) -> tuple[int, list[tuple[str, str]]]:
    """Returns the number of arrays below a prefix that a dialect explains, 0 for no encoder.

    Beside it stand pairs of names, in the library's files and in this one.
    """
    stored = [(name.removeprefix(prefix), name) for name in names if name.startswith(prefix)]
    plain = [(plain_name(name), full) for name, full in stored]
    other = [(name_in_file(name), full) for name, full in plain]
    # Two numbers of a block are a chunk and a block in DINOv2, a stage and a block elsewhere.
    spelled = [pairs for pairs in (plain, other) if len(dict(pairs)) == len(stored)] or [stored]
    if spelled[1:] == spelled[:1]:
        spelled = spelled[:1]
    found = [recognise({n: reader.shapes[o] for n, o in pairs}, dialects) for pairs in spelled]
    counts = [recognition.claimed if recognition else 0 for recognition in found]
    return max(counts), spelled[counts.index(max(counts))]


def _encoders(
    reader: Reader, names: Collection[str], dialects: tuple[Dialect, ...]
) -> dict[str, set[tuple[str, Shape]]]:
    """Returns names and shapes of every Vision Transformer of a file by the prefix of its names.

    A projection of patches shows where one may stand. Among several prefixes of one projection,
    the prefix below which a dialect explains most arrays counts, then the shortest.
    """
    ends, known = _list_patch_names(dialects)
    found: dict[str, set[tuple[str, Shape]]] = {}
    for patches in names:
        if not plain_name(patches).endswith(ends) or _OPTIMIZER.search(patches):
            continue
        best = 0
        for start in (0, *(match.end() for match in re.finditer("[./]", patches))):
            if plain_name(patches[start:]) not in known:
                continue
            if reader.shapes[patches] == (0,):
                raise CheckpointError(f"{reader.path}: array {shown(patches)} is empty. {EMPTY}")
            count, pairs = _below(reader, names, patches[:start], dialects)
            if count > best:
                best, prefix = count, patches[:start]
                arrays = {(new, reader.shapes[name]) for new, name in pairs}
        if best:
            found[prefix] = arrays
    if not found and reader.shapes and all(map(_KERAS.fullmatch, reader.shapes)):
        raise CheckpointError(
            f"{reader.path}: these are weights alone, as save_weights of a keras.Model writes "
            "them; names and sizes of the model are not in the file. Build the model with the "
            f"arguments of its training and call model.load_weights({str(reader.path)!r})."
        )
    return found


@functools.lru_cache(maxsize=32)
def _list_patch_names(dialects: tuple[Dialect, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns the names of the projection of patches, without and with the dialects' prefixes."""
    stored = [(dialect, name) for dialect in dialects for name in dialect.all_names(_PATCHES)]
    known = {p + s.name for d, s in stored for p in (("",) if s.outside else d.prefixes)}
    return tuple({s.name for _, s in stored}), frozenset(known)


def _choose(
    reader: Reader, found: Mapping[str, set[tuple[str, Shape]]], weights: str | None
) -> tuple[str, str]:
    """Returns the prefix to read, and words about the other Vision Transformers of the file."""
    averages = [prefix for prefix in found if _AVERAGE.search(prefix)]
    others = [prefix for prefix in found if prefix not in averages]
    if others and not any("student" in prefix for prefix in others):  # of a distillation
        averages = [prefix for prefix in averages if "teacher" not in prefix]
        others = [prefix for prefix in found if prefix not in averages]
    chosen = {"ema": averages, "raw": others, None: list(found)}[weights]
    if found and not chosen:
        kind = "average of" if weights == "ema" else "other weights than an average of"
        raise CheckpointError(
            f"{reader.path}: read={{'weights': {weights!r}}}, but the names show no {kind} the "
            f"training's weights. It has a Vision Transformer below {_quoted(found)}."
        )
    if len(chosen) > 1 and len(averages) == 1 and found[averages[0]] in map(found.get, others):
        chosen = averages
    if len(chosen) > 1:
        raise CheckpointError(
            f"{reader.path}: there are {len(chosen)} Vision Transformers, below {_quoted(chosen)}. "
            f"Choose one: read={{'prefix': {chosen[0]!r}}}."
        )
    prefix = chosen[0] if chosen else ""
    rest = [other for other in found if other != prefix]
    if not rest:
        return prefix, ""
    kind = "the average of the weights, " if prefix in averages else ""
    return prefix, f" ({kind}not {_quoted(rest)}, which read={{'prefix': ...}} chooses)"


def _quoted(prefixes: Iterable[str]) -> str:
    return listed([repr(prefix) if prefix else "no prefix" for prefix in prefixes])


def find_part(name: str, prefix: str) -> str:
    """Returns the start of a name, up to the first module that is not in the prefix."""
    pairs = enumerate(zip(name, prefix, strict=False))
    start = next((k for k, (a, b) in pairs if a != b), min(len(name), len(prefix)))
    end = re.compile("[./]").search(name, start)
    return name if end is None else name[: end.end()]


def left_over(
    shapes: Mapping[str, Shape],
    recognition: Recognition,
    moves: Sequence[Move],
    hidden_size: int,
) -> dict[str, str]:
    """Returns the arrays outside of the model, and the reason for each.

    They are the arrays of whole modules that do not share the model's prefix, of a head of another
    form, and of an optimizer. All others may change the outputs, so that they are refused: those
    below the prefix, single arrays, and norms of the tokens.

    Args:
        shapes: shapes of the arrays by name.
        recognition: recognition of the names.
        moves: the plan, which names the model's arrays.
        hidden_size: width of the model's tokens.
    """
    own = {move.name for move in moves}
    prefix, heads = recognition.prefix, recognition.dialect.all_names("head/kernel")
    parts = {find_part(name, prefix) for name in own}
    unread = {find_part(prefix + head.name, prefix) for head in heads} - parts
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in shapes:
        if name not in own and name not in recognition.ignored and name not in recognition.names:
            groups[find_part(name, prefix)].append(name)
    return {
        name: "a module beside the model's"
        for part, names in groups.items()
        if part in unread or _OPTIMIZER.match(part) or not part.startswith(prefix)
        if part.endswith(".") and part not in parts
        if {shapes[name] for name in names} != {(hidden_size,)}
        for name in names
    }


def without_head(
    moves: Sequence[Move], names: Iterable[str], prefix: str
) -> tuple[list[Move], dict[str, str]]:
    """Returns a plan without the head, and the arrays of the head with the reason to ignore them.

    Args:
        moves: the plan.
        names: names of the arrays.
        prefix: prefix of the dialect's names.
    """
    kept = [move for move in moves if not move.paths[0].startswith("head/")]
    heads = {move.name for move in moves} - {move.name for move in kept}
    parts = {find_part(name, prefix) for name in heads} - {find_part(m.name, prefix) for m in kept}
    ignored = [name for name in names if name in heads or find_part(name, prefix) in parts]
    return kept, dict.fromkeys(ignored, "the head, which num_classes=0 leaves out")


def choices(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the caller's arguments of `find_encoder`."""
    return {name: arguments[name] for name in _OF_ARRAYS if arguments.get(name) is not None}
