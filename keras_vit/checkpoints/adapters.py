"""Adapters of PEFT: adds low-rank products to the arrays of a base, as `merge_and_unload` does.

An adapter's folder has the products alone, beside the whole modules that were trained
(`modules_to_save`); the state dict of a model in training has the base's arrays too, as
`base_layer`. Source: `peft/tuners/lora/layer.py`.
"""

import collections
import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import Reader
from keras_vit.checkpoints.plain_names import name_in_file
from keras_vit.errors import CheckpointError, shown
from keras_vit.presets.source import ADAPTER_CONFIG

_PLAIN = {
    *("alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "ensure_weight_tying"),
    *("eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights"),
    *("layers_pattern", "layers_to_transform", "lora_alpha", "lora_bias", "lora_dropout"),
    *("megatron_core", "modules_to_save", "peft_type", "peft_version", "qalora_group_size", "r"),
    *("rank_pattern", "revision", "target_modules", "task_type", "use_rslora"),
}
"""Keys of `adapter_config.json` that ask for nothing but LoRA's products; others, such as
`use_dora`, change the formula if they are set."""
_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base as it is."""

_MODEL = re.compile(r"(?:(?<=\.)|^)base_model\.model\.")
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<factor>[AB])(?:\.\w+)?\.(?P<kind>weight|bias)")


def is_adapted(names: Collection[str], is_adapter: bool) -> bool:
    """Whether a file holds an adapter, or a model with an unmerged one.

    Args:
        names: names of the arrays.
        is_adapter: whether the configuration of an adapter lies beside the file.
    """
    marks = (".lora_", ".base_layer.", *(("base_model.model.",) if is_adapter else ()))
    return any(mark in name for name in names for mark in marks)


def has_base(names: Collection[str]) -> bool:
    """Whether the arrays of the base are in the file, and not its biases alone (`bias="all"`)."""
    return any(name.endswith(".base_layer.weight") for name in names)


def merge(reader: Reader, config: Mapping[str, Any], base: Reader | None) -> Reader:
    """Returns a reader of the merged arrays, under the names of the base.

    Args:
        reader: the arrays of the adapter.
        config: contents of `adapter_config.json`; {} if there is none.
        base: the arrays of the base; None if the adapter's file has them.

    Raises:
        CheckpointError: the adapter is none of LoRA, belongs to another base, or nothing states its
            scale.
    """
    adapter = _Adapter(reader, config)
    if base is None:
        return _MergedReader(reader, adapter, {name: (reader, own) for name, own in adapter.whole})
    spell, added, lacking = _alignment(reader, adapter, base)
    places = {
        added + name.removeprefix(lacking): (base, name)
        for name in base.shapes
        if name.startswith(lacking)
    }
    # A class with a head of its own leaves out the pooler that the bare encoder's file has.
    if added and any(not spell(name).startswith(added) for name, _ in adapter.whole):
        places = {n: place for n, place in places.items() if ".pooler.dense." not in f".{n}"}
    places |= {spell(name): (reader, own) for name, own in adapter.whole}
    adapter.products = {spell(name): product for name, product in adapter.products.items()}
    return _MergedReader(reader, adapter, places)


class _Adapter:
    """The arrays of an adapter by their part in the merged model.

    Attributes:
        whole: name in the model and name in the file of every whole array.
        products: name of a weight or bias -> scale, and names of the factors in the file.
    """

    def __init__(self, reader: Reader, config: Mapping[str, Any]) -> None:
        self.whole: list[tuple[str, str]] = []
        self.products: dict[str, tuple[float, list[str]]] = {}
        _check_method(reader, config)
        factors: dict[str, dict[str, str]] = collections.defaultdict(dict)
        for own in reader.shapes:
            name = _MODEL.sub("", own)
            if factor := _FACTOR.fullmatch(name):
                kind = factor["factor"] if factor["kind"] == "weight" else "bias"
                if kind in factors[factor["module"]]:
                    _refuse(reader, f"there are several adapters of {shown(factor['module'])}")
                factors[factor["module"]][kind] = own
            elif ".lora_" in name:
                _refuse(reader, f"array {shown(own)} is no factor of a matrix")
            elif ".original_module." not in name:
                name = re.sub(r"\.modules_to_save\.\w+\.|\.base_layer\.", ".", name)
                self.whole.append((name, own))
        if not factors:
            _refuse(reader, "there are no arrays lora_A and lora_B")
        for module, names in factors.items():
            if not {"A", "B"} <= names.keys():
                _refuse(reader, f"{shown(module)} has one factor of two")
            rank = reader.shapes[names["A"]][0]
            scale = _alpha(reader, config, module) / (
                math.sqrt(rank) if config.get("use_rslora") else rank
            )
            self.products[f"{module}.weight"] = scale, [names["B"], names["A"]]
            if "bias" in names:
                self.products[f"{module}.bias"] = scale, [names["bias"]]


class _MergedReader(Reader):
    """The arrays of a base with the products of an adapter.

    Args:
        reader: the arrays of the adapter.
        adapter: their parts.
        places: name -> the reader that has the array without the product, and its name there.
    """

    def __init__(
        self, reader: Reader, adapter: _Adapter, places: Mapping[str, tuple[Reader, str]]
    ) -> None:
        super().__init__(reader.path)
        self._reader, self._adapter, self._places = reader, adapter, places
        for name, (source, own) in places.items():
            self.shapes[name], self.dtypes[name] = source.shapes[own], source.dtypes[own]
        for name, (_, factors) in adapter.products.items():
            shapes = [reader.shapes[factor] for factor in factors]
            size = math.prod(shapes[0])
            if len(shapes) == 2:
                size = shapes[0][0] * math.prod(shapes[1][1:])
            found = self.shapes.get(name, ())
            # Also where fan_in_fan_out is set: PEFT sets it aside for every layer but Conv1D.
            fits = found[:1] == shapes[0][:1] and size == math.prod(found)
            if not fits or (len(shapes) == 2 and math.prod(shapes[0][1:]) != shapes[1][0]):
                raise CheckpointError(
                    f"{reader.path}: the product {shown(name)} of shapes {shapes} fits no array of "
                    f"the base, where it is {found or 'absent'}. Give the adapter's own base by "
                    "base=."
                )

    def read(self, name: str) -> np.ndarray:
        source, own = self._places[name]
        array = source.read(own)
        if name not in self._adapter.products:
            return array
        scale, factors = self._adapter.products[name]
        first, *others = (self._reader.read(factor).astype("float32") for factor in factors)
        if others:  # kernels of convolutions are matrices too: (m, r, 1, 1) and (r, c, p, q)
            first = first.reshape(len(first), -1) @ others[0].reshape(len(others[0]), -1)
        return (array + scale * first.reshape(array.shape)).astype(array.dtype)


def _check_method(reader: Reader, config: Mapping[str, Any]) -> None:
    """Refuses adapters whose outputs are not those of LoRA's products."""
    method = config.get("peft_type", "LORA")
    if method != "LORA":
        _refuse(reader, f"its peft_type is {shown(method)}")
    if config.get("init_lora_weights") not in _STARTS:
        start = shown(config["init_lora_weights"])
        _refuse(reader, f"init_lora_weights={start} has changed the base")
    if odd := [key for key, value in config.items() if value and key not in _PLAIN]:
        _refuse(
            reader, f"{ADAPTER_CONFIG} has {shown(odd[0], quoted=False)}={shown(config[odd[0]])}"
        )


def _refuse(reader: Reader, fault: str) -> None:
    raise CheckpointError(
        f"{reader.path}: keras_vit merges plain LoRA of PEFT alone, and here {fault}; write the "
        "whole model with PEFT: model.merge_and_unload().save_pretrained(folder)."
    )


def _alpha(reader: Reader, config: Mapping[str, Any], module: str) -> float:
    """Returns the numerator of a module's scale.

    The keys of `alpha_pattern` are regular expressions; as a stranger's expression may take hours,
    only names are read, with `^` in front of a whole name.
    """
    alpha = config.get("lora_alpha")
    for key, value in (config.get("alpha_pattern") or {}).items():
        name = key.replace("\\.", ".")
        if not re.fullmatch(r"\^?[\w.]+", name):
            _refuse(reader, f"alpha_pattern has the regular expression {shown(key)}")
        if module == name.removeprefix("^") or module.endswith(f".{name}"):
            alpha = value
            break
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise CheckpointError(
            f"{reader.path}: the arrays of LoRA do not tell their scale, and lora_alpha is "
            f"{shown(alpha)}. Name the folder with {ADAPTER_CONFIG}, which states lora_alpha."
        )
    return alpha


def _alignment(reader: Reader, adapter: _Adapter, base: Reader) -> tuple[Any, str, str]:
    """Returns how the adapted model's names follow from the base's.

    transformers names a layer in memory otherwise than in its files, and a class with a head puts
    the encoder below a prefix.

    Returns:
        The function that spells a name as files do, the prefix that the adapted model adds to the
        names of the base, and the prefix that its names lack.
    """
    for spell in (str, name_in_file):
        targets = [spell(name) for name in adapter.products]
        first = targets[0]
        pairs = [("", n.removesuffix(first)) for n in base.shapes if f".{n}".endswith(f".{first}")]
        pairs += [(first.removesuffix(n), "") for n in base.shapes if f".{first}".endswith(f".{n}")]
        fitting = {
            (added, lacking)
            for added, lacking in pairs
            if all(lacking + t.removeprefix(added) in base.shapes for t in targets)
        }
        if len(fitting) == 1:
            return (spell, *fitting.pop())
    raise CheckpointError(
        f"{reader.path}: the adapter changes {shown(next(iter(adapter.products)), quoted=False)}, "
        f"which the base at {base.path} does not have. Give the adapter's own base by base=."
    )
