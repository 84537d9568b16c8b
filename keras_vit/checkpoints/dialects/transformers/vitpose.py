"""transformers' backbone of ViTPose (arXiv 2204.12484), such as `usyd-community/vitpose-base-simple`.

A plain ViT without a class token. The file still has the class token's position, which the library
adds to every patch. In a model of ViTPose+ (arXiv 2212.04246) an expert for each data set computes
the last channels of each MLP; with the expert of one data set, the MLP is a plain one.
"""

import dataclasses
import re

import numpy as np

from keras_vit.checkpoints.containers import ComputedArray, Reader, computed
from keras_vit.checkpoints.dialects.base import Feature, Fold
from keras_vit.checkpoints.dialects.json_fields import Json, JsonField
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.torch_conventions import IMAGENET
from keras_vit.checkpoints.dialects.transformers import common, vit
from keras_vit.checkpoints.dialects.transformers.processor import processor_of_class
from keras_vit.errors import CheckpointError, shown
from keras_vit.support.text import log

_POSITIONS = "embeddings.position_embeddings"
_EXPERT = re.compile(r"(encoder\.layer\.\d+\.mlp\.)experts\.(\d{1,4})\.(weight|bias)")
_SIZES = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": [256, 192],
    "patch_size": [16, 16],
}


def _read(reader: Reader, files: Json, dataset_index: int | None) -> Reader:
    experts = {name: found for name in reader.shapes if (found := _EXPERT.fullmatch(name))}
    numbers = {int(found[2]) for found in experts.values()}
    chosen = 0 if dataset_index is None else dataset_index
    if dataset_index is None and numbers:
        log.warning(
            "%s: the expert of data set 0 is read, of %d; dataset_index= chooses another.",
            *(reader.path, len(numbers)),
        )
    elif dataset_index is not None and chosen not in numbers:
        there = f"data sets 0 to {max(numbers)}" if numbers else "none: its MLPs are no mixtures"
        raise CheckpointError(
            f"{reader.path}: dataset_index={shown(dataset_index)}, but the file has experts of "
            f"{there}."
        )
    arrays = {
        f"{found[1]}fc2.{found[3]}": (f"{found[1]}fc2.{found[3]}", name)
        for name, found in experts.items()
        if int(found[2]) == chosen
    }
    folded = {
        name: _join(reader, *parts)
        for name, parts in arrays.items()
        if name in reader.shapes and len({reader.shapes[part][1:] for part in parts}) == 1
    }
    _, *others = reader.shapes.get(_POSITIONS, ())
    if len(others) == 2 and others[0] > 1:
        kind = np.promote_types(reader.dtypes[_POSITIONS], np.float32)
        shape = (1, others[0] - 1, others[1])
        folded[_POSITIONS] = ComputedArray(shape, kind, lambda: _add_first(reader, kind))
    return computed(reader, folded, experts)


def _join(reader: Reader, shared: str, own: str) -> ComputedArray:
    """Returns the rows of the shared part of a product and those of an expert."""
    first, second = reader.shapes[shared], reader.shapes[own]
    kind = np.promote_types(reader.dtypes[shared], reader.dtypes[own])
    shape = (first[0] + second[0], *first[1:])
    return ComputedArray(
        shape, kind, lambda: np.concatenate([reader.read(shared), reader.read(own)])
    )


def _add_first(reader: Reader, kind: np.dtype) -> np.ndarray:
    positions = reader.read(_POSITIONS).astype(kind)
    return positions[:, 1:] + positions[:, :1]


def _write(reader: Reader) -> Reader:
    _, count, width = reader.shapes[_POSITIONS]
    kind = reader.dtypes[_POSITIONS]

    def read() -> np.ndarray:
        return np.concatenate([np.zeros((1, 1, width), kind), reader.read(_POSITIONS)], axis=1)

    return computed(reader, {_POSITIONS: ComputedArray((1, count + 1, width), kind, read)})


FAMILIES = (
    common.dialect(
        "vitpose_backbone",
        TORCH.names(
            vit.NAMES,
            {
                "block_{l}/mlp/dense_0": "encoder.layer.{l}.mlp.fc1",
                "block_{l}/mlp/dense_1": "encoder.layer.{l}.mlp.fc2",
            },
        ),
        (
            common.architectures(None, "VitPoseBackbone"),
            *common.size_rows(mlp_dim=False),
            common.WHOLE_RATIO,
            JsonField("qkv_bias", "qkv_bias", default=True),
            *common.arithmetic_rows("gelu", 1e-12),
            *common.DROPOUT_ROWS,
        ),
        sizes=_SIZES,
        epsilon=1e-12,
        poolings=("gap",),
        fields={"num_classes": 0, "class_token": None, "patch_shift": 2},
        images=dataclasses.replace(
            processor_of_class(
                "VitPose",
                size={"height": 256, "width": 192},
                resample=2,
                image_mean=IMAGENET["mean"],
                image_std=IMAGENET["std"],
            ),
            image_size=None,
        ),
        impossible=common.NO_WHOLE_RATIO,
        fold=Fold(_read, _write),
        feature=Feature(first_patch=0),
        sample={
            "num_classes": 0,
            "pooling": "gap",
            "class_token": None,
            "patch_shift": 2,
            "patch_size": (8, 8),
            "image_size": (48, 32),
        },
    ),
)
