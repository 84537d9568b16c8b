"""Common tables of transformers' families: config.json, its keys, and the library.

The vision tower of a larger model is an object in config.json, `vision_config` or
`backbone_config`. `defaults.json` has the default values of keys in the library's classes;
`python -m weights.make_defaults` writes it.
"""

import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_vit.checkpoints.families.family import Class, Format, Images, Library, Stated
from keras_vit.checkpoints.families.keys import (
    Json,
    Keys,
    image_size,
    merge,
    names_by_number,
    object_at,
    sides,
)
from keras_vit.checkpoints.families.transformers.processor import (
    FILE,
    processor,
    processor_of_any_size,
)
from keras_vit.config import Task, ViTConfig
from keras_vit.errors import shown
from keras_vit.support.text import log

_OF_PROCESSOR = ("max_num_patches",)
"""Keys of a network in preprocessor_config.json."""
OF_DECODER = (
    *("neck_hidden_sizes", "fusion_hidden_size", "reassemble_factors", "reassemble_hidden_size"),
    *("head_in_index", "head_hidden_size", "depth_estimation_type", "max_depth", "readout_type"),
    *("use_batch_norm_in_fusion_residual", "use_bias_in_fusion_residual", "add_projection"),
    *("backbone_out_indices", "semantic_loss_ignore_index", "use_auxiliary_head"),
)
"""Keys of the decoder in a larger model, whose encoder is its `backbone_config`."""
DEFAULTS = Path(__file__).with_name("defaults.json")

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
}
"""transformers' name of an activation -> `Block.activation`."""
TASKS = {
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
"""`problem_type` -> `Prediction.task`."""


KEYS: Keys = {
    "num_attention_heads": "num_heads",
    "image_size": image_size,
    "hidden_act": ("block.activation", ACTIVATIONS),
    "layer_norm_eps": "block.epsilon",
}
DROPOUT: Keys = {
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
}
SHAPES: Keys = {
    "hidden_size": "hidden_size",
    "intermediate_size": "mlp_dim",
    "num_hidden_layers": "num_layers",
    "num_channels": "channels",
    "patch_size": sides("patch_size"),
}

SQUARE_ALONE = {
    "patches or images that are not square": "patch_size!=square or source_grid!=square"
}
"""The limit of classes that divide `image_size` by `patch_size` as integers."""
WITH_TEXT = "a vision tower without a text tower, which this class has"
POSITIONS_OF_ANOTHER_GRID = {
    "positions of another grid than that of image_size (load with image_size= to resize them)": (
        "stem.kind!=packed grid grid!=source_grid"
    )
}
"""A limit of libraries that do not resize positions for each image."""


@functools.cache
def read_defaults() -> dict[str, Any]:
    """Returns the default values of keys, by class."""
    return json.loads(DEFAULTS.read_text("utf-8"))


def read(files: Json, formats: Sequence[Format]) -> Stated:
    """Returns the content of config.json for a network, or for the vision tower of a model."""
    top = files.get("config.json")
    if not isinstance(top, Mapping):
        return Stated()
    towers = {word: f.row.inside or f.words[0] for f in formats for word in f.words}
    own, word = _find_tower(top, towers)
    if not word:  # it may still have the keys of a network
        return Stated(keys=own if "num_attention_heads" in own else {})
    data = read_defaults()
    kind = str(own.get("model_type"))
    defaults = data["types"].get(kind if kind in data["types"] else towers.get(word), {})
    defaults = {**data["types"].get(word if "/" in word else "", {}), **defaults}
    every = {**own, **(own.get("rope_parameters") or {})}
    stated = {key: v for key, v in every.items() if v is not None or key not in defaults}
    of_whole = {"projection_dim": top["projection_dim"]} if "projection_dim" in top else {}
    prepared = {k: v for k, v in files.get(FILE, {}).items() if k in _OF_PROCESSOR}
    classes = top.get("architectures")
    return Stated(
        words=(word,),
        class_name=str(classes[0]) if isinstance(classes, list) and len(classes) == 1 else "",
        keys={**defaults, **stated, **of_whole, **prepared},
        task=_read_task(top),
        unread={
            key: value
            for key, value in own.items()
            if value != defaults.get(key) and (value or key in defaults)
            if not re.fullmatch(data["others"], key)
        },
    )


_DEEPEST_TOWER = 4
"""Most levels of objects around a tower; ColPali has two."""
_MOST_PARTS = 50
"""Most parts of a larger model to inspect; Gemma 3 has two."""


def _find_tower(content: Json, towers: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Returns the object of the vision tower in config.json, and the word that names its family.

    Args:
        content: config.json, or an object in it.
        towers: word of a family -> word of its tower's object.
    """
    backbone, word = content.get("backbone_config"), str(content.get("model_type") or "")
    if isinstance(backbone, Mapping) and "model_type" in backbone:
        own, inner = _find_tower(backbone, towers)  # instead of a named family's own encoder
        if (whole := f"{word}/{inner}") in towers:
            return {**{key: content[key] for key in OF_DECODER if key in content}, **own}, whole
        return own, inner
    if word in towers:
        if towers[word] == word:
            return dict(content), word
        parts = ("vision_config", "vision_config_dict")  # before 4.22; the library prefers it
        return merge([object_at(content, (part,)) for part in parts]), word
    for part in itertools.islice(_list_parts(content, _DEEPEST_TOWER), _MOST_PARTS):
        if str(part["model_type"]) in towers:
            return _find_tower(part, towers)
    return dict(content), word


def _list_parts(content: Json, levels: int) -> Iterator[Json]:
    """Yields the nested objects that have a `model_type`, down to a number of levels."""
    for value in content.values():
        if isinstance(value, Mapping):
            if "model_type" in value:
                yield value
            if levels > 1:
                yield from _list_parts(value, levels - 1)


def _read_task(content: Json) -> Task:
    """Returns the task of the head; by default it follows from the loss of transformers.

    By default that loss is mean squared error for a single output, and cross-entropy for several
    (`ForSequenceClassificationLoss`, also used for image classifiers).
    """
    problem, labels = content.get("problem_type"), content.get("id2label")
    if problem is None:
        is_single = isinstance(labels, Mapping) and len(labels) == 1
        return "regression" if is_single else "single_label"
    if problem not in TASKS:
        raise ValueError(
            f"config.json has problem_type={shown(problem)}, expected one of {', '.join(TASKS)}"
        )
    return TASKS[problem]  # type: ignore[return-value]


def write(
    format: Format,
    keys: dict[str, Any],
    config: ViTConfig,
    class_names: tuple[str, ...] | None,
    task: Task,
) -> dict[str, Any]:
    """Returns config.json with the keys of a network, and those of its head."""
    content: dict[str, Any] = {"architectures": [format.class_name], "model_type": format.words[0]}
    if names := class_names or tuple(map(_label, range(config.num_classes))):
        content["id2label"] = {str(k): name for k, name in enumerate(names)}
        content["label2id"] = {name: k for k, name in enumerate(names)}
    if task != "single_label" and config.dense is None:
        content["problem_type"] = next(word for word, own in TASKS.items() if own == task)
    prepared = {key: keys.pop(key) for key in _OF_PROCESSOR if key in keys}
    if inside := format.row.inside:
        keys = {"vision_config": {"model_type": inside, **keys}}
    whole, _, backbone = format.words[0].partition("/")
    if backbone:
        decoder = {key: keys.pop(key) for key in OF_DECODER if key in keys}
        content["model_type"], decoder["patch_size"] = whole, keys["patch_size"]
        keys = {"backbone_config": {"model_type": backbone, **keys}, **decoder}
    return {"config.json": {**content, **keys}, **({FILE: prepared} if prepared else {})}


def _label(k: int) -> str:
    return f"LABEL_{k}"


def read_class_names(files: Json, num_classes: int) -> tuple[str, ...] | None:
    """Returns the class names; None for transformers' defaults LABEL_0, LABEL_1, ...

    Names that do not fit the number of classes are ignored with a warning.
    """
    try:
        names = names_by_number(files.get("config.json", {}).get("id2label") or {})
    except ValueError as reason:
        said = shown(str(reason), 400, quoted=False)
        log.warning("config.json has id2label %s. It is ignored: the classes have no names.", said)
        return None
    return names if any(label != _label(k) for k, label in enumerate(names)) else None


def make_library(images: Images = processor) -> Library:
    """Returns the library, with the preprocessing of some of its classes."""
    return Library(
        "transformers",
        json=("config.json",),
        named_by="model_type",
        read=read,
        write=write,
        class_names=read_class_names,
        images=images,
        arithmetic={"block.activation": "gelu", "position_resize": "bicubic"},
        ignored={
            r"text_model\..*|text_projection\.weight": "the text tower",
            r"logit_scale|logit_bias": "temperature and bias of the contrastive loss",
            r"embeddings\.position_ids": "position indices",
            r"embeddings\.mask_token": "the mask token, which only pretraining uses",
        },
        limits={} if images.image_size else POSITIONS_OF_ANOTHER_GRID,
        states_task=True,
        metadata={"format": "pt"},
    )


TRANSFORMERS = make_library()
ANY_SIZE = make_library(processor_of_any_size)
"""The library for classes that resize positions to their images."""


def encoder_and_classifier(network: str, encoder: Class, **others: Any) -> dict[str, Class]:
    """Returns the rows of a network's `...Model` and of its `...ForImageClassification`.

    Args:
        network: prefix of the names of both classes.
        encoder: the row of the encoder.
        **others: fields in which the row of the classifier differs; by default its prefix is the
            first of `words`.
    """
    usual = {"head": True, "prefix": f"{encoder.words.replace('-', '_')}."}
    return {
        f"{network}Model": encoder._replace(head=False),
        f"{network}ForImageClassification": encoder._replace(**{**usual, **others}),
    }


def tower(model: str, own: str = "", **others: Any) -> Class:
    """Returns the row of a vision tower, in a separate file or in the file of a larger model.

    Args:
        model: `model_type` of the larger model.
        own: `model_type` of the tower; "" for the usual name.
        **others: further fields of `Class`.
    """
    own = own or f"{model.replace('-', '_')}_vision_model"
    return Class(f"{own} {model}", own, head=False, **others)
