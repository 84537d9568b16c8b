"""Builders of transformers' vision towers: alone, under a classifier, or beside a text tower.

In a file of two towers, keras_vit ignores `text_model.*`, the names of the vision tower begin with
`vision_model.`, and config.json nests the sizes in `vision_config`.
"""

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, Limits, Names, StoredAs
from keras_vit.checkpoints.dialects.dinov3_rows import ACTIVATIONS
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonTable,
    Row,
    constant,
    note,
    object_at,
)
from keras_vit.checkpoints.dialects.names import Section
from keras_vit.checkpoints.dialects.transformers import common
from keras_vit.checkpoints.dialects.transformers.processor import FILE as PROCESSOR

NAMES: Section = {
    "patch_embedding": "embeddings.patch_embedding",
    "position_embedding/embedding": "embeddings.position_embedding.weight : n m",
    "block_{l}/attention_norm": "encoder.layers.{l}.layer_norm1",
    "block_{l}/attention/{qkv}": "encoder.layers.{l}.self_attn.{q}_proj",
    "block_{l}/attention/out": "encoder.layers.{l}.self_attn.out_proj",
    "block_{l}/mlp_norm": "encoder.layers.{l}.layer_norm2",
    "block_{l}/mlp/dense_0": "encoder.layers.{l}.mlp.fc1",
    "block_{l}/mlp/dense_1": "encoder.layers.{l}.mlp.fc2",
    "encoder_norm": "post_layernorm",
}

TOWER = "vision_model."
_OF_TEXT = {
    r"text_model\..*": "the text tower",
    r"text_projection\.weight": "the projection of texts",
    r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
    r"(vision_model\.)?embeddings\.position_ids": "the numbers of the positions",
}
WITH_TEXT = "a vision tower without a text tower, which this class has"


@dataclasses.dataclass(frozen=True)
class Encoder:
    """What the classes of one kind of vision tower share.

    Args:
        model_type: the word of config.json for a model of two towers.
        words: names of the weights.
        rows: rows of config.json.
        sizes: defaults of the class; config.json of older releases omits keys with these values.
        fields: facts about every file.
        more: further arguments of `common.dialect`.
        refusals: models that no file can hold.
        limit: the row of the processor's limit of patches, if images keep their aspect ratio.
    """

    model_type: str
    words: Mapping[str, Names]
    rows: tuple[Row, ...]
    sizes: Json
    fields: Mapping[str, Any]
    more: Mapping[str, Any]
    refusals: Limits = dataclasses.field(default_factory=dict)
    limit: Row | None = None


def _older_sizes(files: Json) -> Json:
    """Returns the sizes of config.json before transformers 4.22; the library still prefers them."""
    content = files.get("config.json")
    return content.get("vision_config_dict") or {} if isinstance(content, Mapping) else {}


def tower(
    encoder: Encoder,
    class_name: str,
    pooling: str,
    words: Mapping[str, Names],
    *,
    name: str = "",
    rows: tuple[Row, ...] = (),
    fields: Mapping[str, Any] = MappingProxyType({"num_classes": 0}),
    refusals: Limits = MappingProxyType({}),
    **more: Any,
) -> Dialect:
    """Returns the dialect of the class that is a vision tower alone.

    Args:
        encoder: names and rows that the class shares with others.
        class_name: name of the class, which config.json names.
        pooling: see `Pool.kind`.
        words: names of weights beside the encoder's.
        name: name of the dialect behind `transformers/`; `""` for the `model_type`.
        rows, fields, refusals: beside those of the encoder and of all classes.
        **more: further arguments of `common.dialect`; `ignored` is added to that of all towers.
    """
    own = more.pop("model_type", f"{encoder.model_type}_vision_model")
    alone = common.dialect(
        own,
        {**encoder.words, **words},
        (common.architectures(None, class_name), *encoder.rows, *rows),
        name=name,
        poolings=(pooling,),
        sizes=encoder.sizes,
        fields={**encoder.fields, **fields},
        impossible={**encoder.refusals, **refusals},
        **{
            "identity": Identity("model_type", (own,), class_name),
            **encoder.more,
            **more,
            "ignored": {**_OF_TEXT, **more.get("ignored", {})},
        },
    )
    if encoder.limit is None:
        return alone

    def read_sizes(files: Json) -> Json:
        """Returns the sizes of config.json for the row of the processor."""
        place = ("vision_config",) if own == encoder.model_type else ()
        content = object_at(files.get("config.json", {}), place)
        stated = {key: content.get(key) for key in ("num_patches", "patch_size")}
        return {key: encoder.sizes[key] if v is None else v for key, v in stated.items()}

    limit = JsonTable(PROCESSOR, (encoder.limit,), beside=read_sizes)
    return dataclasses.replace(alone, json=(*alone.json, limit))


