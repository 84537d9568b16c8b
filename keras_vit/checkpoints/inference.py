"""Infers the configuration of a model from the names and shapes of its arrays."""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from keras_vit.checkpoints.families.family import PLAIN, Format
from keras_vit.config import ViTConfig
from keras_vit.config.fields import nest
from keras_vit.config.rules import pair
from keras_vit.config.weights.conditions import Place, Term
from keras_vit.config.weights.lexicon import AXES, LEXICON, UNIT
from keras_vit.errors import ConfigError
from keras_vit.support.text import log

_SIZES = {
    **{symbol: axis.words for symbol, axis in AXES.items() if axis.words in PLAIN},
    "n": "num_positions",
    "c": "channels",
    "i": "channels",
}
"""Axis -> the field with its size; `c` is not used for a hybrid, whose stem changes it."""

_INITIAL_SCALE = 1e-5
"""Initial value of the layer scale in DINOv2, which arrays do not show."""

_MAY_BE_ABSENT = ("num_classes", "tokens.class_tokens")
"""Fields whose weights a file of any family may lack."""


def fields_from(
    votes: Mapping[str, Counter[int]],
    bindings: Mapping[str, list[dict[str, str]]],
    format: Format,
) -> tuple[dict[str, Any], dict[str, list[Term]]]:
    """Returns the fields of `ViTConfig`, by path, that follow from a file's names and shapes.

    Args:
        votes: axis symbol -> sizes, with the number of arrays that have each size. The majority
            wins, so that a single array with a wrong shape is reported as such.
        bindings: path template -> the values of its placeholders in the file.
        format: the format of the names.

    Returns:
        The fields, and those of them that only the presence of weights shows, each with the terms
        of the weights that are present. Image size and kind of positions do not follow from the
        shapes; `"num_positions"` is returned instead.
    """
    size = {symbol: counts.most_common(1)[0][0] for symbol, counts in votes.items()}
    is_hybrid = "root/conv/kernel" in bindings or any(path.startswith(UNIT) for path in bindings)
    fields, present = _parts(bindings, format)
    sizes = {
        field: size[symbol]
        for symbol, field in _SIZES.items()
        if symbol in size and not (is_hybrid and symbol == "c")
    }
    if "f" in votes and (width := _packed_width(votes["f"], bindings)):
        sizes |= {"block.gated": True, "mlp_dim": width}
    fields |= sizes
    if kind := _pooling(bindings):
        fields["pool.kind"] = kind
    if "pool f" in size and "pool.mlp_dim" in format.stated:
        fields["pool.mlp_dim"] = size["pool f"]
    fields["num_layers"] = size.get("l") or max(numbers(bindings, "l"), default=-1) + 1
    if "p" in size and "q" in size:
        fields["patch_size"] = (size["p"], size["q"])
    if is_hybrid:
        fields |= {"stem.kind": "resnet", "stem.units": _units_per_stage(bindings)}
        fields["stem.width_factor"] = size.get("root w", 64) / 64
        fields.setdefault("channels", 3)
    positions = "position_embedding/embedding"
    if positions in format.names and positions not in bindings:
        fields["position"] = "sincos2d"
        present["position"] = []
    return fields, {field: terms for field, terms in present.items() if field not in sizes}


def _pooling(paths: Collection[str]) -> str:
    """Returns the pooling that the weights at these paths imply, or ""."""
    if any(path.startswith("head/{head}/") for path in paths):
        return "token_and_distillation"
    if any(path.startswith("pool/") for path in paths):
        return "map"
    return "" if {"class_token/token", "class_tokens/tokens"} & {*paths} else "gap"


