"""Facts about a timm file without `config.json`, such as `model.safetensors` of a ViT-B/16.

Two architectures can have the same arrays and compute differently: with another GELU, without
rotary positions, with norms behind the branches. keras_vit takes a fact on which all
registered architectures with the file's parts agree; a caller must give the other facts.
"""

import contextlib
import functools
import math
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.timm import architectures
from keras_vit.checkpoints.dialects.timm.eva import eva
from keras_vit.checkpoints.dialects.timm.naflex import naflex
from keras_vit.checkpoints.dialects.timm.vit import vit
from keras_vit.config import Numerics
from keras_vit.errors import listed

Fields = Mapping[str, Any]

_BEHIND = {"block_fn": "ResPostBlock", "use_post_norm": True}
"""Arguments of blocks with norms behind the branches; other blocks have the same arrays."""

_NUMERICS = ("gelu", "layer_norm_epsilon")
_HIDDEN = (
    *_NUMERICS,
    *("rope", "pooling", "class_token_in_mean", "prefix_in_map", "map_num_heads"),
)
"""Facts that no array tells; those of `Numerics` first."""


class _Architecture:
    """A registered architecture: the parts that its arrays show, and the facts that they hide."""

    def __init__(self, name: str, row: Mapping[str, Any]) -> None:
        self.name = name
        self.norms_behind = any(row.get(key) == value for key, value in _BEHIND.items())
        self.row = {**architectures.read_defaults(row), **row}
        if self.norms_behind:  # init_values are then first values of the norms, not a layer scale
            self.row["init_values"] = None
        arguments = {key: value for key, value in self.row.items() if _BEHIND.get(key) != value}
        dialect = {"timm": vit, "timm/eva": eva}[architectures.find_family(row)]
        file = {"architecture": "", "model_args": arguments}
        own = dialect.read_json({"config.json": file}).fields
        numerics = {**Numerics(gelu="exact").to_dict(), **own.get("numerics", {})}
        self.num_heads = own["num_heads"]
        self.facts = {key: numerics[key] for key in _NUMERICS}
        self.facts |= {key: own.get(key) for key in _HIDDEN[len(_NUMERICS) :]}
        own = {**own, **last_norm(self.row), "resnet": row.get("stem")}
        self.parts = _parts(own, dialect.name)


