"""The arguments of `timm.create_model`, which a model card prints, in place of `config.json`.

    timm.create_model("vit_huge_patch14_224", mlp_layer=SwiGLUPacked, act_layer=torch.nn.SiLU, ...)

They become the content of `config.json`, so that the rows of the dialect read them. JSON cannot
state a class; here a class is given as such or by its name.
"""

import functools
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect
from keras_vit.checkpoints.dialects.json_fields import Json, object_at
from keras_vit.checkpoints.dialects.timm import architectures, rows
from keras_vit.checkpoints.dialects.timm.bare_files import last_norm
from keras_vit.checkpoints.dialects.timm.images import KEYS
from keras_vit.config.rules import pair
from keras_vit.errors import nearest, shown

_NAMES = ("architecture", "model_name")
_NORMS = ("norm_layer", "embed_norm_layer")


@functools.cache
def _list_arguments(family: str) -> frozenset[str]:
    """Returns the arguments of a dialect's constructors by which the outputs of a model differ."""
    own = [row for _, row in architectures.rows() if architectures.find_family(row) == family]
    defaults, words = map(architectures.read_defaults, own), architectures.words_of_cards()
    classes = () if family == "timm/eva" else words["classes"]
    known = {"qk_norm", *_NORMS}.union(*own, *defaults, classes, *(row.keys for row in rows.SIZES))
    return frozenset(known.difference(words["without_effect"], ("class", "stem", "width")))


def _write_class(key: str, value: Any) -> Any:
    """Returns the word for a class, a partial of one, or the name of one."""
    if value in (None, ""):
        return None
    kind, options = getattr(value, "func", value), getattr(value, "keywords", {})
    module, _, name = getattr(kind, "__name__", str(kind)).rpartition(".")
    if key in _NORMS:
        if isinstance(kind, str):  # timm's layer of this name, but for "torch.nn.LayerNorm"
            return {"name": name, "eps": 1e-5} if module.endswith("nn") else name
        return {"name": name, "eps": inspect.signature(value).parameters["eps"].default}
    # timm's blocks give their act_layer to the MLP, whatever a partial says.
    stated = ", ".join(f"{k}={v}" for k, v in options.items() if k != "act_layer")
    name = f"{name}({stated})" if stated else name
    words = architectures.words_of_cards()["classes"][key]
    if name not in words:
        raise ValueError(f"has {key}={shown(name)}, expected one of {', '.join(words)}")
    return words[name]


def write_config(card: Any, stored: Json) -> dict[str, Any]:
    """Returns the content of `config.json` for the arguments of a card.

    Args:
        card: arguments of `timm.create_model` by name; the name of the model is `architecture` or
            `model_name`.
        stored: the content of the `config.json` beside the weights, or an empty object. It states
            what a card of the same architecture leaves out, and the architecture where the card
            names a repository (`hf-hub:owner/name`).

    Raises:
        ValueError: an argument, a class or the architecture is unknown, or no architecture is
            stated.
    """
    if not isinstance(card, Mapping):
        raise ValueError(f"is {shown(card)}, expected the arguments of create_model in a dict")
    full = next((str(card[key]) for key in _NAMES if card.get(key)), "hf-hub:")
    architecture = full.rpartition("/")[2]
    if architectures.find_row(architecture) is None:
        if ":" not in full:
            guess = nearest(architecture, [name for name, _ in architectures.rows()])
            raise ValueError(f"names {shown(full)}, no plain ViT of timm.{guess}")
        if "architecture" not in stored:
            raise ValueError("needs an architecture, such as 'vit_large_patch16_224'")
        architecture = str(stored["architecture"])
    words = architectures.words_of_cards()
    row = architectures.find_row(architecture) or {}
    arguments = _list_arguments(architectures.find_family(row))
    known = (*arguments, *_NAMES, "pretrained_cfg", *KEYS, *words["without_effect"])
    if unknown := [key for key in card if key not in known]:
        guess = nearest(unknown[0], known)
        raise ValueError(f"has {shown(unknown[0])}, no argument of {architecture}.{guess}")
    is_same = str(stored.get("architecture")).partition(".")[0] == architecture.partition(".")[0]
    config = {**(stored if is_same else {}), "architecture": architecture}
    if card.get("num_classes"):  # 0 leaves out a head that the arrays have
        config["num_classes"] = card["num_classes"]
    own = {key: card[key] for key in arguments & card.keys() - {"num_classes"}}
    own |= {key: _write_class(key, own[key]) for key in (*words["classes"], *_NORMS) if key in own}
    own_images = {key: card[key] for key in KEYS if key in card}
    for key, stated in (("model_args", own), ("pretrained_cfg", own_images)):
        config[key] = {**object_at(config, (key,)), **object_at(card, (key,)), **stated}
    return config


Statement = tuple[Iterable[str], str, Any, Any]


def _compare(card: Json, config: Json, dialect: Dialect, arrays: Json) -> Iterator[Statement]:
    """Yields arguments, the field that they state, its value, and its value by the arrays."""
    arguments, width = architectures.read_arguments(config), arrays["hidden_size"]
    for table in dialect.json:
        if table.at not in ((), ("model_args",)):
            continue
        own = object_at(config, table.at)
        content = {"embed_dim": width, **table.assumed(config), **own}
        content |= {k: v for k, v in table.shown(arrays, content).items() if k not in own}
        for row in table.rows:
            keys = {*_NAMES, *_NORMS} if row.keys == ("architecture",) else {*row.keys}
            for field, value in row.read_from(content).items() if keys & card.keys() else ():
                # Another key of the row does not state the field that has a key of its own.
                if field in arrays and (field not in keys or field in card):
                    yield keys, field, value, arrays[field]
    if not {"num_heads", "embed_dim"} & config["model_args"].keys():
        # No array tells the number of heads, which belongs to the usual width.
        yield _NAMES, "embed_dim", arguments.get("width", width), width
    told = arrays.get("numerics", {}).get("pool_before_norm", False)
    yield ("global_pool", "fc_norm"), "fc_norm", last_norm(arguments)["after"], told
    if count := arrays.get("num_positions"):
        size = card.get("img_size") or [side * math.isqrt(count) for side in arrays["patch_size"]]
        positions = rows.read_positions(arrays, {"img_size": size})
        told = f"{count} positions" if "img_size" in positions else size
        yield ("img_size",), "img_size", size, told
        stated = bool(card.get("no_embed_class"))
        yield ("no_embed_class",), "no_embed_class", stated, positions.get("no_embed_class", stated)


def _show(field: str, value: Any) -> Any:
    """Returns what arrays show of the value of a field; None and False are one."""
    if field == "pooling":
        return "map" if value == "map" else "token or mean"
    return pair(field, value) if field == "patch_size" else False if value is None else value


def refuse_contradictions(card: Json, config: Json, dialect: Dialect, arrays: Json) -> None:
    """Refuses a card that the arrays contradict.

    Args:
        card: arguments of `timm.create_model` by name.
        config: the content of `config.json` that `write_config` made of them.
        dialect: the dialect of the arrays.
        arrays: the fields that the arrays show.

    Raises:
        ValueError: the arrays contradict arguments, or a value is invalid; the message names each
            argument, what it states and what the arrays have.
    """
    found = []
    for keys, field, *values in _compare(card, config, dialect, arrays):
        words = ", ".join(f"{key}={shown(card[key])}" for key in card if key in keys)
        stated, told = (_show(field, value) for value in values)
        if words and stated != told:
            found.append(f"has {words}, so {field}={stated}, but the arrays have {told}")
    if found:
        raise ValueError("; ".join(dict.fromkeys(found)))
