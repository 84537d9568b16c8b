"""What a checkpoint file holds, told from its headers alone: no model, no backend."""

import dataclasses
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.checkpoints.check import check
from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.dialects import DIALECTS, Dialect, Stated, dialect_named
from keras_vit.checkpoints.dialects.base import not_ours
from keras_vit.checkpoints.dialects.keras_vit import keras_vit
from keras_vit.checkpoints.source import OpenSource, Source
from keras_vit.checkpoints.translate import Move, Recognition, plan, recognise
from keras_vit.config import Numerics, ViTConfig
from keras_vit.errors import CheckpointError, ConfigError, SourceError
from keras_vit.preparation.protocols import ProtocolSpec, compact, complete
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.variants import variant, variant_of

_ARCHITECTURE = (
    "patch_size",
    "hidden_size",
    "mlp_dim",
    "num_heads",
    "num_layers",
    "channels",
    "resnet",
    "classifier",
)
"""Fields that the arrays decide; asked for otherwise, the file is checked against them."""


_OTHERS = (
    (r"relative_position_bias_table", "a Swin Transformer"),
    (r"(^|[./])(text_model|txt|token_embedding|tok_embeddings|embed_tokens)[./]", "a text model"),
    (r"(^|[./])layer\d\.\d+\.(conv|bn)\d|(^|[./])conv1[./](weight|kernel)", "a ResNet"),
    (r"token_mixing|channel_mixing", "an MLP-Mixer"),
)
"""Names by which other models are known."""


@dataclasses.dataclass(frozen=True)
class CheckpointInfo:
    """What a file of weights is.

    Args:
        path: the file.
        dialect: whose names it uses, such as `"google"`.
        prefix: what stands in front of every name.
        config: the model that it holds. Where the image size is undetermined, the
            position embeddings stand in one row.
        variant: name of the variant of those sizes, or None.
        undetermined: fields that the file does not tell and `load` asks for.
        shapes, dtypes: of every array in the file, by name.
        ignored: names that are no weights of the model, with the reason.
        protocol: how images are prepared for it: as the JSON files beside it say, or
            the default of the dialect.
        labels: a name per class, the word of a shipped list, or None.
    """

    path: Path
    dialect: str
    prefix: str
    config: ViTConfig
    variant: str | None
    undetermined: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype]
    ignored: dict[str, str]
    protocol: ProtocolSpec
    labels: str | tuple[str, ...] | None

    @property
    def num_parameters(self) -> int:
        """Numbers in the weights of the model."""
        return sum(math.prod(s) for name, s in self.shapes.items() if name not in self.ignored)


@dataclasses.dataclass(frozen=True)
class Opened:
    """An open file, understood and checked; `load` reads on from here."""

    reader: Reader
    dialect: Dialect
    info: CheckpointInfo
    moves: list[Move]


def inspect(source: str | os.PathLike[str] | Source, **fields: Any) -> CheckpointInfo:
    """Tells what a checkpoint holds, from names and shapes alone.

    Args:
        source: a file or folder of any dialect, or whatever else `from_preset` takes.
        **fields: what the file does not tell; see `load`.

    Raises:
        CheckpointError: the file cannot be read, is no ViT, or its arrays do not
            make the model that they announce.
    """
    source = Source.of(source)
    with source.open(headers=True) as files:
        return understand(files, {**source.told, **fields}).info


def describe(
    source: str | os.PathLike[str] | Source, **fields: Any
) -> PresetConfig | CheckpointInfo:
    """Tells what `from_preset` would load, without a backend; by headers alone where they do.

    Args:
        source: as for `VisionTransformer.from_preset`.
        **fields: what a checkpoint does not tell; see `load`.

    Returns:
        The `PresetConfig` of a keras_vit preset or of a catalog row, which is not fetched for it;
        else what `inspect` tells.

    Raises:
        PresetError: there is no such preset, or it is damaged.
        CheckpointError: the weights are of no Vision Transformer.
    """
    source = Source.of(source)
    return source.preset() or inspect(source, **fields)