def tower_inside(encoder: Encoder, class_name: str, *arguments: Any, **more: Any) -> Dialect:
    """Returns the dialect of a class that has the tower as a part; arguments as of `tower`.

    Names have the tower's prefix, and config.json nests the tower's rows.
    """
    own = encoder.model_type
    named = common.architectures(None, class_name)
    kind = note("model_type", f"{own}_vision_model")
    return tower(
        encoder,
        class_name,
        *arguments,
        model_type=own,
        json=(
            JsonTable("config.json", (named, constant("model_type", own), *common.LABEL_ROWS)),
            JsonTable(
                "config.json",
                (kind, *encoder.rows),
                at=("vision_config",),
                assumed=lambda content: encoder.sizes,
                beside=_older_sizes,
            ),
        ),
        prefixes=(TOWER,),
        prefix_for=lambda config: TOWER,
        **more,
    )


PROJECTION = "visual_projection.weight"
NO_CLASSES = {"num_classes=0": "num_classes!"}


def projection(*names: str) -> dict[str, Names]:
    """Returns the names of the projection behind the tower."""
    return {"projection/kernel": tuple(StoredAs(n, "t m", outside=True) for n in names)}


def tower_or_whole(
    model: str,
    own: str,
    class_name: str,
    prefixes: tuple[str, ...],
    words: Mapping[str, Names],
    sizes: tuple[int, int, int, int, int, int],
    activation: str,
    epsilon: float,
    fields: Mapping[str, Any],
    rows: tuple[Row, ...] = (),
    impossible: Limits = MappingProxyType({}),
    **more: Any,
) -> Dialect:
    """Returns the dialect of a vision class, which also reads whole models with that class inside.

    Args:
        model: `model_type` of the whole model.
        own: `model_type` of the vision class.
        class_name: name of the vision class, for files that keras_vit writes.
        prefixes: prefixes of the tower's names; the first is the vision class's own.
        words: names of the weights.
        sizes: the class's defaults of width, MLP, blocks, heads, pixels and patch.
        activation, epsilon: the class's default of `hidden_act` and of `layer_norm_eps`.
        fields: facts about every model of the family.
        rows: further rows of the JSON.
        impossible: models that the class lacks.
        **more: further fields of `Dialect`.
    """
    defaults = {**common.tower_sizes(*sizes), "hidden_act": activation, "layer_norm_eps": epsilon}

    def of_the_part(files: Json) -> Json:
        """Returns the object of the tower in a whole model's JSON, complete by the defaults."""
        content = files["config.json"]
        if content.get("model_type") == own:
            return {}
        part = content.get("vision_config") or content.get("vision_config_dict") or {}
        return {**defaults, **{key: value for key, value in part.items() if value is not None}}

    weights = "|".join(sorted({re.escape(p) for p in prefixes if p})) or "-"
    bare = r"embeddings\.|encoder\.|pre_|post_|layernorm\." if "" in prefixes else "-"
    projection = r"(?:\w+\.)?visual_projection\.weight$" if "projection/kernel" in words else "-"
    table: tuple[Row, ...] = (
        common.architectures(None, class_name),
        note("model_type", own),
        *common.tower_rows(activation, epsilon),
        *rows,
    )
    return common.dialect(
        own,
        words,
        (),
        epsilon=epsilon,
        activation=ACTIVATIONS[activation],
        poolings=("token" if "class_token/token" in words else "gap",),
        prefixes=prefixes,
        prefix_for=lambda config: prefixes[0],
        ignored={
            rf"(?!{weights}|{bare}|{projection}).*": "a part beside the vision tower",
            r".*embeddings\.(position_ids|mask_token)": "no weight of the inference",
        },
        identity=Identity("model_type", (own, model), class_name),
        json=(
            JsonTable("config.json", table, assumed=lambda content: defaults, beside=of_the_part),
        ),
        fields={"num_classes": 0, **fields},
        impossible={"a projection: this class has none": "projection_size", **impossible},
        **more,
    )
