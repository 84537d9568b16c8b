"""Plans the translation of an encoder, and compares every array of its file with the plan."""

import collections
import re
from collections.abc import Iterable, Sequence

from keras_vit.checkpoints.match import Match, list_known
from keras_vit.checkpoints.moves import Move, compare, plan
from keras_vit.checkpoints.prefix import OPTIMIZER
from keras_vit.config import ViTConfig
from keras_vit.config.variants import find_variant
from keras_vit.errors import listed
from keras_vit.support.text import log


def fit(match: Match, config: ViTConfig, drops_head: bool) -> tuple[list[Move], dict[str, str]]:
    """Returns the plan of an encoder, and the arrays of the file that are skipped, with reasons.

    The log names, in one line, skipped parts of the file that are not known.

    Args:
        match: the arrays and their format.
        config: configuration of the file's model.
        drops_head: whether the caller wants no head.

    Raises:
        CheckpointError: arrays are missing, unexpected, or have a wrong shape or type; the message
            names them.
    """
    moves = plan(config, match.format, names=match.reader.shapes)
    extra = _find_left_over(match, moves, config.hidden_size)
    ignored = {**match.evidence.ignored, **extra}
    if drops_head:
        moves, heads = _drop_head(moves, match.reader.shapes)
        ignored |= heads
    model = f"{find_variant(config) or 'the model'} in the format {match.format.name}"
    compare(match.reader, moves, ignored, model, match.name_in_file)
    encoder = match.encoder
    known = list_known(encoder.outside, match.format)
    unknown = [name for name in encoder.outside if name not in known]
    _announce(match, [*unknown, *map(match.name_in_file, extra)])
    return moves, {
        **{match.name_in_file(name): reason for name, reason in ignored.items()},
        **known,
        **dict.fromkeys(unknown, "outside of the model"),
        **dict.fromkeys(encoder.skipped, "ignored by the caller"),
    }


def _announce(match: Match, names: Sequence[str]) -> None:
    """Logs in one line which arrays of the file are skipped."""
    prefix, choice = match.encoder.prefix, match.encoder.choice
    left = collections.Counter(_find_part(name, prefix) for name in names)
    if left or choice:
        parts = [f"{part} ({count})" for part, count in left.items()]
        log.warning(
            "%s: the Vision Transformer is read from %s%s; skipped, with the number of arrays: %s.",
            *(match.reader.path, repr(prefix) if prefix else "the top", choice),
            listed(parts, 12),
        )


def _find_left_over(match: Match, moves: Sequence[Move], hidden_size: int) -> dict[str, str]:
    """Returns the arrays of an unknown head or of an optimizer, and the reason to skip each.

    All other unknown arrays could change the outputs, so that they are refused.

    Args:
        match: the arrays and their format.
        moves: the plan, which names the model's arrays.
        hidden_size: width of the model's tokens.
    """
    evidence, shapes = match.evidence, match.reader.shapes
    own = {move.name for move in moves}
    parts = {_find_part(name, "") for name in own}
    heads = [stored.name for stored in evidence.format.names.get("head/kernel", ())]
    unread = {_find_part(name, "") for name in heads} - parts
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in shapes:
        if name not in own and name not in evidence.ignored and name not in evidence.explained:
            groups[_find_part(name, "")].append(name)
    return {
        name: "a module that the model does not have"
        for part, names in groups.items()
        if (part in unread or OPTIMIZER.match(part)) and part.endswith(".") and part not in parts
        if {shapes[name] for name in names} != {(hidden_size,)}
        for name in names
    }


def _drop_head(moves: Sequence[Move], names: Iterable[str]) -> tuple[list[Move], dict[str, str]]:
    """Returns a plan without the head, and the arrays of the head with the reason to ignore them.

    Args:
        moves: the plan.
        names: names of the arrays.
    """
    kept = [move for move in moves if not move.paths[0].startswith("head/")]
    heads = {move.name for move in moves} - {move.name for move in kept}
    parts = {_find_part(name, "") for name in heads} - {_find_part(m.name, "") for m in kept}
    ignored = [name for name in names if name in heads or _find_part(name, "") in parts]
    return kept, dict.fromkeys(ignored, "the head, which num_classes=0 removes")


def _find_part(name: str, prefix: str) -> str:
    """Returns the start of a name, up to the first module that is not in the prefix."""
    pairs = enumerate(zip(name, prefix, strict=False))
    start = next((k for k, (a, b) in pairs if a != b), min(len(name), len(prefix)))
    end = re.compile("[./]").search(name, start)
    return name if end is None else name[: end.end()]
