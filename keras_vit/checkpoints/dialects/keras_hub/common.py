"""Rows of backbone and task that families of keras-hub share, such as `hidden_dim`."""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Limits
from keras_vit.checkpoints.dialects.json_fields import (
    REQUIRED,
    SIDES,
    Codec,
    Json,
    JsonField,
    JsonFields,
    JsonNote,
    Row,
    shared_key,
)
from keras_vit.checkpoints.dialects.keras_hub.converter import (
    converter,
    find_converter,
    fitting_image_size,
)
from keras_vit.checkpoints.dialects.keras_hub.objects import keras_object
from keras_vit.checkpoints.dialects.names import KERAS, Section
from keras_vit.checkpoints.dialects.torch_conventions import (
    DROPS_PIXELS,
    IMAGENET,
    POSITIONS_OF_ANOTHER_GRID,
)
from keras_vit.config import Numerics, ViTConfig
from keras_vit.images.protocols import ProtocolSpec

GELUS = {"gelu": "exact", "gelu_approximate": "tanh", "quick_gelu": "quick"}


def image_shape(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that `image_shape`, (height, width, channels), states."""
    *image_size, channels = content["image_shape"]
    # A task.json states the head. Without it there is no head, even if arrays have its names.
    without_head = {"num_classes": 0, "representation_size": None}
    return {"image_size": image_size, "channels": channels, **without_head}


IMAGE_SHAPE = JsonFields(
    ("image_shape",),
    ("image_size", "channels"),
    image_shape,
    lambda config: {"image_shape": [*fitting_image_size(config), config.channels]},
)


def size_rows(
    mlp_dim: str = "intermediate_dim", patch_size: Codec = SIDES, image: Row = IMAGE_SHAPE
) -> tuple[Row, ...]:
    """Returns the rows of the sizes that every backbone states.

    Args:
        mlp_dim: the family's key for the width of the MLP; `""` if another row states it.
        patch_size: codec of the sides of a patch.
        image: the row of the image size.
    """
    width: tuple[Row, ...] = (JsonField(mlp_dim, "mlp_dim", default=REQUIRED),) if mlp_dim else ()
    return (
        JsonField("patch_size", "patch_size", patch_size, default=REQUIRED),
        image,
        JsonField("num_layers", "num_layers", default=REQUIRED),
        JsonField("num_heads", "num_heads", default=REQUIRED),
        JsonField("hidden_dim", "hidden_size", default=REQUIRED),
        *width,
    )


ATTENTION_BIASES = shared_key("use_mha_bias", "qkv_bias", "projection_bias", default=True)
"""One key for the biases of query, key, value and of the projection behind them."""

_DROPOUTS_AND_EPSILON: tuple[Row, ...] = (
    JsonField("dropout_rate", "dropout_rate", default=REQUIRED),
    JsonField("attention_dropout", "attention_dropout_rate", default=REQUIRED),
    JsonField("layer_norm_epsilon", "numerics.layer_norm_epsilon", default=REQUIRED),
    ATTENTION_BIASES,
)
_TASK: tuple[Row, ...] = (
    JsonField("num_classes", "num_classes", default=REQUIRED),
    JsonNote("activation", None),
    JsonNote("dropout", 0.0),
)


SOME_ATTENTION_BIASES = {
    "biases of some of query, key, value and the projection behind them alone": (
        "qkv_bias!=projection_bias"
    )
}

NO_SQUARE_PATCH = {"patches that are not square": "patch_size!=square"}


def _metadata(*tasks: str) -> dict[str, Any]:
    """Returns the file that keras-hub needs: its versions, and the tasks of the backbone."""
    return {
        "metadata.json": {
            "keras_version": "3.15.1",
            "keras_hub_version": "0.32.0",
            "tasks": list(tasks),
        }
    }


def classifier_family(
    name: str,
    module: str,
    class_name: str,
    backbone: tuple[Row, ...],
    task: tuple[Row, ...],
    impossible: Limits = MappingProxyType({}),
    beside: Callable[[Json], Json] = lambda files: {},
    **more: Any,
) -> Dialect:
    """Returns the dialect of a backbone and of the classifier on it, which has a `task.json`.

    Args:
        name: name of the dialect.
        module: module in keras-hub's models, such as `"vit"`.
        class_name: first part of the names of its classes, such as `"ViT"`.
        backbone, task, impossible: rows of the two objects, and limits, beside those of all such
            families.
        beside: takes all files; returns keys of another object that the rows of the task also read.
        **more: further fields of `Dialect`.
    """
    whole = f"{class_name}Backbone"
    place = (f"{module}.{module}_backbone", whole, (*backbone, *_DROPOUTS_AND_EPSILON))
    kind = (f"{module}.{module}_image_classifier", f"{class_name}ImageClassifier")
    return Dialect(
        name=name,
        library="keras-hub",
        container="h5",
        ignored={r"(task/)?(optimizer|preprocessor)/.*": "no weights of the model"},
        identity=Identity("config.json", "class_name", whole, repr(whole)),
        json=(
            *keras_object("config.json", *place),
            *keras_object("task.json", *kind, (*task, *_TASK), when="num_classes", beside=beside),
            *keras_object(
                "task.json", *place, at=("config", "backbone"), when="num_classes", is_read=False
            ),
        ),
        notes=_metadata("ImageClassifier"),
        images=find_converter(module, class_name),
        numerics=Numerics(gelu="exact"),
        expresses=("layer_norm_epsilon", "position_resize"),
        impossible={
            **impossible,
            **SOME_ATTENTION_BIASES,
            "a mean of the class token too, without a head": "class_token_in_mean num_classes!",
            **DROPS_PIXELS,
            **POSITIONS_OF_ANOTHER_GRID,
        },
        crops=False,
        **more,
    )


def encoder_family(
    name: str,
    module: str,
    class_name: str,
    rows: tuple[Row, ...],
    fields: Mapping[str, Any],
    impossible: Limits,
    **more: Any,
) -> Dialect:
    """Returns the dialect of an encoder without a classifier.

    Args:
        name: name of the dialect behind `keras_hub/`.
        module: module in keras-hub's models, such as `"clip.clip_vision_encoder"`.
        class_name: name of the class.
        rows: rows of the object beside the sizes.
        fields, impossible: as in `Dialect`, beside those of all encoders.
        **more: further fields of `Dialect`.
    """
    return Dialect(
        name=f"keras_hub/{name}",
        library="keras-hub",
        container="h5",
        identity=Identity("config.json", "class_name", class_name, repr(class_name)),
        json=keras_object("config.json", module, class_name, rows),
        notes=_metadata(),
        fields={"num_classes": 0, **fields},
        impossible={**impossible, **NO_SQUARE_PATCH, **DROPS_PIXELS},
        crops=False,
        **more,
    )


TOKENS_AND_NORM: tuple[Row, ...] = (
    JsonField("use_mask_token", "mask_token", default=True),
    JsonNote("apply_layernorm", False),
)
"""Rows that DINOv2 and DINOv3 share."""


def _imagenet(config: ViTConfig) -> ProtocolSpec:
    """Returns the protocol of both families' converters, with mean and std of ImageNet."""
    return {"name": "keras_hub", "mean": IMAGENET["mean"], "std": IMAGENET["std"]}


def dino_family(
    name: str,
    class_name: str,
    rows: tuple[Row, ...],
    names: Section,
    fields: Mapping[str, Any],
    **more: Any,
) -> Dialect:
    """Returns the dialect of DINOv2 or DINOv3; arguments as of `encoder_family`."""
    return encoder_family(
        name,
        f"{name}.{name}_backbone",
        class_name,
        rows,
        {"pooling": "token", "layer_scale": True, **fields},
        words=KERAS.names(names),
        reasons={"": "keras-hub's family has no such part"},
        images=dataclasses.replace(converter, default=_imagenet),
        **more,
    )
