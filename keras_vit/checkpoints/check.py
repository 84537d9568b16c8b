"""Compares a file with the model that it should hold, before any weight is read."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from keras_vit.checkpoints.translate import Move, Shape
from keras_vit.errors import CheckpointError, shown
from keras_vit.weights import axes
from keras_vit.weights.lexicon import AXES

FIRST, LAST = 20, 4
"""Most lines for each kind of difference, from both ends of its list; others are counted."""


def _some(names: list[str]) -> list[str]:
    """Returns the names, or the first and the last of many names."""
    return names if len(names) <= FIRST + LAST else names[:FIRST] + names[-LAST:]


def check(
    path: Path,
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, np.dtype],
    moves: Sequence[Move],
    ignored: Mapping[str, str],
    model: str,
    fits: str | None,
) -> None:
    """Compares names, shapes and dtypes with a plan.

    Args:
        path: path of the file, for the message.
        shapes, dtypes: shapes and dtypes of the arrays in the file, by name.
        moves: the plan; it names the arrays that the file should hold.
        ignored: names of arrays that are no weights.
        model: description of the wanted model, for the message.
        fits: the variant that the file's shapes fit, if it is another.

    Raises:
        CheckpointError: arrays are missing, misshapen, of a wrong type, or unexpected; the
            message has a line for each, up to 24 of each kind, and their number.
    """
    expected = {name: move for move in moves for name in move.names}
    missing = [name for name in expected if name not in shapes]
    misshapen, not_floats = [], []
    for name, move in expected.items():
        if name in shapes:
            if move.file_axes_for(shapes[name]) is None:
                misshapen.append(name)
            elif dtypes[name].kind != "f" and dtypes[name].name != "bfloat16":
                not_floats.append(name)
    unexpected = [name for name in shapes if name not in expected and name not in ignored]
    count = len(missing) + len(misshapen) + len(not_floats) + len(unexpected)
    if not count:
        return
    close = [name for name in _some(unexpected) if len(name) < 200]
    lines: list[str] = []
    for name in _some(missing):
        near = difflib.get_close_matches(name, close, n=1, cutoff=0.8)
        hint = f"; nearest unclaimed name: {near[0]}" if near else ""
        lines.append(f"missing: {name}, expected {_described(expected[name])}{hint}")
    for name in _some(misshapen):
        found, wanted = shapes[name], _described(expected[name])
        lines.append(f"misshapen: {name} is {shown(found, quoted=False)}, expected {wanted}")
    for name in _some(not_floats):
        lines.append(f"not numbers to compute with: {name} is {dtypes[name]}, expected a float")
    for name in _some(unexpected):
        brief, shape = shown(name, 300, quoted=False), shown(shapes[name], quoted=False)
        lines.append(f"unexpected: {brief} {shape} is no weight of this model")
    if count > len(lines):
        lines.append(f"and {count - len(lines):,} more")
    subject = "1 array does" if count == 1 else f"{count:,} arrays do"
    advice = f"\nThe shapes fit {fits}." if fits else ""
    raise CheckpointError(f"{path}: {subject} not fit {model}.\n  " + "\n  ".join(lines) + advice)


def _described(move: Move) -> str:
    """Returns `"(24, 3, 8) [hidden_size, num_heads, head_dim] for block_0/attention/..."`."""
    words = [
        " * ".join(AXES[symbol].words if symbol in AXES else symbol for symbol in group)
        for group in axes.parse(move.file_axes)
    ]
    return f"{move.file_shape} [{', '.join(words)}] for {', '.join(move.paths)}"
