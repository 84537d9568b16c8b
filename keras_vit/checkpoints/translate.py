"""The translation engine: names and axes, both directions, from one word table per dialect.

The rule: a placeholder that stands on only one side is an axis on the other. So
`block_{l}/attention/{qkv}/kernel, m h d` and `blocks.{l}.attn.qkv.weight, (qkv h d) m`
say that three weights of the model are one array of a timm file. Likewise,
`.../encoderblock/..., l m h d` says that one array of a big_vision file holds the weights of all
blocks. Reading and writing follow the same plan.
"""

import dataclasses
import difflib
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

from keras_vit.checkpoints.containers import Part, Reader, parts_of
from keras_vit.checkpoints.dialects.base import Dialect, StoredAs, Unsupported
from keras_vit.config import ViTConfig
from keras_vit.errors import CheckpointError, shown
from keras_vit.weights import axes, lexicon, templates

Shape = tuple[int, ...]

FIRST, LAST = 20, 4
"""Most lines for each kind of difference, from both ends of its list; others are counted."""


@dataclasses.dataclass(frozen=True)
class Move:
    """A group of the model's weights and the group of a file's arrays that holds the same numbers.

    Args:
        paths: paths of the weights in the lexicon; mostly one.
        names: names of the arrays in the file; mostly one.
        weight_axes, file_axes: the axes of each weight, and of each array.
        weight_stack, file_stack: the axes along which several weights, or arrays, are stacked.
        other_file_axes: further axes under which an array is accepted.
        sizes: sizes of all axes.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...]
    weight_axes: str
    file_axes: str
    weight_stack: tuple[str, ...]
    file_stack: tuple[str, ...]
    other_file_axes: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def file_shape(self) -> Shape:
        return axes.shape_of(self.file_axes, self.sizes)

    def file_axes_for(self, shape: Shape) -> str | None:
        """Returns the axes under which an array of that shape is accepted, or None."""
        for candidate in (self.file_axes, *self.other_file_axes):
            if axes.shape_of(candidate, self.sizes) == shape:
                return candidate
        return None

    def to_weights(self, arrays: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields `(path, array)` of each weight from the file's arrays, in the order of `names`."""
        file_axes = self.file_axes_for(arrays[0].shape) or self.file_axes
        yield from zip(
            self.paths,
            _restack(
                arrays, self.file_stack, file_axes, self.weight_stack, self.weight_axes, self.sizes
            ),
            strict=True,
        )

    def to_parts(self, read: Callable[[str], np.ndarray]) -> Iterator[Part]:
        """Yields the file's arrays from the weights that `read` returns.

        If the weights follow each other in the array, each weight is a part of its own, so that
        the whole array is never copied.
        """
        symbols = [symbol for group in axes.parse(self.file_axes) for symbol in group]
        stack = len(self.weight_stack)
        if not self.file_stack and tuple(symbols[:stack]) == self.weight_stack:
            rest = " ".join(symbols[stack:])
            for path in self.paths:
                part = axes.spread(read(path), self.weight_axes, rest, self.sizes)
                yield Part(self.names[0], self.file_shape, part)
            return
        arrays = [read(path) for path in self.paths]
        yield from parts_of(
            zip(
                self.names,
                _restack(
                    arrays,
                    self.weight_stack,
                    self.weight_axes,
                    self.file_stack,
                    self.file_axes,
                    self.sizes,
                ),
                strict=True,
            )
        )


def _restack(
    arrays: list[np.ndarray],
    source_stack: tuple[str, ...],
    source_axes: str,
    target_stack: tuple[str, ...],
    target_axes: str,
    sizes: Mapping[str, int],
) -> list[np.ndarray]:
    """Returns the arrays stacked, rearranged and unstacked; as views if possible."""
    array = np.stack(arrays) if source_stack else arrays[0]
    source, target = " ".join(source_stack), " ".join(target_stack)
    if source_stack:
        array = array.reshape([sizes[s] for s in source_stack] + list(array.shape[1:]))
    array = axes.rearrange(
        array, f"{source} {source_axes}".strip(), f"{target} {target_axes}".strip(), sizes
    )
    if not target_stack:
        return [array]
    if len(target_stack) > 1:
        array = array.reshape(-1, *array.shape[len(target_stack) :])
    return list(array)


def plan(
    config: ViTConfig, dialect: Dialect, prefix: str = "", names: Container[str] = ()
) -> list[Move]:
    """Returns the moves between a model and a checkpoint of the dialect, in the model's order.

    Args:
        config: configuration of the model.
        dialect, prefix: dialect and prefix of the checkpoint.
        names: the names of a file to be read. If the dialect has several names for a weight,
            the plan takes the name that the file has; without `names`, the name to write.

    Raises:
        CheckpointError: the dialect cannot hold one of the model's weights.
    """
    groups: dict[tuple[str, str], list[lexicon.Weight]] = {}
    chosen: dict[tuple[str, str], StoredAs] = {}
    for weight in lexicon.weights(config):
        answers = dialect.names_for(weight.word.path, config, weight.binding)
        if isinstance(answers, Unsupported):
            raise CheckpointError(
                f"The {dialect.name} dialect has no place for {weight.path}: {answers.reason}."
            )
        candidates = [(_name(stored, weight, prefix), stored) for stored in answers]
        name, stored = next(
            ((n, s) for n, s in candidates if len(candidates) > 1 and _first(n, config) in names),
            candidates[0],
        )
        chosen[weight.word.path, name] = stored
        groups.setdefault((weight.word.path, name), []).append(weight)
    return [_move(config, weights, chosen[key], key[1]) for key, weights in groups.items()]