def _parts(
    bindings: Mapping[str, list[dict[str, str]]], format: Format
) -> tuple[dict[str, Any], dict[str, list[Term]]]:
    """Returns the fields that the presence of weights shows, and the terms of those present.

    A term of a weight (`Word.held_by`) holds if the file has the weight, or another weight with
    this term. The value of a field is the one for which most of its terms agree with the file; of
    several, the plainest. If a part of the paper's model is absent, this counts only if files of
    the format may lack it; otherwise the file has lost an array.
    """
    terms: dict[str, dict[Term, bool]] = {}
    for word in LEXICON:
        # The absence of a head implies only that num_classes is 0.
        absent = {t.field for t in word.terms if word.path not in bindings} & {*_MAY_BE_ABSENT}
        for term in word.terms:
            is_open = absent - {term.field}
            if term.field in PLAIN and word.path in format.names and not is_open:
                own = terms.setdefault(term.field, {})
                own[term] = own.get(term, False) or word.path in bindings
    fields: dict[str, Any] = {}
    present: dict[str, list[Term]] = {}
    terms.pop("pool.kind", None)  # `_pooling` finds it
    terms.pop("dense", None)  # only JSON states it
    for field, held in terms.items():
        scores = {v: sum(admits(t, v) == held[t] for t in held) for v in _list_candidates(field)}
        value = max(scores, key=lambda value: scores[value])
        if field == "block.qkv_bias":
            value = _find_biases(bindings)
        met = [term for term, is_met in held.items() if is_met]
        shows = not all(admits(term, PLAIN[field]) for term in met)
        if value == PLAIN[field] or shows or field in (*_MAY_BE_ABSENT, *format.optional):
            fields[field] = value
            if field not in (*_MAY_BE_ABSENT, "block.qkv_bias"):  # people train without these
                present[field] = met
    return fields, present


def _find_biases(bindings: Mapping[str, list[dict[str, str]]]) -> bool | tuple[bool, ...]:
    found = bindings.get("block_{l}/attention/{qkv}/bias", ())
    own = {binding.get("qkv") for binding in found}
    if not own or None in own:  # one array of all three
        return bool(own)
    biases = tuple(name in own for name in ("query", "key", "value"))
    return True if all(biases) else biases


def _list_candidates(field: str) -> tuple[Any, ...]:
    """Returns the possible values of a field, the plainest first."""
    default, (kind, values) = PLAIN[field], Place(field).declaration()
    if isinstance(default, bool):
        return False, True
    if values is not None and values.words:
        return (*((None,) if values.include(None) else ()), *values.words)
    return None if default is None else 0, _INITIAL_SCALE if kind == float | None else 1


def admits(term: Term, value: Any) -> bool:
    """Whether a value of the field meets the term."""
    return (value in term.values if term.values else bool(value)) is not term.is_met_by_others


def _packed_width(votes: Counter[int], bindings: Mapping[str, list[dict[str, str]]]) -> int | None:
    """Returns the width of a gated MLP that stores gate and value in one array; None if plain.

    This array has the name of the first array of a plain MLP, but twice the width of the input of
    the second, in every block.
    """
    first, second = (len(bindings.get(f"block_{{l}}/mlp/dense_{i}/kernel", ())) for i in (0, 1))
    widths = (w for w, count in votes.items() if count >= second and votes[2 * w] >= first)
    return next(widths, None) if first and second else None


def numbers(bindings: Mapping[str, list[dict[str, str]]], placeholder: str) -> set[int]:
    """Returns the values of a numeric placeholder in the names of a file."""
    every = itertools.chain.from_iterable(bindings.values())
    return {int(binding[placeholder]) for binding in every if placeholder in binding}


def _units_per_stage(bindings: Mapping[str, list[dict[str, str]]]) -> list[int]:
    pairs = [
        (int(binding["s"]), int(binding["u"]))
        for template, own in bindings.items()
        if template.startswith(UNIT)
        for binding in own
    ]
    units = dict(sorted(pairs))  # the last pair of a stage has its highest number
    return [units.get(s, 1) for s in range(1, min(max(units, default=0), 99) + 1)]


