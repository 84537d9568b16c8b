"""Common tables of keras-hub's families: config.json and task.json, preprocessing, names."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.families import family
from keras_vit.checkpoints.families.keys import Codec, Json, Keys, naming, object_at
from keras_vit.checkpoints.families.names import KERAS, Section
from keras_vit.images.protocols import ProtocolSpec, complete

_NO_HEAD = {"config": {"num_classes": 0}}
"""Fields of a preset without task.json, even if arrays have the names of a head."""


def _read(files: Json, formats: Sequence[family.Format]) -> family.Stated:
    """Returns the keys of config.json for the backbone, and of task.json for the head (`task.key`)."""
    top = files.get("config.json", {})
    if "class_name" not in top:
        return family.Stated()
    word, config = str(top["class_name"]), object_at(top, ("config",))
    inside = next((f.row.inside for f in formats if word in f.words), "")
    config = object_at(config, (inside, "config")) if inside in config else config
    task = {"intermediate_dim": None, **object_at(files.get("task.json", _NO_HEAD), ("config",))}
    return family.Stated((word,), word, {**config, **{f"task.{key}": task[key] for key in task}})


def _read_image(config: Json) -> dict[str, Any]:
    *image_size, channels = config["image_shape"]
    return {"image_size": image_size, "channels": channels}


_SAME = ("gelu", "quick_gelu", "silu")
ACTIVATIONS = {**dict(zip(_SAME, _SAME, strict=True)), "gelu_approximate": "gelu_tanh"}
KEYS: Keys = {
    "image_shape": Codec("image_size channels", _read_image),
    "intermediate_activation": ("block.activation", ACTIVATIONS),
    "layer_norm_epsilon": "block.epsilon",
    "dropout_rate": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
    "drop_path_rate": "stochastic_depth_rate",
}
SHAPES: Keys = {
    "patch_size": "patch_size",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "mlp_dim",
}


def block(name: str, words: str) -> Section:
    """Returns the names of a block, which differ in a few words between networks.

    Args:
        name: name of the block's layer.
        words: names of the norms without their number, the attention layer, and the two layers of
            the MLP, separated by blanks.
    """
    norm, attention, dense_0, dense_1 = words.split()
    return {
        "block_{l}/attention_norm": f"{name}/{norm}1",
        "block_{l}/attention/{qkv}": f"{name}/{attention}/{{qkv}}_dense",
        "block_{l}/attention/out": f"{name}/{attention}/output_dense",
        "block_{l}/mlp_norm": f"{name}/{norm}2",
        "block_{l}/mlp/dense_0": f"{name}/{dense_0}",
        "block_{l}/mlp/dense_1": f"{name}/{dense_1}",
    }


def names(embedding: str, name: str, words: str) -> Section:
    """Returns the names of an embedding and of a block, see `block`."""
    return {
        "patch_embedding": f"{embedding}/patch_embedding",
        "class_token/token": f"{embedding}/vars/0",
        "position_embedding/embedding": f"{embedding}/position_embedding/vars/0 : n m",
        **block(name, words),
    }


def _read_converter(files: Json) -> ProtocolSpec | None:
    """Reads `image_converter.json`, or the converter in `preprocessor.json`."""
    within = object_at(files.get("preprocessor.json", {}), ("config", "image_converter", "config"))
    converter = object_at(files.get("image_converter.json", {}), ("config",)) or within
    if not converter:
        return None
    method = converter.get("interpolation", "bilinear")
    if method != "bilinear" or converter.get("pad_to_aspect_ratio"):
        words = f"An image converter with interpolation={method!r} or pad_to_aspect_ratio"
        family.warn_of_protocol(words)
        return None
    scale, offset = converter.get("scale"), converter.get("offset")
    # x * scale + offset = (x / 255 - mean) / std
    with naming("the image converter has scale", scale):
        both = np.broadcast_arrays(1.0 if scale is None else scale, offset or 0.0)
        pairs = [*zip(*(own.reshape(-1).tolist() for own in both), strict=True)]
        return complete(
            {
                "name": "keras_hub",
                "crop_to_aspect_ratio": converter.get("crop_to_aspect_ratio", True),
                "antialias": converter.get("antialias", False),
                "mean": [round(-own_offset / (255 * own), 9) for own, own_offset in pairs],
                "std": [round(1 / (255 * own), 9) for own, _ in pairs],
            }
        )


KERAS_HUB = family.Library(
    "keras-hub",
    "h5",
    KERAS,
    json=("config.json", "task.json"),
    named_by="class_name",
    read=_read,
    images=family.Images(default=lambda config: "keras_hub", read=_read_converter),
    arithmetic={"block.activation": "gelu"},
    ignored={
        r"(task/)?(optimizer|preprocessor)/.*": "not weights of the model",
        r"layers/(\w+_(text_encoder|head)|dense_1)/.*": "not part of the vision encoder",
    },
    only_read=(
        "keras-hub reads transformers folders of ViT with a head, DeiT with two heads, "
        "DINOv2 and DINOv3; write them with family='transformers', 'transformers/dinov2', ..."
    ),
)
