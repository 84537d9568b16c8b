"""Presets of keras-hub: ViTBackbone and ViTImageClassifier.

A folder with `config.json`, `model.weights.h5` and, for a classifier, `task.json`
and `task.weights.h5`. Layers are named by class and order of creation. With
`intermediate_dim` the first Dense layer of the task is `pre_logits` and the second
the head; without, the first is the head.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.dialects.base import (
    Cannot,
    Dialect,
    Stated,
    Theirs,
    Words,
    modules,
    not_ours,
)
from keras_vit.checkpoints.dialects.torch_layout import per_channel
from keras_vit.checkpoints.lexicon import LEXICON
from keras_vit.config import Numerics, ViTConfig
from keras_vit.preparation.protocols import ProtocolSpec, complete

_EMBEDDING = "layers/vi_t_patching_and_embedding/"
_BLOCK = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block{_l}/"
_NO_STEM = Cannot("keras-hub has no hybrids")
_NO_MAP = Cannot("keras-hub's ViT has no attention pooling")


def _has_representation(config: ViTConfig) -> bool:
    return config.representation_size is not None


def _words() -> dict[str, Words]:
    words: dict[str, Words] = {
        "class_token/token": Theirs(_EMBEDDING + "vars/0"),
        "position_embedding/embedding": Theirs(_EMBEDDING + "position_embedding/vars/0", "n m"),
        **modules(
            {
                "patch_embedding": _EMBEDDING + "patch_embedding",
                "block_{l}/attention_norm": _BLOCK + "layer_norm_1",
                "block_{l}/attention/{qkv}": _BLOCK + "mha/{qkv}_dense",
                "block_{l}/attention/out": _BLOCK + "mha/output_dense",
                "block_{l}/mlp_norm": _BLOCK + "layer_norm_2",
                "block_{l}/mlp/dense_0": _BLOCK + "mlp/dense_1",
                "block_{l}/mlp/dense_1": _BLOCK + "mlp/dense_2",
                "encoder_norm": "layers/vi_t_encoder/layer_norm",
                "pre_logits": "task/layers/dense",
            },
            {"kernel": "/vars/0", "gamma": "/vars/0", "beta": "/vars/1", "bias": "/vars/1"},
        ),
    }
    for k, parameter in enumerate(("kernel", "bias")):
        words[f"head/{parameter}"] = (
            Theirs(f"task/layers/dense_1/vars/{k}", when=_has_representation),
            Theirs(f"task/layers/dense/vars/{k}"),
        )
    for word in LEXICON:
        if word.path not in words:
            words[word.path] = _NO_MAP if word.path.startswith("pool/") else _NO_STEM
    return words


_FIELDS = {
    "patch_size": "patch_size",
    "num_layers": "num_layers",
    "num_heads": "num_heads",
    "hidden_dim": "hidden_size",
    "mlp_dim": "mlp_dim",
    "dropout_rate": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
}
"""Words of a ViTBackbone's config and fields of ours."""


_BIASES = ("use_mha_bias", "use_mlp_bias", "use_patch_bias")


def _states(files: Mapping[str, Any]) -> Stated:
    if "config.json" not in files:
        return Stated()
    backbone = _config_of("ViTBackbone", "config.json", files)
    for bias in _BIASES:
        if not backbone.get(bias, True):
            raise ValueError(f"config.json has {bias}=False, expected True")
    *image_size, channels = backbone["image_shape"]
    with_class = backbone.get("use_class_token", True)
    fields = {ours: backbone[theirs] for theirs, ours in _FIELDS.items()}
    fields |= {"image_size": image_size, "channels": channels, "num_classes": 0}
    fields |= {"classifier": "token" if with_class else "gap", "class_token": with_class}
    fields["representation_size"] = None
    fields["numerics"] = {"layer_norm_epsilon": backbone["layer_norm_epsilon"]}
    if "task.json" in files:
        task = _config_of("ViTImageClassifier", "task.json", files)
        fields["num_classes"] = task["num_classes"]
        fields["representation_size"] = task["intermediate_dim"]
        poolings = ("token", "gap") if with_class else ("gap",)
        if task["pooling"] not in poolings:
            raise ValueError(
                f"task.json has pooling={task['pooling']!r}, where use_class_token={with_class} "
                f"goes with {' or '.join(map(repr, poolings))}"
            )
        if task["pooling"] == "gap":
            fields |= {"classifier": "gap", "class_token_in_mean": with_class}
    return Stated(fields, protocol=_protocol(files))


def _protocol(files: Mapping[str, Any]) -> ProtocolSpec | None:
    """Reads `image_converter.json`, or the converter in `preprocessor.json`."""
    if "image_converter.json" in files:
        converter = files["image_converter.json"]["config"]
    elif "preprocessor.json" in files:
        converter = files["preprocessor.json"]["config"]["image_converter"]["config"]
    else:
        return None
    method = converter.get("interpolation", "bilinear")
    if method != "bilinear" or converter.get("pad_to_aspect_ratio"):
        not_ours(f"An image converter with interpolation={method!r} or pad_to_aspect_ratio")
        return None
    # x * scale + offset = (x / 255 - mean) / std
    words = (("scale", 1.0), ("offset", 0.0))
    scale, offset = np.broadcast_arrays(
        *(none if converter.get(key) is None else converter[key] for key, none in words)
    )
    std = [1 / (255 * number) for number in scale.reshape(-1).tolist()]
    mean = [-o * d for o, d in zip(offset.reshape(-1).tolist(), std, strict=True)]
    return complete(
        {
            "name": "keras_hub",
            "crop_to_aspect_ratio": converter.get("crop_to_aspect_ratio", True),
            "antialias": converter.get("antialias", False),
            "mean": [round(number, 9) for number in mean],
            "std": [round(number, 9) for number in std],
        }
    )