def _name(stored: StoredAs, weight: lexicon.Weight, prefix: str) -> str:
    """Returns the name of an array; placeholders that only the dialect has remain in it."""
    name = templates.fill(stored.name, weight.binding)
    return name if stored.outside else prefix + name


def _first(name: str, config: ViTConfig) -> str:
    """Returns the first of the names that a template with placeholders stands for."""
    standing = templates.placeholders(name)
    return templates.fill(name, {p: templates.values_of(p, config)[0] for p in standing})


def _move(config: ViTConfig, weights: list[lexicon.Weight], stored: StoredAs, name: str) -> Move:
    word, sizes = weights[0].word, dict(weights[0].sizes)
    here = templates.placeholders(word.path)
    there = templates.placeholders(stored.name)
    weight_stack = tuple(p for p in here if p not in there)
    file_stack = tuple(p for p in there if p not in here)
    for p in weight_stack:
        sizes[p] = len({weight.binding[p] for weight in weights})
    for p in file_stack:
        sizes[p] = len(templates.values_of(p, config))
    values = (templates.values_of(p, config) for p in file_stack)
    return Move(
        paths=tuple(weight.path for weight in weights),
        names=tuple(
            templates.fill(name, dict(zip(file_stack, combination, strict=True)))
            for combination in itertools.product(*values)
        ),
        weight_axes=word.axes,
        file_axes=stored.axes or word.axes,
        weight_stack=weight_stack,
        file_stack=file_stack,
        other_file_axes=stored.also,
        sizes=sizes,
    )


def compare(
    reader: Reader, moves: Sequence[Move], ignored: Mapping[str, str], model: str, fits: str | None
) -> None:
    """Compares names, shapes and types of a file with a plan, before any array is read.

    Args:
        reader: the open file.
        moves: the plan; it names the arrays that the file should hold.
        ignored: names of arrays that are no weights.
        model: description of the model, for the message.
        fits: the variant that the file's shapes fit, if it is another.

    Raises:
        CheckpointError: arrays are missing, misshapen, of a wrong type, or unexpected; the
            message has a line for each, up to 24 of each kind, and their number.
    """
    shapes, dtypes = reader.shapes, reader.dtypes
    move_of = {name: move for move in moves for name in move.names}
    missing = [name for name in move_of if name not in shapes]
    misshapen, no_floats = [], []
    for name, move in move_of.items():
        if name in shapes:
            if move.file_axes_for(shapes[name]) is None:
                misshapen.append(name)
            elif dtypes[name].kind != "f" and dtypes[name].name != "bfloat16":
                no_floats.append(name)
    unexpected = [name for name in shapes if name not in move_of and name not in ignored]
    count = len(missing) + len(misshapen) + len(no_floats) + len(unexpected)
    if not count:
        return
    close = [name for name in _ends(unexpected) if len(name) < 200]
    lines: list[str] = []
    for name in _ends(missing):
        near = difflib.get_close_matches(name, close, n=1, cutoff=0.8)
        hint = f"; nearest unclaimed name: {near[0]}" if near else ""
        lines.append(f"missing: {name}, expected {_place_in_words(move_of[name])}{hint}")
    for name in _ends(misshapen):
        shape, expected = shown(shapes[name], quoted=False), _place_in_words(move_of[name])
        lines.append(f"misshapen: {name} is {shape}, expected {expected}")
    for name in _ends(no_floats):
        lines.append(f"not numbers to compute with: {name} is {dtypes[name]}, expected a float")
    for name in _ends(unexpected):
        brief, shape = shown(name, 300, quoted=False), shown(shapes[name], quoted=False)
        lines.append(f"unexpected: {brief} {shape} is no weight of this model")
    if count > len(lines):
        lines.append(f"and {count - len(lines):,} more")
    subject = "1 array does" if count == 1 else f"{count:,} arrays do"
    advice = f"\nThe shapes fit {fits}." if fits else ""
    listing = "\n  ".join(lines)
    raise CheckpointError(f"{reader.path}: {subject} not fit {model}.\n  {listing}{advice}")


def _ends(names: list[str]) -> list[str]:
    """Returns all names if they are few, else the first and the last."""
    return names if len(names) <= FIRST + LAST else names[:FIRST] + names[-LAST:]


def _place_in_words(move: Move) -> str:
    """Returns `"(24, 3, 8) [hidden_size, num_heads, head_dim] for block_0/attention/..."`."""
    words = [
        " * ".join(
            lexicon.AXES[symbol].words if symbol in lexicon.AXES else symbol for symbol in group
        )
        for group in axes.parse(move.file_axes)
    ]
    return f"{move.file_shape} [{', '.join(words)}] for {', '.join(move.paths)}"


def to_weights(
    moves: Iterable[Move], read: Callable[[str], np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields `(path, array)` of each weight, reading the file's arrays one move at a time."""
    for move in moves:
        yield from move.to_weights([read(name) for name in move.names])


def to_parts(moves: Iterable[Move], read: Callable[[str], np.ndarray]) -> Iterator[Part]:
    """Yields the parts of the file's arrays, reading one weight at a time where possible."""
    for move in moves:
        yield from move.to_parts(read)
