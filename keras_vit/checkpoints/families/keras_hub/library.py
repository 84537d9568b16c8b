"""What the families of keras-hub share: config.json and task.json, images, and numbered arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import ComputedArray, Reader, computed, renamed
from keras_vit.checkpoints.families import family
from keras_vit.checkpoints.families.keys import Codec, Json, Keys, naming, object_at
from keras_vit.checkpoints.families.names import KERAS, Section
from keras_vit.errors import CheckpointError, shown
from keras_vit.images.protocols import ProtocolSpec, complete

_NO_HEAD = {"num_classes": 0}
"""What a preset without task.json states, even if arrays have the names of a head."""


def _read(files: Json, formats: Sequence[family.Format]) -> family.Stated:
    """Returns what config.json states of a backbone, and task.json of its head as `task.key`."""
    top = files.get("config.json", {})
    if "class_name" not in top:
        return family.Stated()
    word = str(top["class_name"])
    inside = next((f.row.inside for f in formats if word in f.words), "")
    config = object_at(top, ("config", inside, "config") if inside else ("config",))
    task = {"intermediate_dim": None, **object_at(files.get("task.json", {}), ("config",))}
    task |= {} if "task.json" in files else _NO_HEAD
    return family.Stated((word,), word, {**config, **{f"task.{key}": task[key] for key in task}})


def _read_image(config: Json) -> dict[str, Any]:
    *image_size, channels = config["image_shape"]
    return {"image_size": image_size, "channels": channels}


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_approximate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}
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


TOWER = {"num_classes": 0, "position": "learned", "block.qkv_bias": True}
"""Facts of the vision encoders of two towers."""


def block(name: str, norm: str, attention: str, *mlp: str) -> Section:
    """Returns the names of a block, which differ in few words.

    Args:
        name: name of the block's layer.
        norm: name of the norms without their number.
        attention: name of the attention.
        *mlp: names of the two layers of the MLP.
    """
    return {
        "block_{l}/attention_norm": f"{name}/{norm}1",
        "block_{l}/attention/{qkv}": f"{name}/{attention}/{{qkv}}_dense",
        "block_{l}/attention/out": f"{name}/{attention}/output_dense",
        "block_{l}/mlp_norm": f"{name}/{norm}2",
        "block_{l}/mlp/dense_0": f"{name}/{mlp[0]}",
        "block_{l}/mlp/dense_1": f"{name}/{mlp[1]}",
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
    with naming(
        "the image converter has scale", scale
    ):  # x * scale + offset = (x / 255 - mean) / std
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
        r"(task/)?(optimizer|preprocessor)/.*": "no weights of the model",
        r"layers/(\w+_(text_encoder|head)|dense_1)/.*": "a part beside the vision encoder",
    },
    only_read=(
        "keras-hub reads folders of transformers, of a ViT with its head, a DeiT with both of its "
        "heads, DINOv2 and DINOv3; family='transformers' and the like writes them"
    ),
)


def plain_tokens(layer: str) -> family.Fold:
    """Returns the fold for the numbered tokens of an embedding; an absent one shifts the others."""

    def read(reader: Reader, keys: Json) -> Reader:
        names = ["class_token", "mask_token", "register_tokens", "resized_positions", "positions"]
        if not keys.get("use_mask_token", True):
            names.remove("mask_token")
        if not keys.get("num_register_tokens", 0):
            names.remove("register_tokens")
        plain = {f"{layer}/vars/{k}": f"{layer}/{name}" for k, name in enumerate(names)}
        return renamed(reader, ((plain.get(name, name), name) for name in reader.shapes))

    return family.Fold(read)


def rows_in_order(table: str, numbers: str) -> family.Fold:
    """Returns the fold that puts the rows of an array in the order in which the library reads them.

    Args:
        table: name of the array.
        numbers: name of the array `(1, rows)` of the numbers of the rows, in that order.
    """

    def read(reader: Reader, keys: Json) -> Reader:
        if not {table, numbers} <= reader.shapes.keys():
            return reader

        def read_in_order() -> np.ndarray:
            array, order = reader.read(table), reader.read(numbers).reshape(-1)
            if order.shape != array.shape[:1] or not np.isin(order, range(len(array))).all():
                raise CheckpointError(
                    f"{reader.path}: array {numbers!r} numbers the rows of {table!r}; expected "
                    f"{len(array)} numbers from 0 to {len(array) - 1}, found "
                    f"{shown(order.tolist(), quoted=False)}."
                )
            return array[order.astype(np.intp)]

        shape, dtype = reader.shapes[table], reader.dtypes[table]
        return computed(reader, {table: ComputedArray(shape, dtype, read_in_order)})

    return family.Fold(read)
