"""What a preset folder says of itself: `config.json`, read and written in one place."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from keras_vit import __version__
from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError, PresetError, nearest
from keras_vit.labels import checked, compact
from keras_vit.preparation.protocols import ProtocolSpec
from keras_vit.preparation.protocols import compact as compact_protocol

FORMAT = "keras_vit"
FORMAT_VERSION = 1
CONFIG_FILE, WEIGHTS_FILE, MODEL_CARD_FILE = "config.json", "model.safetensors", "README.md"
_MOST_BYTES = 16 * 2**20  # 21,843 labels need about one


@dataclasses.dataclass(frozen=True)
class PresetConfig:
    """The contents of `config.json`.

    Args:
        config: the model.
        protocol: how images are prepared, see `keras_vit.Preprocessor`.
        labels: a name per class, the word of a shipped list, or None.
        provenance: where the weights come from, as plain JSON types.
    """

    config: ViTConfig
    protocol: ProtocolSpec = "paper"
    labels: str | tuple[str, ...] | None = None
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the JSON object of `config.json`."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "keras_vit_version": __version__,
            "config": self.config.to_dict(),
            "protocol": compact_protocol(self.protocol),
            "labels": compact(self.labels),
            "provenance": self.provenance,
        }


def is_preset(folder: Path) -> bool:
    """Whether a folder claims to be a preset of ours; a damaged `config.json` is no denial."""
    try:
        return "format" in _json(folder / CONFIG_FILE)
    except PresetError:
        return (folder / CONFIG_FILE).exists()


def read_preset_config(folder: Path) -> PresetConfig:
    """Reads and checks `config.json`.

    Raises:
        PresetError: it is absent, no JSON, of another or a newer format, or a field
            is missing, unknown or wrong.
    """
    path = folder / CONFIG_FILE
    stored = _json(path)
    if stored.get("format") != FORMAT:
        raise PresetError(
            f"{path}: format is {stored.get('format')!r}, expected {FORMAT!r}. "
            "This is no preset of keras_vit."
        )
    version = stored.get("format_version")
    if version != FORMAT_VERSION:
        release = stored.get("keras_vit_version")
        raise PresetError(
            f"{path}: format_version is {version!r}, this release of keras_vit reads "
            f"{FORMAT_VERSION}. Update keras_vit"
            + (f": release {release} wrote it." if isinstance(release, str) else ".")
        )
    fields: dict[str, Any] = {
        "config": dict,
        "protocol": (str, dict),
        "labels": (list, str, type(None)),
        "provenance": dict,
    }
    for name, kind in fields.items():
        if not isinstance(stored.get(name), kind):
            raise PresetError(f"{path}: field {name!r} is {stored.get(name)!r}, expected {kind}.")
    for name in stored:
        if name not in ("format", "format_version", "keras_vit_version", *fields):
            raise PresetError(f"{path}: unknown field {name!r}.{nearest(name, fields)}")
    labels = stored["labels"]
    try:
        config = ViTConfig.from_dict(stored["config"])
        protocol = compact_protocol(stored["protocol"])
        kept_labels = checked(labels, config.num_classes)
    except ConfigError as error:
        raise PresetError(f"{path}: {error}") from error
    return PresetConfig(config, protocol, kept_labels, stored["provenance"])


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise PresetError(
                f"{path}: {path.stat().st_size} bytes are too many for a config.json."
            )
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise PresetError(f"{path}: not a readable JSON file ({error}).") from error
    if not isinstance(value, dict):
        raise PresetError(f"{path}: expected a JSON object, found {type(value).__name__}.")
    return value
