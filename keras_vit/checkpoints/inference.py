"""The configuration of a model, inferred from the names and shapes of its file."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError
from keras_vit.weights.lexicon import UNIT


@dataclasses.dataclass(frozen=True)
class Sign:
    """The fields of a configuration that follow from the presence of a weight in its file.

    Args:
        path: path of the weight, or the start of several paths.
        present: fields of `ViTConfig` for a file with the weight.
        absent: fields of `ViTConfig` for a file without the weight.
    """

    path: str
    present: Mapping[str, Any]
    absent: Mapping[str, Any] = dataclasses.field(default_factory=dict)


SIGNS: tuple[Sign, ...] = (
    Sign(
        "class_token/token",
        {"classifier": "token", "class_token": True},
        {"classifier": "gap", "class_token": None},
    ),
    Sign("pool/", {"classifier": "map"}),
    Sign("position_embedding/embedding", {"position": "learned"}, {"position": "sincos2d"}),
    Sign("block_{l}/attention/{qkv}/bias", {"qkv_bias": True}, {"qkv_bias": False}),
    Sign("distillation_token/", {"distillation_token": True}, {"distillation_token": False}),
    Sign("register_tokens/", {}, {"num_registers": 0}),
    Sign("mask_token/", {"mask_token": True}, {"mask_token": False}),
    Sign("patch_embedding/bias", {"patch_bias": True}, {"patch_bias": False}),
    Sign("patch_norm/", {"patch_norm": True}, {"patch_norm": False}),
    Sign("pre_norm/", {"pre_norm": True}, {"pre_norm": False}),
    Sign("encoder_norm/", {"final_norm": True}, {"final_norm": False}),
    Sign("block_{l}/attention_norm/beta", {"norm": "layer"}, {"norm": "rms"}),
    Sign("block_{l}/attention/out/bias", {"projection_bias": True}, {"projection_bias": False}),
    Sign("block_{l}/attention/rotary_frequencies", {"rope": {"form": "mixed"}}, {"rope": None}),
    Sign(
        "block_{l}/attention/sub_norm/",
        {"sub_norm_attention": True},
        {"sub_norm_attention": False},
    ),
    Sign("block_{l}/attention_scale/", {"layer_scale": True}, {"layer_scale": False}),
    Sign("block_{l}/mlp/{gate}/", {"mlp": "gated"}, {"mlp": "plain"}),
    Sign("block_{l}/mlp/dense_1/bias", {"mlp_bias": True}, {"mlp_bias": False}),
    Sign("block_{l}/mlp/sub_norm/", {"sub_norm_mlp": True}, {"sub_norm_mlp": False}),
    Sign("projection/", {}, {"projection_dim": None}),
    Sign("pre_logits/", {}, {"representation_size": None}),
    Sign("head/", {}, {"num_classes": 0}),
    Sign("head/{head}/", {"classifier": "token_and_distillation"}),
)
"""If two signs set one field, the later sign decides."""

SIZES = {
    "m": "hidden_size",
    "f": "mlp_dim",
    "h": "num_heads",
    "n": "num_positions",
    "r": "representation_size",
    "k": "num_classes",
    "g": "num_registers",
    "t": "projection_dim",
    "pool h": "map_num_heads",
    "pool f": "map_mlp_dim",
    "c": "channels",
    "i": "channels",
}
"""Axis -> the field with the axis's size; a hybrid's `c` is not used: it belongs to the stem."""


def fields_from(
    votes: Mapping[str, Counter[int]],
    found: Mapping[str, list[dict[str, str]]],
) -> dict[str, Any]:
    """Returns the fields of `ViTConfig` that follow from a file's names and shapes.

    Args:
        votes: axis symbol -> sizes, with the number of arrays that have each size. The
            majority wins, so that one misshapen array is reported against the rest.
        found: path template -> the values of its placeholders in the file.

    Returns:
        The fields that can be inferred. `"num_positions"` stands in for the image size,
        which does not follow from the number of positions alone.
    """
    size = {symbol: counts.most_common(1)[0][0] for symbol, counts in votes.items()}
    is_hybrid = "root/conv/kernel" in found or any(path.startswith(UNIT) for path in found)
    fields: dict[str, Any] = {
        field: size[symbol]
        for symbol, field in SIZES.items()
        if symbol in size and not (is_hybrid and symbol == "c")
    }
    for sign in SIGNS:
        has = any(path.startswith(sign.path) for path in found)
        fields |= sign.present if has else sign.absent
    if "head/kernel" in found and size.get("e") == 2 * size.get("m", 0):
        fields["classifier"] = "token_and_mean"
    if "f" in votes and (width := _packed_width(votes["f"], found)):
        fields |= {"mlp": "gated_packed", "mlp_dim": width}
    fields["num_layers"] = size.get("l") or _count(found)
    if "p" in size and "q" in size:
        fields["patch_size"] = (size["p"], size["q"])
    fields["resnet"] = None
    if is_hybrid:
        units = _units_per_stage(found)
        fields["resnet"] = {"num_layers": units, "width_factor": size.get("root w", 64) / 64}
        fields.setdefault("channels", 3)
    return fields


def _packed_width(votes: Counter[int], found: Mapping[str, list[dict[str, str]]]) -> int | None:
    """Width of a gated MLP whose first array holds gate and value, under the name of a plain one.

    That array is twice as wide as what the second one reads, in every block.
    """
    first, second = (len(found.get(f"block_{{l}}/mlp/dense_{i}/kernel", ())) for i in (0, 1))
    widths = (w for w, count in votes.items() if count >= second and votes[2 * w] >= first)
    return next(widths, None) if first and second else None


def numbers(found: Mapping[str, list[dict[str, str]]], placeholder: str) -> set[int]:
    """Returns the values of a numeric placeholder that the names of a file have."""
    bindings = (binding for bindings in found.values() for binding in bindings)
    return {int(binding[placeholder]) for binding in bindings if placeholder in binding}


def _count(found: Mapping[str, list[dict[str, str]]]) -> int:
    """Returns the number of blocks, by the highest number in a name."""
    return max(numbers(found, "l"), default=-1) + 1


def _units_per_stage(found: Mapping[str, list[dict[str, str]]]) -> list[int]:
    units: dict[int, int] = {}
    for template, bindings in found.items():
        if template.startswith(UNIT):
            for binding in bindings:
                s, u = int(binding["s"]), int(binding["u"])
                units[s] = max(u, units.get(s, 0))
    return [units.get(s, 1) for s in range(1, min(max(units, default=0), 99) + 1)]


def with_grid(
    fields: dict[str, Any], num_positions: int | None, asked: Mapping[str, Any]
) -> tuple[ViTConfig, tuple[str, ...]]:
    """Returns the configuration with the grid of the stored positions, and undetermined fields.

    A square number of positions stands for a square grid, as in the reference; any other
    number needs `position_grid`, or an `image_size` with that number of patches.
    """
    stated_size = fields.get("image_size")
    base = ViTConfig.from_dict({**fields, "image_size": None, "position_grid": (1, 1)})
    if stated_size is not None:
        grid = fields.get("position_grid")
        sized = base.replace(image_size=stated_size, position_grid=grid, crop_remainder=True)
        divides = sized.image_size is None or not any(sized.remainder_of(sized.image_size))
        return sized.replace(crop_remainder=not divides), ()
    if num_positions is None:
        return base, ()
    # The names may leave open whether class token and registers have positions; the number of
    # positions decides.
    alternatives = [base]
    if base.has_class_position and "position_before_class" not in fields:
        alternatives.append(base.replace(position_before_class=True))
    if base.num_registers and "position_before_registers" not in fields:
        alternatives.append(base.replace(position_before_registers=True))
    grids = [_grid_of(b, num_positions - b.num_prefix_positions, asked) for b in alternatives]
    base, grid = next(((b, g) for b, g in zip(alternatives, grids, strict=True) if g), (base, None))
    if grid is None:
        count = num_positions - base.num_prefix_positions
        return base.replace(position_grid=(1, max(count, 1))), ("image_size",)
    base = base.replace(position_grid=grid)
    size = (grid[0] * base.stride[0], grid[1] * base.stride[1])
    return base.replace(image_size=size, position_grid=None), ()


def _grid_of(base: ViTConfig, count: int, asked: Mapping[str, Any]) -> tuple[int, int] | None:
    if asked.get("position_grid") is not None:
        grid = base.replace(position_grid=asked["position_grid"]).source_grid
        if grid[0] * grid[1] != count:
            raise ConfigError(
                f"position_grid={grid} has {grid[0] * grid[1]} cells, the file {count} positions."
            )
        return grid
    side = round(max(count, 0) ** 0.5)
    if side > 0 and side * side == count:
        return side, side
    if asked.get("image_size") is not None:
        cropped = base.replace(image_size=asked["image_size"], crop_remainder=True)
        if cropped.grid and cropped.grid[0] * cropped.grid[1] == count:
            return cropped.grid
    return None