def with_grid(
    fields: dict[str, Any], num_positions: int | None, arguments: Mapping[str, Any]
) -> tuple[ViTConfig, tuple[str, ...]]:
    """Returns the configuration with the grid of the stored positions, and undetermined fields.

    A square number of positions is interpreted as a square grid, as in the reference; any other
    number needs `position_grid`, or an `image_size` with that number of patches. If names
    and JSON do not determine which tokens have positions, the grid decides.

    Args:
        fields: fields of the model, by path.
        num_positions: number of stored positions, or None.
        arguments: the caller's fields, by path.

    Raises:
        ConfigError: `position_grid` has another number of patches, or two grids are possible.
    """
    image_size = None if arguments.get("position_grid") else fields.get("image_size")
    base = ViTConfig.from_dict(nest({**fields, "image_size": None, "position_grid": (1, 1)}))
    if image_size is not None:
        grid = fields.get("position_grid")
        sized = base.replace(image_size=image_size, position_grid=grid)
        grid = None if sized.grid == sized.source_grid else grid
        return sized.replace(position_grid=grid), ()
    if num_positions is None:
        grid = arguments.get("position_grid") or fields.get("position_grid", (1, 1))
        return base.replace(position_grid=grid), ()
    stated = "" if "position" in arguments else fields.get("position")
    models = [base.replace(position=kind) for kind in _OTHER_POSITIONS.get(stated, ())]
    alternatives = list(dict.fromkeys([base, *models]))  # kinds may be equivalent for this model
    counts = {b: num_positions - b.num_prefix_positions for b in reversed(alternatives)}
    grids = {b: _find_grid(b, count, arguments) for b, count in counts.items()}
    base, grid = next(((b, grids[b]) for b in alternatives if grids[b]), (base, None))
    if arguments.get("position_grid") and grid is None:
        rows, columns = pair("position_grid", arguments["position_grid"])
        expected = " or ".join(str(count) for count in dict.fromkeys(counts.values()))
        raise ConfigError(
            f"position_grid={(rows, columns)} has {rows * columns} cells, but the file has "
            f"positions for {expected} patches."
        )
    if grid is not None and not arguments.get("position_grid"):
        others = {b: count for b, count in counts.items() if b != base}
        _refuse_two_readings(num_positions, others, base, arguments.get("image_size"))
    if grid is None:
        count = num_positions - base.num_prefix_positions
        return base.replace(position_grid=(1, max(count, 1))), ("image_size",)
    base = base.replace(position_grid=grid)
    size = (grid[0] * base.stride[0], grid[1] * base.stride[1])
    return base.replace(image_size=size, position_grid=None), ()


_OTHER_POSITIONS = {
    None: ("learned_patches", "learned_except_registers"),
    "learned_except_registers": ("learned_patches",),
}
"""Kind of positions according to names and JSON -> other kinds that are also possible."""
_USUAL_SIZES = (224, 256, 384, 448, 512, 518)
"""Common image sizes in pixels, for which an ambiguous square grid is accepted, with a warning."""


def _refuse_two_readings(
    num_positions: int, counts: Mapping[ViTConfig, int], chosen: ViTConfig, image_size: Any
) -> None:
    """Refuses an ambiguous number of positions: with other tokens, it is another grid.

    The alternatives are readings with more tokens, and the one that fits the caller's images.

    Args:
        num_positions: number of stored positions.
        counts: the alternatives, each with its number of patches.
        chosen: the reading that was found.
        image_size: the caller's image size, which decides between the readings; or None.
    """
    square = num_positions - chosen.num_prefix_positions
    side = math.isqrt(square)
    sized = chosen.replace(image_size=image_size)
    asked = (image_size is not None and sized.grid) or (0, 0)
    if side * side != square or asked == (side, side):
        return
    for other, count in counts.items():
        has_more = other.num_prefix_positions > chosen.num_prefix_positions
        has_grid = any(count % rows == 0 for rows in range(2, math.isqrt(max(count, 1)) + 1))
        if not (math.prod(asked) == count or (has_more and has_grid)):
            continue
        readings = (
            f"{num_positions} positions fit two grids: {side} x {side} patches and "
            f"{chosen.num_prefix_positions} other tokens, or {count} patches and "
            f"{other.num_prefix_positions} other tokens. Choose by position_grid=, the rows and "
            "columns of the patches."
        )
        if not any(chosen.compute_grid((size, size)) == (side, side) for size in _USUAL_SIZES):
            raise ConfigError(readings)
        log.warning("%s The first is assumed, a common image size.", readings)
        return


def _find_grid(base: ViTConfig, count: int, arguments: Mapping[str, Any]) -> tuple[int, int] | None:
    if arguments.get("position_grid") is not None:
        rows, columns = pair("position_grid", arguments["position_grid"])
        return (rows, columns) if rows * columns == count else None
    side = round(max(count, 0) ** 0.5)
    if side > 0 and side * side == count:
        return side, side
    if arguments.get("image_size") is not None:
        cropped = base.replace(image_size=arguments["image_size"])
        if cropped.grid and cropped.grid[0] * cropped.grid[1] == count:
            return cropped.grid
    return None
