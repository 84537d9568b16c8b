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
from keras_vit.config import Rope, Stem, ViTConfig
from keras_vit.config.fields import nest, part_of
from keras_vit.config.pool import TOKEN_POOLINGS
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
_SCALE = {"block.layer_scale": 1e-5}
_DINOV2 = {"pool.kind": "token_and_mean", "tokens.mask": True, **_SCALE}
_BEIT = {"pool.kind": "token", "position": "none", **_SCALE}
_NO_KEY = {"block.qkv_bias": (True, False, True)}
_PARTS: dict[str, dict[str, Any]] = {
    "timm/eva": {
        "rope": {"form": "axial", "reference_grid": (16, 16)},
        **{"block.gated": True, "tokens.registers": 1, **_NO_KEY},
    },
    "timm/naflex": {"pool.kind": "map", "tokens.registers": 1, "position": "learned_patches"},
    "transformers/deit": {"pool.kind": "token"},
    "transformers/beit": {**_BEIT, "relative_position_bias": "block"},
    "transformers/data2vec-vision": {**_BEIT, "relative_position_bias": "block"},
    "transformers/dinov2": _DINOV2,
    "transformers/dinov2_with_registers": {**_DINOV2, "tokens.registers": 2},
    "transformers/dinov3_vit": {
        **{"rope": {"form": "dinov3"}, "tokens.registers": 2, **_NO_KEY},
        **_SCALE,
    },
    "transformers/clip_vision_model_with_projection": {"projection_size": 5},
    "transformers/aimv2_vision_model": {
        "pool.kind": "gap",
        **dict.fromkeys(("block.qkv_bias", "block.projection_bias", "block.mlp_bias"), False),
    },
    "transformers/pixio": {"tokens.class_tokens": 4},
    "transformers/radio": {
        **{"tokens.class_tokens": 2, "tokens.registers": 3},
        **{"pool.kind": "tokens", **_SCALE},
    },
    "transformers/internvl_vision": _SCALE,
    "transformers/tipsv2_vision_model": {"tokens.registers": 1, **_SCALE},
}
"""Parts of a family's models that not all of them have, or that its rules ask for together."""
BEIT = {
    "relative_position_bias": "block",
    "rope": None,
    "position": "none",
    "tokens.registers": 0,
    "tokens.class_tokens": 1,
    "block.gated": False,
}
KINDS: tuple[dict[str, Any], ...] = ({}, {"num_classes": 0}, BEIT)
"""Fields of the models that changes begin with, beside `PLAIN` and those of the dialect."""

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
    "tokens.registers": (0, 2),
    "tokens.class_tokens": (0, 1, 3),
    "pool.blocks": (2,),
    "pool.num_heads": (4,),
    "pool.mlp_dim": (8,),
    "representation_size": (None, 9),
    "projection_size": (None, 7),
    "relative_position_bias": (None, "block", "shared"),
    "block.qkv_bias": (True, False, (True, False, True), (True, True, False)),
    "block.qk_norm": (None, "head", "width"),
    "block.sub_norm": (None, "mlp", "attention", "both"),
    "block.input_norm": (None, "patches", "tokens"),
    "block.layer_scale": (None, 0.5),
    "block.epsilon": (1e-3, 1e-5, 1e-6),
    "dropout_rate": (0.25,),
    "attention_dropout_rate": (0.5,),
    "stochastic_depth_rate": (0.125,),
    "stem": (Stem(), Stem("resnet_timm", (1,)), Stem("resnet", width_factor=0.5)),
    "stem.units": ((), (2, 1)),
    "stem.width_factor": (1.0, 0.5),
    "rope": (None, Rope("dinov3"), Rope("mixed"), Rope("axial")),
    "rope.theta": (50.0,),
    "rope.reference_grid": (None, (5, 4)),
}
"""Values of fields beside bools and words, which are all tried."""


def _values() -> Iterator[tuple[str, tuple[Any, ...]]]:
    parts = {own.name: part_of(own) for own in dataclasses.fields(ViTConfig) if part_of(own)}
    for part, kind in {"": ViTConfig, **parts}.items():
        for field in dataclasses.fields(kind):
            path = f"{part}.{field.name}" if part else field.name
            words = getattr(field.metadata.get("values"), "words", ())
            values = words or ((True, False) if field.type is bool else ())
            yield path, VALUES.get(path) or values


ALL_VALUES = dict(_values())
"""Path of every field -> the values that are tried; parts have none, but their fields have."""
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
                kept = own if isinstance(own, dict) else own.to_dict()
                fields[part] = {**kept, name: value}
            else:
                fields[name] = value
        other = config.replace(**fields)
        if not other.stem.is_packed or other.image_size:  # other models have no graph
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


def build(dialect: Dialect, **kind: Any) -> ViTConfig:
    """A model of the dialect, with its arithmetic; `kind` has further fields by path."""
    facts = {**PLAIN, **dialect.conventions, **_PARTS.get(dialect.name, {}), **kind}
    reads_token = facts.get("pool.kind", "token") in TOKEN_POOLINGS
    facts.setdefault("tokens.class_tokens", int(reads_token))
    return ViTConfig.from_dict(nest({**dialect.compute_arithmetic(facts), **facts}))


@functools.cache
def accepted(dialect: Dialect) -> list[ViTConfig]:
    """Models that the dialect and its library can express, at least one."""
    models = []
    for kind in KINDS:
        with contextlib.suppress(ConfigError):
            models.append(build(dialect, **kind))
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
