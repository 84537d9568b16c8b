"""The translation engine: names and axes, both directions, from one word table per dialect.

The rule: a placeholder that stands on only one side is an axis on the other. So
`block_{l}/attention/{qkv}/kernel, m h d` and `blocks.{l}.attn.qkv.weight, (qkv h d) m`
say that three of our arrays are one of theirs, and `.../encoderblock/..., l m h d`
that theirs is one for all blocks. Reading and writing take the same plan.
"""

import dataclasses
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import numpy as np

from keras_vit.checkpoints import axes, lexicon, templates
from keras_vit.checkpoints.containers import Part, parts_of
from keras_vit.checkpoints.dialects.base import Dialect, StoredAs, Unsupported
from keras_vit.config import ViTConfig
from keras_vit.errors import CheckpointError

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Move:
    """One group of our weights and the group of their arrays that holds the same numbers.

    Args:
        ours, theirs: paths and names; mostly one of each.
        our_axes, their_axes: axes of one of ours and one of theirs.
        our_stack, their_stack: axes along which several are stacked.
        their_other_axes: further axes that one of theirs may be found with.
        sizes: of every axis.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    our_axes: str
    their_axes: str
    our_stack: tuple[str, ...]
    their_stack: tuple[str, ...]
    their_other_axes: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def their_shape(self) -> Shape:
        return axes.shape_of(self.their_axes, self.sizes)

    def their_axes_for(self, shape: Shape) -> str | None:
        """Returns the axes under which an array of that shape is accepted, or None."""
        for candidate in (self.their_axes, *self.their_other_axes):
            if axes.shape_of(candidate, self.sizes) == shape:
                return candidate
        return None

    def to_ours(self, arrays: list[np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yields our `(path, array)` from their arrays, given in the order of `theirs`."""
        found = self.their_axes_for(arrays[0].shape) or self.their_axes
        yield from zip(
            self.ours,
            _restack(arrays, self.their_stack, found, self.our_stack, self.our_axes, self.sizes),
            strict=True,
        )

    def to_parts(self, read: Callable[[str], np.ndarray]) -> Iterator[Part]:
        """Yields their arrays from ours: a stack whose axes come first one by one, unstacked."""
        symbols = [symbol for group in axes.parse(self.their_axes) for symbol in group]
        stack = len(self.our_stack)
        if not self.their_stack and tuple(symbols[:stack]) == self.our_stack:
            rest = " ".join(symbols[stack:])
            for path in self.ours:
                part = axes.spread(read(path), self.our_axes, rest, self.sizes)
                yield Part(self.theirs[0], self.their_shape, part)
            return
        arrays = [read(path) for path in self.ours]
        yield from parts_of(
            zip(
                self.theirs,
                _restack(
                    arrays,
                    self.our_stack,
                    self.our_axes,
                    self.their_stack,
                    self.their_axes,
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
    """Stacks, rearranges and takes apart again; copies nothing where nothing changes."""
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
        config: of the model.
        dialect, prefix: of the checkpoint.
        names: those of a file to be read. Where the dialect has several names for a weight,
            the one that the file has is taken; otherwise the one that is written.

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
    """The name of an array; placeholders that only the dialect has are left standing."""
    name = templates.filled(stored.name, weight.binding)
    return name if stored.outside else prefix + name


def _first(name: str, config: ViTConfig) -> str:
    """The first of the names that a template with placeholders of its own stands for."""
    standing = templates.placeholders(name)
    return templates.filled(name, {p: templates.values_of(p, config)[0] for p in standing})


def _move(config: ViTConfig, weights: list[lexicon.Weight], stored: StoredAs, name: str) -> Move:
    word, sizes = weights[0].word, dict(weights[0].sizes)
    here = templates.placeholders(word.path)
    there = templates.placeholders(stored.name)
    our_stack = tuple(p for p in here if p not in there)
    their_stack = tuple(p for p in there if p not in here)
    for p in our_stack:
        sizes[p] = len({weight.binding[p] for weight in weights})
    for p in their_stack:
        sizes[p] = len(templates.values_of(p, config))
    values = (templates.values_of(p, config) for p in their_stack)
    return Move(
        ours=tuple(weight.path for weight in weights),
        theirs=tuple(
            templates.filled(name, dict(zip(their_stack, combination, strict=True)))
            for combination in itertools.product(*values)
        ),
        our_axes=word.axes,
        their_axes=stored.axes or word.axes,
        our_stack=our_stack,
        their_stack=their_stack,
        their_other_axes=stored.also,
        sizes=sizes,
    )


def to_ours(
    moves: Iterable[Move], read: Callable[[str], np.ndarray]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields our `(path, array)`, reading their arrays one move at a time."""
    for move in moves:
        yield from move.to_ours([read(name) for name in move.theirs])


def to_parts(moves: Iterable[Move], read: Callable[[str], np.ndarray]) -> Iterator[Part]:
    """Yields the parts of their arrays, reading ours one at a time where that is possible."""
    for move in moves:
        yield from move.to_parts(read)
