"""The translation engine: names and axes, both directions, from one word table per dialect.

The rule: a placeholder that stands on only one side is an axis on the other. So
`block_{l}/attention/{qkv}/kernel, m h d` and `blocks.{l}.attn.qkv.weight, (qkv h d) m`
say that three of our arrays are one of theirs, and `.../encoderblock/..., l m h d`
that theirs is one for all blocks. Reading and writing take the same plan.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from keras_vit.checkpoints import axes, lexicon
from keras_vit.checkpoints.containers import Part, parts_of
from keras_vit.checkpoints.dialects.base import Cannot, Dialect, Theirs
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


def plan(config: ViTConfig, dialect: Dialect, prefix: str = "") -> list[Move]:
    """Returns the moves between a model and a checkpoint of the dialect, in the model's order.

    Raises:
        CheckpointError: the dialect cannot hold one of the model's weights.
    """
    groups: dict[tuple[str, str], list[lexicon.Weight]] = {}
    chosen: dict[str, Theirs] = {}
    for weight in lexicon.weights(config):
        theirs = dialect.word_for(weight.word.path, config)
        if isinstance(theirs, Cannot):
            raise CheckpointError(
                f"The {dialect.name} dialect has no place for {weight.path}: {theirs.reason}."
            )
        name = lexicon.filled(theirs.name, weight.binding)
        key = (weight.word.path, name if theirs.outside else prefix + name)
        chosen[weight.word.path] = theirs
        groups.setdefault(key, []).append(weight)
    return [_move(config, weights, chosen[word], name) for (word, name), weights in groups.items()]


def _move(config: ViTConfig, weights: list[lexicon.Weight], theirs: Theirs, name: str) -> Move:
    word, sizes = weights[0].word, dict(weights[0].sizes)
    here = lexicon.placeholders(word.path)
    there = lexicon.placeholders(theirs.name)
    our_stack = tuple(p for p in here if p not in there)
    their_stack = tuple(p for p in there if p not in here)
    for p in our_stack + their_stack:
        sizes[p] = len(lexicon.values_of(p, config))
    values = (lexicon.values_of(p, config) for p in their_stack)
    return Move(
        ours=tuple(weight.path for weight in weights),
        theirs=tuple(
            lexicon.filled(name, dict(zip(their_stack, combination, strict=True)))
            for combination in itertools.product(*values)
        ),
        our_axes=word.axes,
        their_axes=theirs.axes or word.axes,
        our_stack=our_stack,
        their_stack=their_stack,
        their_other_axes=theirs.also,
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


@dataclasses.dataclass(frozen=True)
class Recognition:
    """What the names and shapes of a file tell under one dialect.

    Args:
        dialect, prefix: whose names these are, and what stands in front of each.
        fields: of `ViTConfig`, as far as names and shapes tell (`lexicon.fields_from`).
        ignored: names that hold no weights of the model, with the reason.
        claimed: how many names are words of the dialect.
    """

    dialect: Dialect
    prefix: str
    fields: dict
    ignored: dict[str, str]
    claimed: int


def recognise(shapes: Mapping[str, Shape], dialects: Iterable[Dialect]) -> Recognition | None:
    """Returns the dialect and prefix that claim most names; None if no ViT is in sight.

    Where two claim as many, as a file without position embeddings lets them, that one
    wins whose own fields agree with what was found.
    """
    candidates = (_recognise(shapes, d, prefix) for d in dialects for prefix in d.prefixes)
    best = max(candidates, key=lambda r: (r.claimed, not _contradicted(r), -len(r.prefix)))
    has_patches = "patch_size" in best.fields and best.fields["num_layers"] > 0
    return best if has_patches else None


def _contradicted(recognition: Recognition) -> bool:
    found = recognition.fields
    return any(
        found.get(name, value) != value for name, value in recognition.dialect.fields.items()
    )


def _recognise(shapes: Mapping[str, Shape], dialect: Dialect, prefix: str) -> Recognition:
    votes: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    found: dict[str, list[dict[str, str]]] = collections.defaultdict(list)
    ignored: dict[str, str] = {}
    implied: dict = {}
    templates = _templates(dialect)
    for name, shape in shapes.items():
        for expression, reason in dialect.ignored.items():
            if re.fullmatch(expression, name):
                ignored[name] = reason
        if name in ignored:
            continue
        for path, theirs, match, all_axes in templates:
            if not theirs.outside and not name.startswith(prefix):
                continue
            binding = match(name if theirs.outside else name.removeprefix(prefix))
            if binding is None:
                continue
            found[path].append(binding)
            implied |= theirs.implies
            sizes = next(filter(None, (axes.solve(a, shape) for a in all_axes)), {})
            for symbol, size in sizes.items():
                # Only the root's width is one number for a whole model.
                local = path.startswith("root/") and symbol == "w"
                votes["root w" if local else symbol][size] += 1
            break
    claimed = sum(len(bindings) for bindings in found.values())
    fields = {**lexicon.fields_from(votes, found), **implied}
    return Recognition(dialect, prefix, fields, ignored, claimed)


Template = tuple[str, Theirs, Callable[[str], dict[str, str] | None], tuple[str, ...]]


def _templates(dialect: Dialect) -> list[Template]:
    """Our path, their word, a matcher of its names and the axes it may have, for every word."""
    return [
        (word.path, theirs, lexicon.matcher(theirs.name), (theirs.axes or word.axes, *theirs.also))
        for word in lexicon.LEXICON
        for theirs in dialect.all_words(word.path)
    ]
