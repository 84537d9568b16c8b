"""The models that the laws of checkpoints try: values of every field, and models of a format."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from keras_vit.checkpoints.families import FORMATS, Format
from keras_vit.checkpoints.families.family import ARITHMETIC
from keras_vit.checkpoints.writing import Written, choose_format
from keras_vit.config import DenseHead, Rope, Stem, ViTConfig
from keras_vit.config.fields import flatten, nest, part_of
from keras_vit.config.pool import TOKEN_POOLINGS
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.presets.preset_config import ModelFacts
from tests.families import FAMILIES

WRITTEN = [f for f in FORMATS if not (f.library.only_read or f.row.only_read)]

PLAIN = {
    "patch_size": 2,
    "image_size": 16,
    "hidden_size": 16,
    "mlp_dim": 64,
    "num_heads": 2,
    "num_layers": 2,
    "num_classes": 3,
}

_DPT = {"kind": "dpt", "stages": (0, 1, 2, 3), "widths": (2, 4, 6, 8), "fusion_size": 4}
_DEPTH = {**_DPT, "output": "relu", "doubles": True}
_DEEPER = {"num_layers": 4, "num_classes": 1}
_SCALED: dict[str, Any] = {"block": {"layer_scale": 1e-5}}
_AIMV2 = {"block": {**FAMILIES["aimv2"]["block"], "qk_norm": None, "sub_norm": None}}
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"position": "learned_patches"},
    _SCALED,
    {**_SCALED, "tokens": {"mask": True}, "pool": {"kind": "token_and_mean"}},
    {**_SCALED, "rope": {"form": "dinov3", "theta": 100.0}},
    {
        "tokens": {"class_tokens": 0},
        "pool": {"kind": "gap"},
        "block": {**_AIMV2["block"], "gated": True, "activation": "silu"},
    },
    *FAMILIES.values(),
    {"num_layers": 4, "dense": {**_DPT, "doubles": True}},
    {**_DEEPER, "dense": _DEPTH},
    {**_DEEPER, **_SCALED, "dense": _DEPTH},
    {**_DEEPER, **_SCALED, "dense": {**_DPT, "output": "sigmoid", "max_depth": 20.0}},
)
"""The parts of the models that changes begin with, as far as a format has them."""

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
    "pool.mlp_dim": (8, 1),
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
    "dense": (None, DenseHead((1,))),
    "dense.stages": ((1,), (3,)),
    "dense.max_depth": (7.0,),
    "dense.ignore_label": (0, None),
    "dense.widths": ((2, 2, 3, 3),),
    "dense.fusion_size": (6,),
    "dense.depth_size": (32, 7),
    "rope.theta": (50.0,),
    "rope.reference_grid": (None, (5, 4)),
}
"""Values of fields other than bools and words, which are all tried."""


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
        fields = flatten(config.to_dict())
        for path, value in changes:
            part = path.partition(".")[0]
            if part != path and fields.get(part, part) is None:
                return None
            fields = {p: v for p, v in fields.items() if not p.startswith(f"{path}.")}
            fields[path] = value
        other = ViTConfig.from_dict(nest(fields))
        if not other.stem.is_packed or other.image_size:  # other models have no graph
            return other
    return None


@functools.cache
def written(format: Format, config: ViTConfig) -> Written | CheckpointError:
    """The model as the format writes it, or the refusal."""
    try:
        return choose_format(ModelFacts(config), [format])
    except CheckpointError as refusal:
        return refusal


def build(format: Format, kind: dict[str, Any]) -> ViTConfig:
    """A model of the format with the parts of a kind, and the format's constants."""
    arithmetic = {**ARITHMETIC, **format.library.arithmetic}
    facts = {**PLAIN, "pool.kind": "token", **arithmetic, **flatten(kind), **format.fixed}
    if format.row.head:
        facts["num_classes"] = 3 if facts.get("dense.output", "logits") == "logits" else 1
    if facts.get("tokens.class_tokens") == 0 and facts["pool.kind"] in TOKEN_POOLINGS:
        facts["pool.kind"] = "gap"
    return ViTConfig.from_dict(nest(facts))


@functools.cache
def accepted(format: Format) -> list[ViTConfig]:
    """Models that the format can hold, at least one."""
    found: dict[ViTConfig, None] = {}
    refusals: list[str] = []
    for kind in KINDS:
        with contextlib.suppress(ConfigError):
            config = build(format, kind)
            answer = written(format, config)
            if isinstance(answer, Written):
                found[config] = None
            else:
                refusals.append(str(answer))
    assert found, refusals
    return list(found)


@st.composite
def models(draw: Any, format: Format) -> ViTConfig:
    """A model that the format can hold: one of `accepted`, with all changes that it allows."""
    config = draw(st.sampled_from(accepted(format)))
    for change in draw(st.lists(st.sampled_from(CHANGES), min_size=10, max_size=20)):
        other = changed(config, change)
        if other is not None and isinstance(written(format, other), Written):
            config = other
    return config
