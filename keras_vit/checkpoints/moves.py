"""Translates names and axes in both directions, with one table of names per family.

The rule: a placeholder on only one side is an axis on the other side. For example,
`block_{l}/attention/{qkv}/kernel, m h d` and `blocks.{l}.attn.qkv.weight, (qkv h d) m`
say that three weights of the model are one array of a timm file. Likewise,
`.../encoderblock/..., l m h d` says that one array of a big_vision file contains the weights of all
blocks. Reading and writing use the same plan.
"""

import dataclasses
import difflib
import itertools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.families.family import Format
from keras_vit.checkpoints.families.names import StoredAs
from keras_vit.config import ViTConfig
from keras_vit.config.weights import axes, lexicon, templates
from keras_vit.config.weights.conditions import Place
from keras_vit.errors import CheckpointError, listed, shown

Shape = tuple[int, ...]

MOST_LINES, MOST_LETTERS = 8, 640
"""Most differences and letters in a message; `CheckpointError.differences` is complete."""

EMPTY = (
    "Arrays of shape (0,) are empty: DeepSpeed's ZeRO-3 stores their values in other files, which "
    "its zero_to_fp32.py merges."
)
"""Message about the file of one process of sharded training."""


@dataclasses.dataclass(frozen=True)
class Move:
    """An array of a file and the weights of the model that it contains, usually one.

    Args:
        name: name of the array in the file.
        paths: paths of the weights in the lexicon.
        stack: axes of the array along which several weights are stacked.
        weight_axes: axes of each weight.
        file_axes: axes of the array. A file may have more or fewer leading axes of length 1.
        sizes: sizes of all axes.
    """

    name: str
    paths: tuple[str, ...]
    stack: tuple[str, ...]
    weight_axes: str
    file_axes: str
    sizes: Mapping[str, int]

    @property
    def file_shape(self) -> Shape:
        return axes.compute_shape(self.file_axes, self.sizes)

    def file_axes_for(self, shape: Shape) -> str | None:
        """Returns the axes of an array of this shape, or None if the shape does not fit."""
        if shape == self.file_shape:
            return self.file_axes
        inner = re.sub("^(1 )*", "", self.file_axes)
        size = axes.compute_shape(inner, self.sizes)
        more = len(shape) - len(size)
        return "1 " * more + inner if more >= 0 and shape == (1,) * more + size else None

    def to_weights(self, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """Splits the file's array into weights: yields `(path, array)`, as views if possible."""
        source = self.file_axes_for(array.shape) or self.file_axes
        target = " ".join((*self.stack, self.weight_axes))
        array = axes.rearrange(array, source, target, self.sizes)
        shape = axes.compute_shape(self.weight_axes, self.sizes)
        yield from zip(self.paths, array.reshape(-1, *shape), strict=True)

    def to_array(self, weights: list[np.ndarray]) -> np.ndarray:
        """Joins the weights, in the order of `paths`, into the file's array."""
        array = np.stack(weights) if self.stack else weights[0]
        array = array.reshape([self.sizes[s] for s in self.stack] + list(weights[0].shape))
        source = " ".join((*self.stack, self.weight_axes))
        return axes.rearrange(array, source, self.file_axes, self.sizes)


_PARTS_OF_PATHS = {
    "root/": "a ResNet stem",
    "stage": "a ResNet stem",
    "pool/": "attention pooling",
    "pre_logits/": "a representation layer",
    "position_embedding/": "learned positions",
}
"""Prefix of a path -> name of the optional part of the model with this weight, for messages."""


def plan(
    config: ViTConfig, format: Format, prefix: str = "", names: Container[str] = ()
) -> list[Move]:
    """Plans the moves between a model and a checkpoint of the format, in the model's order.

    Args:
        config: configuration of the model.
        format, prefix: format and prefix of the checkpoint.
        names: the names of the file to read. If the format has several names for a weight,
            the plan uses the one in the file; without `names`, the name to write.

    Raises:
        CheckpointError: the format cannot store one of the model's weights.
    """
    groups: dict[tuple[str, str], list[lexicon.Weight]] = {}
    chosen: dict[tuple[str, str], StoredAs] = {}
    lacking: dict[str, str] = {}
    for weight in lexicon.weights(config):
        path = weight.word.path
        answers = format.names_for(path, config, weight.binding)
        if not answers:
            own = (part for start, part in _PARTS_OF_PATHS.items() if path.startswith(start))
            part = weight.word.part or next(own, "")
            fields = {t.field: Place(t.field).read(config) for t in weight.word.terms}
            part = part or " and ".join(f"{f}={v!r}" for f, v in fields.items() if v is not None)
            reason = f": no model of the family has {part}" if part else ""
            lacking.setdefault(path, f"{format.name} cannot store {weight.path}{reason}.")
            continue
        candidates = [(_name(stored, weight, prefix), stored) for stored in answers]
        name, stored = next((c for c in candidates if c[0] in names), candidates[0])
        chosen[path, name] = stored
        groups.setdefault((path, name), []).append(weight)
    if lacking:
        error = CheckpointError(next(iter(lacking.values())))
        error.differences = tuple(lacking.values())
        raise error
    return [_move(weights, chosen[key], key[1]) for key, weights in groups.items()]


def _name(stored: StoredAs, weight: lexicon.Weight, prefix: str) -> str:
    name = templates.fill(stored.name, weight.binding)
    return name if stored.outside else prefix + name


def _move(weights: list[lexicon.Weight], stored: StoredAs, name: str) -> Move:
    word, sizes = weights[0].word, dict(weights[0].sizes)
    there = templates.placeholders(stored.name)
    stack = tuple(p for p in templates.placeholders(word.path) if p not in there)
    for placeholder in stack:
        sizes[placeholder] = len({weight.binding[placeholder] for weight in weights})
    return Move(
        name=name,
        paths=tuple(weight.path for weight in weights),
        stack=stack,
        weight_axes=stored.parted or word.axes,
        file_axes=stored.axes or word.axes,
        sizes=sizes,
    )


def compare(
    reader: Reader,
    moves: Sequence[Move],
    ignored: Container[str],
    model: str,
    name_in_file: Callable[[str], str],
) -> None:
    """Compares names, shapes and types of a file with a plan, before any array is read.

    Args:
        reader: the arrays, under the names of the plan.
        moves: the plan, with the arrays that the file should contain.
        ignored: names of arrays that are not weights.
        model: description of the model, for the message.
        name_in_file: returns the name of an array in the file.

    Raises:
        CheckpointError: arrays are missing, unexpected, or have a wrong shape or type. The
            message has lines for the first of each kind, and counts the rest; the attribute
            `differences` has a line for each.
    """
    kinds = _find_differences(reader, moves, ignored)
    differences = {
        kind: [
            f"{kind}: {shown(name_in_file(name), 300, quoted=False)}{rest}"
            for name, rest in own.items()
        ]
        for kind, own in kinds.items()
        if own
    }
    if not differences:
        return
    share = MOST_LINES // len(differences)
    lines: list[str] = []
    for kind, own in differences.items():
        # With many, the last shows how far they go.
        for line in own if len(own) <= share else [own[0], own[-1], *own[1 : share - 1]]:
            if not (lines and lines[-1].startswith(kind)) or sum(map(len, lines)) < MOST_LETTERS:
                lines.append(line)
    missing, unexpected = list(kinds["missing"]), list(kinds["unexpected"])
    close = [name for name in unexpected[:24] if len(name) < 200]
    if near := difflib.get_close_matches((missing or [""])[0], close, n=1, cutoff=0.8):
        lines[0] += f"; similar unexpected name: {name_in_file(near[0])}"
    every = list(itertools.chain.from_iterable(differences.values()))
    if len(every) > len(lines):
        counts = listed([f"{len(own):,} {kind}" for kind, own in differences.items()])
        lines.append(f"and {len(every) - len(lines):,} more ({counts}), all in `error.differences`")
    subject = "1 array does" if len(every) == 1 else f"{len(every):,} arrays do"
    if any(reader.shapes[name] == (0,) for name in kinds["shape mismatch"]):
        lines.append(EMPTY)
    if len(unexpected) == len(every):
        lines.append("read={'ignore': 'decoder.*'}, names or a pattern, skips arrays.")
    listing = "\n  ".join(lines)
    error = CheckpointError(f"{reader.path}: {subject} not fit {model}.\n  {listing}")
    error.differences = tuple(every)
    raise error


def _find_differences(
    reader: Reader, moves: Sequence[Move], ignored: Container[str]
) -> dict[str, dict[str, str]]:
    """Returns, by kind, the names of arrays that do not fit a plan, and a phrase about each."""
    shapes = {name: shown(shape, quoted=False) for name, shape in reader.shapes.items()}
    move_of = {move.name: move for move in moves}
    missing, mismatched, no_floats = {}, {}, {}
    for name, move in move_of.items():
        if name not in shapes:
            missing[name] = f", expected {_place_in_words(move)}"
        elif move.file_axes_for(reader.shapes[name]) is None:
            mismatched[name] = f" is {shapes[name]}, expected {_place_in_words(move)}"
        elif reader.dtypes[name].kind != "f" and reader.dtypes[name].name != "bfloat16":
            no_floats[name] = f" is {_words(reader.dtypes[name])}, expected a float"
    return {
        "missing": missing,
        "shape mismatch": mismatched,
        "type mismatch": no_floats,
        "unexpected": {
            name: f" {shape} is not a weight of this model"
            for name, shape in shapes.items()
            if name not in move_of and name not in ignored
        },
    }


def _words(dtype: np.dtype) -> object:
    """Returns a dtype, or its name in the file if NumPy does not have it."""
    metadata: Mapping[str, Any] = dtype.metadata or {}
    return metadata.get("words", dtype)


def _place_in_words(move: Move) -> str:
    """Returns `"(24, 3, 8) [hidden_size, num_heads, head_dim] for block_0/attention/..."`."""
    words = [
        " * ".join(
            lexicon.AXES[symbol].words if symbol in lexicon.AXES else symbol for symbol in group
        )
        for group in axes.parse(move.file_axes)
    ]
    return f"{move.file_shape} [{', '.join(words)}] for {', '.join(move.paths)}"
