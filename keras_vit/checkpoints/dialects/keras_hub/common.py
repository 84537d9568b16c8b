"""What the families of keras-hub share: JSON rows, the preparation of images, the dialect."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.dialects.base import (
    Dialect,
    Identity,
    PreparationWords,
    warn_of_protocol,
)
from keras_vit.checkpoints.dialects.json_fields import (
    REQUIRED,
    Json,
    JsonField,
    JsonFields,
    JsonTable,
    Row,
    naming,
    object_at,
    shared_key,
)
from keras_vit.checkpoints.dialects.names import KERAS, Section
from keras_vit.images.protocols import ProtocolSpec, complete


def read_image(content: Json) -> dict[str, Any]:
    """Returns the fields that `image_shape`, (height, width, channels), states."""
    *image_size, channels = content["image_shape"]
    # A task.json states the head. Without it there is no head, even if arrays have its names.
    without_head = {"num_classes": 0, "representation_size": None}
    return {"image_size": image_size, "channels": channels, **without_head}


_IMAGE = JsonFields(("image_shape",), ("image_size", "channels"), read_image)


def size_rows(mlp_dim: str = "intermediate_dim", image: Row = _IMAGE) -> tuple[Row, ...]:
    """Returns the rows of the sizes that every backbone states.

    Args:
        mlp_dim: the family's key for the width of the MLP; `""` if another row states it.
        image: the row of the image size.
    """
    keys = {
        "patch_size": "patch_size",
        "num_layers": "num_layers",
        "num_heads": "num_heads",
        "hidden_dim": "hidden_size",
        mlp_dim: "mlp_dim",
    }
    return (image, *(JsonField(key, keys[key], default=REQUIRED) for key in keys if key))


def _read_pooling(content: Json) -> dict[str, Any]:
    pooling = content["pooling"]
    if pooling not in ("token", "gap"):
        raise ValueError("expected 'token' or 'gap'")
    backbone = object_at(content, ("backbone", "config"))
    if pooling == "gap" and backbone.get("use_class_token", True):
        pooling = "mean"
    return {"pool.kind": pooling}


_TASK: tuple[Row, ...] = (
    JsonField("num_classes", "num_classes", default=REQUIRED),
    JsonFields(("pooling",), ("pool.kind",), _read_pooling),
)


def _read_converter(files: Json) -> ProtocolSpec | None:
    """Reads `image_converter.json`, or the converter in `preprocessor.json`."""
    places = {
        "image_converter.json": ("config",),
        "preprocessor.json": ("config", "image_converter", "config"),
    }
    file = next((name for name in places if name in files), None)
    if file is None:
        return None
    converter = object_at(files[file], places[file])
    method = converter.get("interpolation", "bilinear")
    if method != "bilinear" or converter.get("pad_to_aspect_ratio"):
        warn_of_protocol(f"An image converter with interpolation={method!r} or pad_to_aspect_ratio")
        return None
    # x * scale + offset = (x / 255 - mean) / std
    scale, offset = converter.get("scale"), converter.get("offset")
    with naming("scale", scale):
        scales, offsets = np.broadcast_arrays(
            1.0 if scale is None else scale, 0.0 if offset is None else offset
        )
        std = [1 / (255 * number) for number in scales.reshape(-1).tolist()]
        mean = [-o * d for o, d in zip(offsets.reshape(-1).tolist(), std, strict=True)]
        return complete(
            {
                "name": "keras_hub",
                "crop_to_aspect_ratio": converter.get("crop_to_aspect_ratio", True),
                "antialias": converter.get("antialias", False),
                "mean": [round(number, 9) for number in mean],
                "std": [round(number, 9) for number in std],
            }
        )


images = PreparationWords(default=lambda config: "keras_hub", read=_read_converter)


def backbone_family(
    name: str, class_name: str, rows: tuple[Row, ...], names: Section, **more: Any
) -> Dialect:
    """Returns the dialect of a backbone, which is only read.

    Args:
        name: name of the dialect.
        class_name: name of the backbone's class.
        rows: rows of the backbone's `config`.
        names: names of the weights.
        **more: further fields of `Dialect`.
    """
    return Dialect(
        name=name,
        library="keras-hub",
        container="h5",
        words=KERAS.names(names),
        ignored={r"(task/)?(optimizer|preprocessor)/.*": "no weights of the model"},
        identity=Identity("class_name", (class_name,)),
        only_read=(
            "keras-hub reads folders of transformers, of a ViT with its head, a DeiT with both of "
            "its heads, DINOv2 and DINOv3; family='transformers' and the like writes them"
        ),
        **{
            "json": (JsonTable("config.json", rows, ("config",)),),
            "images": images,
            "arithmetic": {"block.activation": "gelu"},
            **more,
        },
    )


def classifier_family(
    name: str,
    class_name: str,
    backbone: tuple[Row, ...],
    names: Section,
    fields: Mapping[str, Any],
    task: tuple[Row, ...] = (),
) -> Dialect:
    """Returns the dialect of a backbone and of the classifier on it, which has a `task.json`.

    Args:
        name, class_name, names: as of `backbone_family`.
        backbone: rows of the backbone beside those of all such families.
        fields: facts about every file.
        task: rows of `task.json` beside those of all such families.
    """
    rows = (
        *backbone,
        JsonField("dropout_rate", "dropout_rate", default=REQUIRED),
        JsonField("attention_dropout", "attention_dropout_rate", default=REQUIRED),
        JsonField("layer_norm_epsilon", "block.epsilon", default=REQUIRED),
        shared_key("use_mha_bias", "block.qkv_bias", "block.projection_bias", default=True),
    )
    tables = (
        JsonTable("config.json", rows, ("config",)),
        JsonTable("task.json", (*task, *_TASK), ("config",)),
    )
    own = {"position": "learned", **fields}
    return backbone_family(
        name, class_name, rows, names, json=tables, fields=own, switches=("pool.kind=mean",)
    )