def understand(files: OpenSource, fields: dict[str, Any]) -> Opened:
    """Recognises the dialect, infers the configuration and checks every array against it.

    Args:
        files: the open source.
        fields: of `ViTConfig`, plus `variant` and `dialect`: what the caller knows.
    """
    reader, declared, asked = files.reader, None, dict(fields)
    if files.preset is not None:
        declared = files.preset.config
        asked.setdefault("dialect", keras_vit.name)
    dialects = [dialect_named(asked["dialect"])] if asked.get("dialect") else DIALECTS.values()
    recognition = recognise(reader.shapes, dialects)
    if recognition is None:
        names = ", ".join(list(reader.shapes)[:5]) or "nothing"
        other = next((what for pattern, what in _OTHERS if _any(pattern, reader.shapes)), None)
        guess = f" It looks like {other}." if other else ""
        raise CheckpointError(
            f"{reader.path}: no Vision Transformer in any of the dialects "
            f"{', '.join(d.name for d in dialects)}. It holds {len(reader.shapes)} arrays: "
            f"{names}.{guess}"
        )
    if recognition.dialect is keras_vit and declared is None and files.is_folder:
        raise SourceError(
            f"{reader.path}: these are the weights of a preset, but its config.json is not beside "
            "them, which says how to compute with them. Copy the whole preset."
        )
    if asked.get("variant"):
        asked = {**variant(asked["variant"]).fields, **asked}
    try:
        stated = recognition.dialect.states(files.json)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(f"{reader.path}: a JSON file beside the weights: {error}.") from error
    inferred = _with_conventions(recognition, stated)
    num_positions = inferred.pop("num_positions", None)
    architecture = {k: asked[k] for k in _ARCHITECTURE if k in asked}
    undetermined: tuple[str, ...] = ()
    if declared is not None:
        config = declared.replace(**architecture)
    else:
        known = {**inferred, **architecture}
        missing = [name for name in ("hidden_size", "mlp_dim", "num_heads") if name not in known]
        if missing:
            raise CheckpointError(
                f"{reader.path}: the arrays do not tell {', '.join(missing)}; give it by name."
            )
        try:
            config, undetermined = _with_grid(known, num_positions, asked)
        except ConfigError as error:
            dialect = recognition.dialect.name
            raise CheckpointError(f"{reader.path}: read as {dialect}: {error}") from error
    moves = plan(config, recognition.dialect, recognition.prefix)
    name = variant_of(config)
    fits = _fitting_variant(inferred) if set(_ARCHITECTURE) & set(asked) else None
    check(
        reader.path,
        reader.shapes,
        reader.dtypes,
        moves,
        recognition.ignored,
        f"{name or 'the model'} in the {recognition.dialect.name} dialect",
        fits if fits != name else None,
    )
    info = CheckpointInfo(
        path=reader.path,
        dialect=recognition.dialect.name,
        prefix=recognition.prefix,
        config=config,
        variant=name,
        undetermined=undetermined,
        shapes=dict(reader.shapes),
        dtypes=dict(reader.dtypes),
        ignored=recognition.ignored,
        protocol=files.preset.protocol
        if files.preset
        else _protocol(stated, recognition.dialect, config),
        labels=files.preset.labels if files.preset else stated.labels,
    )
    return Opened(reader, recognition.dialect, info, moves)


def _protocol(stated: Stated, dialect: Dialect, config: ViTConfig) -> ProtocolSpec:
    """How images are prepared: as the files state, if that is meant for the model's channels."""
    if stated.protocol is not None:
        protocol = complete(stated.protocol)
        counts = [len(protocol[k]) for k in ("mean", "std") if isinstance(protocol[k], list)]
        if set(counts) <= {config.channels}:
            return compact(protocol)
        not_ours(f"A mean or std of {counts[0]} channels, where the model has {config.channels},")
    return compact(dialect.protocol(config))


def _with_conventions(recognition: Recognition, stated: Stated) -> dict[str, Any]:
    """Adds to what the arrays tell what the dialect takes for granted and the files state."""
    dialect, told = recognition.dialect, recognition.fields
    numerics: dict[str, Any] = (dialect.numerics or Numerics()).to_dict()
    numerics |= {**told.get("numerics", {}), **stated.fields.get("numerics", {})}
    return {**told, **dialect.fields, **stated.fields, "numerics": numerics}


def _with_grid(
    fields: dict[str, Any], num_positions: int | None, asked: dict[str, Any]
) -> tuple[ViTConfig, tuple[str, ...]]:
    """Completes a configuration by the grid of the stored positions.

    A count of positions that is a square stands for a square grid, as in the
    reference; any other needs `position_grid`, or an `image_size` of that count.
    """
    stated_size = fields.get("image_size")
    base = ViTConfig.from_dict({**fields, "image_size": None, "position_grid": (1, 1)})
    if stated_size is not None:
        sized = base.replace(image_size=stated_size, position_grid=None, crop_remainder=True)
        divides = sized.image_size is None or not any(sized.remainder_of(sized.image_size))
        return sized.replace(crop_remainder=not divides), ()
    if num_positions is None:
        return base, ()
    # Names alone may not tell whether the class token has a position; the count can.
    alternatives = [base]
    if base.has_class_position and "position_before_class" not in fields:
        alternatives.append(base.replace(position_before_class=True))
    grids = [_grid_of(b, num_positions - b.has_class_position, asked) for b in alternatives]
    base, grid = next(((b, g) for b, g in zip(alternatives, grids, strict=True) if g), (base, None))
    if grid is None:
        count = num_positions - base.has_class_position
        return base.replace(position_grid=(1, max(count, 1))), ("image_size",)
    base = base.replace(position_grid=grid)
    size = (grid[0] * base.stride[0], grid[1] * base.stride[1])
    return base.replace(image_size=size, position_grid=None), ()


def _grid_of(base: ViTConfig, count: int, asked: dict[str, Any]) -> tuple[int, int] | None:
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


def _any(pattern: str, names: Iterable[str]) -> bool:
    return any(re.search(pattern, name) for name in names)


def _fitting_variant(inferred: dict[str, Any]) -> str | None:
    try:
        return variant_of(ViTConfig.from_dict({**inferred, "image_size": None}))
    except ConfigError:
        return None
