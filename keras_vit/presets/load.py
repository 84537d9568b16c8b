"""From a name, folder, file or address on the Hub to a model."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_vit import checkpoints
from keras_vit.checkpoints import CheckpointInfo
from keras_vit.errors import PresetError
from keras_vit.presets import hub
from keras_vit.presets.catalog import Preset, preset_named
from keras_vit.presets.hub_requests import SCHEME
from keras_vit.presets.preset_config import (
    WEIGHTS_FILE,
    PresetConfig,
    is_preset,
    read_preset_config,
)

if TYPE_CHECKING:
    from keras_vit.model import VisionTransformer

_READING = ("dialect", "variant")
"""Arguments of `checkpoints.load` that say how to read a file and are no part of the model."""


def load_preset(
    source: str | os.PathLike[str], *, load_weights: bool = True, **fields: Any
) -> "VisionTransformer":
    """Builds the model of a preset; see `VisionTransformer.from_preset`."""
    if str(source).startswith(SCHEME):
        return _from_hub(hub.locate(str(source)), load_weights, fields)
    path = _locate(source)
    if isinstance(path, Preset):
        return _from_catalog(path, load_weights, fields)
    if path.is_dir() and is_preset(path):
        preset = read_preset_config(path)
        if not load_weights:
            return _untrained_preset(preset, fields)
        return _trained_preset(path, preset, {}, fields)
    if not load_weights:
        return _untrained(checkpoints.inspect(path, **_telling(fields)), fields)
    return checkpoints.load(path, **fields)


def describe_preset(source: str | os.PathLike[str]) -> PresetConfig:
    """Returns what a preset's `config.json` says, without its weights and without a backend.

    Raises:
        PresetError: there is no such preset, or its `config.json` is damaged.
    """
    found = describe(source)
    if isinstance(found, PresetConfig):
        return found
    raise PresetError(
        f"{source}: a checkpoint of the {found.dialect} dialect, expected a preset of keras_vit."
    )


def describe(source: str | os.PathLike[str]) -> PresetConfig | CheckpointInfo:
    """Tells what `from_preset` would load, without a backend; by headers alone where they do.

    Args:
        source: as for `VisionTransformer.from_preset`.

    Returns:
        The `PresetConfig` of a keras_vit preset or of a catalog row, which is not fetched for it;
        else what `checkpoints.inspect` tells.

    Raises:
        PresetError: there is no such preset, or it is damaged.
        CheckpointError: the weights are of no Vision Transformer.
    """
    if str(source).startswith(SCHEME):
        found = hub.locate(str(source))
        folder = found.fetch_companions()
        return read_preset_config(folder) if folder and is_preset(folder) else found.inspect()
    path = _locate(source)
    if isinstance(path, Preset):
        return PresetConfig(path.config(), path.protocol, path.labels, path.provenance())
    return (
        read_preset_config(path) if path.is_dir() and is_preset(path) else checkpoints.inspect(path)
    )


def _from_hub(
    found: hub.HubFolder, load_weights: bool, fields: dict[str, Any]
) -> "VisionTransformer":
    folder = found.fetch_companions()
    if folder is None or not is_preset(folder):
        if not load_weights:
            return _untrained(found.inspect(**_telling(fields)), fields)
        path = found.fetch()
        return checkpoints.load(path, **{"provenance": found.provenance, **fields})
    preset = read_preset_config(folder)
    if not load_weights:
        return _untrained_preset(preset, fields)
    return _trained_preset(found.fetch(), preset, found.provenance, fields)


def _from_catalog(row: Preset, load_weights: bool, fields: dict[str, Any]) -> "VisionTransformer":
    same_head = fields.get("num_classes", row.num_classes) == row.num_classes
    told = {"protocol": row.protocol, "labels": row.labels if same_head else None}
    if row.source is not None and row.source.startswith(SCHEME):
        found = hub.locate(row.source)
        found.provenance.update(row.provenance())
        return _from_hub(found, load_weights, {**told, **fields})
    if not load_weights:
        from keras_vit.model import VisionTransformer

        return VisionTransformer(row.config(), **{"name": row.variant, **told, **fields})
    path = row.fetch()
    model = checkpoints.load(path, **{**row.load_fields(), **told, **fields})
    row.announce(model.config)
    return model


def _trained_preset(
    folder: Path, preset: PresetConfig, provenance: dict[str, Any], fields: dict[str, Any]
) -> "VisionTransformer":
    told = _told_by(preset, fields) | {"provenance": {**preset.provenance, **provenance}}
    return checkpoints.load(
        folder / WEIGHTS_FILE, declared=preset.config, dialect="keras_vit", **{**told, **fields}
    )


def _untrained_preset(preset: PresetConfig, fields: dict[str, Any]) -> "VisionTransformer":
    from keras_vit.model import VisionTransformer

    return VisionTransformer(preset.config, **{**_told_by(preset, fields), **fields})


def _untrained(info: CheckpointInfo, fields: dict[str, Any]) -> "VisionTransformer":
    from keras_vit.model import VisionTransformer

    build = {name: value for name, value in fields.items() if name not in _READING}
    told = {"name": info.variant, **_told_by(info, fields)}
    return VisionTransformer(info.config, **{**told, **build})


def _told_by(preset: PresetConfig | CheckpointInfo, fields: dict[str, Any]) -> dict[str, Any]:
    """What files say beside the configuration; labels belong to the head that they name."""
    same_head = fields.get("num_classes", preset.config.num_classes) == preset.config.num_classes
    return {"protocol": preset.protocol, "labels": preset.labels if same_head else None}


def _telling(fields: dict[str, Any]) -> dict[str, Any]:
    """The arguments that tell what the arrays of a file do not."""
    names = (*_READING, "num_heads", "classifier", "position_grid", "image_size")
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _locate(source: str | os.PathLike[str]) -> Path | Preset:
    """A path that is there, or the row of a checkpoint that may have to be fetched."""
    path = Path(source)
    if path.exists():
        return path
    if "://" in str(source):
        raise PresetError(
            f"{source}: expected hf://owner/repo[@revision][/subfolder], a path or a preset's name."
        )
    row = preset_named(str(source))
    return row if row.folder is None else row.folder