def _prepares(protocol: Mapping[str, Any]) -> bool:
    """`paper` is what the converter does without its crop, but for rounding to whole pixels."""
    return protocol["name"] in ("keras_hub", "paper")


def _config_of(kind: str, name: str, files: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a JSON file, if it describes an object of that class."""
    if files[name]["class_name"] != kind:
        raise ValueError(f"{name} has class_name={files[name]['class_name']!r}, expected {kind!r}")
    return files[name]["config"]


def _writes(
    config: ViTConfig, labels: tuple[str, ...] | None = None, protocol: ProtocolSpec | None = None
) -> dict[str, Any]:
    """The JSON files of a preset, as `from_preset` reads them.

    keras-hub resizes no positions: the images are those that the stored ones fit.
    """
    height, width = (
        cells * pixels for cells, pixels in zip(config.source_grid, config.patch_size, strict=True)
    )
    backbone = _object(
        "vit_backbone",
        "ViTBackbone",
        {
            "image_shape": [height, width, config.channels],
            **{theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()},
            "patch_size": list(config.patch_size),
            "layer_norm_epsilon": config.numerics.layer_norm_epsilon,
            "use_mha_bias": True,
            "use_mlp_bias": True,
            "use_class_token": config.has_class_token,
            "use_patch_bias": True,
        },
    )
    files: dict[str, Any] = {"config.json": backbone}
    if config.num_classes:
        images = complete(protocol or "keras_hub")
        std = per_channel(images["std"], config)
        offset = [-m / s for m, s in zip(per_channel(images["mean"], config), std, strict=True)]
        converter = _object(
            "vit_image_converter",
            "ViTImageConverter",
            {
                "image_size": [height, width],
                "scale": [1 / (255 * number) for number in std],
                "offset": offset,
                "interpolation": "bilinear",
                "antialias": images.get("antialias", False),
                "crop_to_aspect_ratio": images.get("crop_to_aspect_ratio", False),
                "pad_to_aspect_ratio": False,
            },
        )
        preprocessor = _object(
            "vit_image_classifier_preprocessor",
            "ViTImageClassifierPreprocessor",
            {"image_converter": converter, "config_file": "preprocessor.json"},
        )
        task = {
            "backbone": backbone,
            "preprocessor": preprocessor,
            "num_classes": config.num_classes,
            "pooling": "token" if config.classifier == "token" else "gap",
            "activation": None,
            "dropout": 0.0,
            "intermediate_dim": config.representation_size,
        }
        files["image_converter.json"] = converter
        files["preprocessor.json"] = preprocessor
        files["task.json"] = _object("vit_image_classifier", "ViTImageClassifier", task)
    files["metadata.json"] = {
        "keras_version": "3.15.1",
        "keras_hub_version": "0.32.0",
        "tasks": ["ImageClassifier"],  # that a ViTBackbone serves
    }
    return files


def _object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """The form in which Keras serialises an object of keras-hub."""
    dtype = {
        "module": "keras",
        "class_name": "DTypePolicy",
        "config": {"name": "float32"},
        "registered_name": None,
    }
    return {
        "module": f"keras_hub.src.models.vit.{module}",
        "class_name": name,
        "config": {"name": module, "trainable": True, "dtype": dtype, **config},
        "registered_name": f"keras_hub>{name}",
    }


def _drops_pixels(config: ViTConfig) -> bool:
    return config.image_size is not None and any(config.remainder_of(config.image_size))


def _has_foreign_pooling(config: ViTConfig) -> bool:
    if config.classifier == "gap":
        return config.has_class_token and not config.class_token_in_mean
    return config.classifier != "token"


keras_hub = Dialect(
    name="keras_hub",
    library="keras-hub",
    container="h5",
    words=_words(),
    ignored={r"(task/)?(optimizer|preprocessor)/.*": "no weights of the model"},
    numerics=Numerics(gelu="exact"),
    expresses=("layer_norm_epsilon", "position_resize"),
    fields={"position": "learned", "position_before_class": False, "qkv_bias": True},
    impossible=(
        (lambda c: c.position != "learned", "position='sincos2d'"),
        (lambda c: c.has_class_token and c.position_before_class, "position_before_class=True"),
        (lambda c: not c.qkv_bias, "qkv_bias=False"),
        (_drops_pixels, "an image_size that patch_size does not divide"),
    ),
    limits=(
        (_has_foreign_pooling, "a classifier other than 'token' or a mean over all tokens"),
        (
            lambda c: c.num_classes == 0 and c.representation_size is not None,
            "a representation layer without a head",
        ),
    ),
    crops=False,
    states=_states,
    writes=_writes,
    protocol=lambda config: "keras_hub",
    prepares=_prepares,
)
