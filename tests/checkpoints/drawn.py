"""The models that the laws of checkpoints try: values of every field, and models of a dialect."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from keras_vit.checkpoints.dialects import DIALECTS
from keras_vit.checkpoints.dialects.base import Dialect, find_met
from keras_vit.checkpoints.export import check_expressible
from keras_vit.config import Numerics, ResNetStem, Rope, ViTConfig
from keras_vit.config.vit import PARTS
from keras_vit.config.weights.lexicon import LEXICON
from keras_vit.errors import CheckpointError, ConfigError

WRITTEN = [dialect for dialect in DIALECTS.values() if not dialect.only_read]

PLAIN = {
    "patch_size": 2,
    "image_size": 16,
    "hidden_size": 16,
    "mlp_dim": 64,
    "num_heads": 2,
    "num_layers": 2,
    "num_classes": 3,
}
_DINOV2 = {"pooling": "token_and_mean", "mask_token": True}
_BEIT = {"pooling": "token", "class_token": True, "position": "none", "layer_scale": True}
_NO_KEY = {"qkv_bias": (True, False, True)}
_PARTS: dict[str, dict[str, Any]] = {
    "timm/eva": {
        "rope": {"form": "axial", "reference_grid": (16, 16)},
        **{"mlp": "gated", "num_registers": 1, **_NO_KEY},
    },
    "timm/naflex": {"pooling": "map", "num_registers": 1, "position_before_class": True},
    "transformers/deit": {"pooling": "token"},
    "transformers/beit": {**_BEIT, "relative_position_bias": "block"},
    "transformers/data2vec-vision": {**_BEIT, "relative_position_bias": "block"},
    "transformers/dinov2": _DINOV2,
    "transformers/dinov2_with_registers": {**_DINOV2, "num_registers": 2},
    "transformers/dinov3_vit": {"rope": {"form": "dinov3"}, "num_registers": 2, **_NO_KEY},
    "transformers/clip_vision_model_with_projection": {"projection_dim": 5},
    "transformers/aimv2_vision_model": {
        "pooling": "gap",
        **dict.fromkeys(("qkv_bias", "projection_bias", "mlp_bias"), False),
    },
    "transformers/pixio": {"num_class_tokens": 4},
    "transformers/radio": {
        **{"num_class_tokens": 3, "joined_class_tokens": 2},
        **{"num_registers": 2, "layer_scale": True},
    },
    "transformers/tipsv2_vision_model": {"num_registers": 1},
}
"""Parts of a family's models that not all of them have, or that its rules ask for together."""
BEIT = {
    "relative_position_bias": "block",
    "rope": None,
    "position": "none",
    "num_registers": 0,
    "mlp": "plain",
    "class_token": True,
}
KINDS = ({}, {"num_classes": 0}, BEIT)
"""Fields of the models that changes begin with, beside `PLAIN` and those of `sample`."""

VALUES = {
    "patch_size": ((2, 4), (4, 4)),
    "hidden_size": (32,),
    "mlp_dim": (61, 128, 24),
    "num_heads": (4,),
    "num_layers": (1, 11),
    "image_size": ((16, 32), 32, 49, None),
    "channels": (1,),
    "position_grid": ((3, 3), (1, 2), (2, 5)),
    "num_classes": (0, 3, 4, 1),
    "num_registers": (0, 2),
    "num_class_tokens": (1, 3),
    "joined_class_tokens": (0, 2, 1),
    "class_token": (True, False),
    "class_token_blocks": (2,),
    "map_num_heads": (4,),
    "map_mlp_dim": (8,),
    "representation_size": (None, 9),
    "projection_dim": (None, 7),
    "relative_position_bias": (None, "block", "shared"),
    "qkv_bias": (True, False, (True, False, True), (True, True, False)),
    "layer_scale_init": (0.5,),
    "dropout_rate": (0.25,),
    "attention_dropout_rate": (0.5,),
    "stochastic_depth_rate": (0.125,),
    "head_bias_init": (-10.0,),
    "resnet": (None, ResNetStem((1,)), ResNetStem(width_factor=0.5)),
    "resnet.num_layers": ((), (2, 1)),
    "resnet.width_factor": (1.0, 0.5),
    "rope": (None, Rope("dinov3"), Rope("mixed", offset=1.0), Rope("axial")),
    "rope.theta": (50.0,),
    "rope.offset": (0.0, 1.0),
    "rope.reference_grid": (None, (5, 4)),
    "numerics.layer_norm_epsilon": (1e-3, 1e-5, 1e-6),
    "numerics.group_norm_epsilon": (1e-3,),
    "numerics.std_conv_epsilon": (1e-3,),
}
"""Values of fields beside bools and words, which are all tried."""


def _values() -> Iterator[tuple[str, tuple[Any, ...]]]:
    for part, kind in {"": ViTConfig, **PARTS}.items():
        for field in dataclasses.fields(kind):
            path = f"{part}.{field.name}" if part else field.name
            words = getattr(field.metadata.get("values"), "words", ())
            values = words or ((True, False) if field.type is bool else ())
            yield path, VALUES.get(path) or values


ALL_VALUES = dict(_values())
"""Path of every field -> the values that are tried; `numerics` has none, but its fields have."""
CHANGES = [(path, value) for path, values in ALL_VALUES.items() for value in values]


@functools.cache
def changed(config: ViTConfig, *changes: tuple[str, Any]) -> ViTConfig | None:
    """A model with other values of some fields, or None if a model cannot have them."""
    with contextlib.suppress(ConfigError):
        fields: dict[str, Any] = {}
        for path, value in changes:
            part, _, name = path.rpartition(".")
            if part:
                own = fields.get(part, getattr(config, part))
                if own is None:
                    return None
                fields[part] = dataclasses.replace(own, **{name: value})
            else:
                fields[name] = value
        other = config.replace(**fields)
        if not other.native_aspect or other.image_size:  # other models have no graph
            return other
    return None


def is_held(dialect: Dialect, config: ViTConfig) -> bool:
    """Whether the dialect has a place for every weight of a model, and can express it."""
    with contextlib.suppress(CheckpointError):
        check_expressible(config, dialect)
        return all(
            dialect.names_for(word.path, config) for word in LEXICON if word.is_held_by(config)
        )
    return False


def sample(dialect: Dialect) -> dict[str, Any]:
    """Fields of a model of the dialect, beside its sizes."""
    numerics = dialect.numerics or Numerics()
    return {"numerics": numerics, **dialect.conventions, **_PARTS.get(dialect.name, {})}


@functools.cache
def accepted(dialect: Dialect) -> list[ViTConfig]:
    """Models that the dialect and its library can express, at least one."""
    fields = {**PLAIN, **sample(dialect)}
    models = []
    for kind in KINDS:
        with contextlib.suppress(ConfigError):
            models.append(ViTConfig(**{**fields, **kind}))
    found = [config for config in models if not find_met(dialect.refusals, config)]
    assert found, find_met(dialect.refusals, models[0])
    return found


@st.composite
def models(draw: Any, dialect: Dialect) -> ViTConfig:
    """A model that the dialect can hold: one of `accepted`, with all changes that it allows."""
    config = draw(st.sampled_from(accepted(dialect)))
    for change in draw(st.lists(st.sampled_from(CHANGES), min_size=20, max_size=40)):
        other = changed(config, change)
        if other is not None and is_held(dialect, other):
            config = other
    return config