def last_norm(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns whether there is a last norm, and whether it follows the pooling."""
    if architectures.find_family(row) == "timm/eva":
        after = row.get("use_fc_norm")
        after = row["global_pool"] == "avg" if after is None else after
        last = row.get("use_post_transformer_norm")
        return {"final_norm": after or last is None or last, "after": after}
    after = row.get("fc_norm")
    after = row["global_pool"] == "avg" if after is None else after
    return {"final_norm": row["final_norm"], "after": bool(after and row["final_norm"])}


def _parts(fields: Fields, family: str) -> dict[str, Any]:
    """Returns the parts of a model that its arrays show; the family decides about layer scale."""
    pooling = fields.get("pooling")
    rope = fields.get("rope")
    form = rope["form"] if isinstance(rope, Mapping) else getattr(rope, "form", None)
    numerics = fields.get("numerics", {})
    biases = fields.get("qkv_bias", True)
    return {
        "class_token": bool(fields.get("class_token")) or "token" in str(pooling),
        "pool": pooling if pooling in ("map", "token_and_distillation") else None,
        "after": fields.get("after", numerics.get("pool_before_norm", False)),
        "final_norm": fields.get("final_norm", True),
        "norm": fields.get("norm", "layer"),
        "registers": bool(fields.get("num_registers")),
        "positions": fields.get("position", "learned") == "learned",
        "mixed": form == "mixed",
        "hybrid": bool(fields.get("resnet")),
        "biases": biases if isinstance(biases, bool) else tuple(biases),
        **{
            key: bool(fields.get(key, default))
            for key, default in (
                ("pre_norm", False),
                ("patch_norm", False),
                ("projection_bias", True),
                ("qk_norm", False),
                ("sub_norm_attention", False),
                ("sub_norm_mlp", False),
            )
        },
        "layer_scale": family if fields.get("layer_scale") else "",
        "mlp": fields.get("mlp", "plain"),
    }


_DEIT3 = {
    "class": "Eva",
    "attn_type": "rope",
    "class_token": True,
    "global_pool": "token",
    "init_values": 1e-4,
    "no_embed_class": True,
}
"""DeiT-III as if it were an `Eva`: Facebook's files of it have the arrays of some of `Eva`'s."""


@functools.cache
def _architectures() -> tuple[_Architecture, ...]:
    """Returns the architectures that keras_vit has names for; NaFlexVit's arrays have their own."""
    facebook = "DeiT-III by Facebook's names, to be read by family='facebook'"
    readable = [_Architecture(facebook, _DEIT3)]
    for name, row in architectures.rows():
        if architectures.find_family(row) != naflex.name:
            with contextlib.suppress(ValueError):  # a part that keras_vit lacks
                readable.append(_Architecture(name, row))
    return tuple(readable)


def _fitting(family: str, fields: Fields) -> list[_Architecture]:
    parts = _parts(fields, family)
    return [architecture for architecture in _architectures() if architecture.parts == parts]


def facts_of(name: str) -> dict[str, Any]:
    """Returns the facts of an architecture that no array tells; empty if timm has not registered it.

    Raises:
        ValueError: the architecture has a part that keras_vit lacks.
    """
    row = architectures.find_row(name)
    if row is None:
        return {}
    known = _Architecture(name, row)
    facts = {k: v for k, v in known.facts.items() if v is not None or k == "rope"}
    facts = {f"numerics.{k}" if k in _NUMERICS else k: v for k, v in facts.items()}
    return {"num_heads": known.num_heads, **facts}


def deduce(family: str, fields: Fields) -> dict[str, Any]:
    """Returns the fields on which all architectures with the parts of a file agree."""
    fits = _fitting(family, fields)
    agreed = {key: fits[0].facts[key] for key in _HIDDEN if fits and not _differ(fits, key)}
    numerics = {key: agreed.pop(key) for key in _NUMERICS if key in agreed}
    agreed = {key: value for key, value in agreed.items() if value is not None}
    position = {"position": "none"} if fields.get("position") == "sincos2d" else {}
    return {**position, **agreed, "numerics": {**numerics, **fields.get("numerics", {})}}


def undetermined(family: str, fields: Fields) -> dict[str, str]:
    """Returns the facts that arrays alone leave open, each with its values and architectures."""
    fits = _fitting(family, fields)
    if not fits:
        return dict.fromkeys(_NUMERICS, "no architecture of timm has these parts together")
    if behind := [architecture.name for architecture in fits if architecture.norms_behind]:
        reason = f"blocks with a norm behind each branch have these arrays: {listed(behind, 3)}"
        return {"architecture": reason}
    open_facts = {key: _who(fits, key) for key in _HIDDEN if _differ(fits, key)}
    if _is_cut(fits, fields):
        open_facts["image_size"] = "pixels right and below may fill no patch: 384 of patches of 14"
    return open_facts


def _differ(fits: list[_Architecture], key: str) -> bool:
    return any(architecture.facts[key] != fits[0].facts[key] for architecture in fits)


def _who(fits: list[_Architecture], key: str) -> str:
    """Returns, for a message, each value of a fact with one architecture that has it."""
    values: dict[str, str] = {}
    for architecture in fits:
        values.setdefault(repr(architecture.facts[key]), architecture.name)
    return listed([f"{value} in {name}" for value, name in values.items()], 4)


def _is_cut(fits: list[_Architecture], fields: Fields) -> bool:
    """Whether an architecture of this grid has images with pixels that fill no patch."""
    count, patch = fields.get("num_positions", 0), tuple(fields.get("patch_size", ()))
    for architecture in fits:
        size, side = architecture.row.get("img_size"), architecture.row.get("patch_size", 16)
        if size and patch == (side, side) and size // side == math.isqrt(count):
            return True
    return False
