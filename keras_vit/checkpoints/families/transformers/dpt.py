"""transformers' models for depth and segmentation: DPT (arXiv 2103.13413) and Depth Anything.

DPT on ViT, such as `Intel/dpt-large`, and on DINOv2, such as `facebook/dpt-dinov2-small-nyu`. Depth
Anything (arXiv 2401.10891) and its second version (arXiv 2406.09414), relative and metric, such as
`depth-anything/Depth-Anything-V2-Small-hf`. The classes have two layers that they do not use: a
residual unit for the coarsest map, and a last norm that the head skips.
"""

from collections.abc import Callable

import numpy as np

from keras_vit.checkpoints.containers import Reader, computed
from keras_vit.checkpoints.families.family import Class, Family, Fold, Open
from keras_vit.checkpoints.families.keys import Codec, Facts, Json, Keys, note, only
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.transformers import dinov2, library, vit
from keras_vit.config import ViTConfig
from keras_vit.config.dense import SCALES
from keras_vit.config.weights.conditions import Place

_FUSION = "neck.fusion_stage.layers.{s}"
_UNUSED = "neck.fusion_stage.layers.0.residual_layer1."


def _layers(table: dict[str, str]) -> Section:
    return {f"head/{path}": {"name": name, "outside": True} for path, name in table.items()}


def _pointwise(table: dict[str, str]) -> Section:
    """Returns the names of layers whose kernels are stored as 1x1 convolutions."""
    names: dict[str, str] = {}
    for path, name in table.items():
        outputs = "k" if path == "output" else "o"
        names[f"{path}/kernel"] = f"{name}.weight : {outputs} a 1 1"
        names[f"{path}/bias"] = f"{name}.bias"
    return _layers(names)


_NECK: Section = {
    **_layers(
        {
            "readout_{s}": "neck.reassemble_stage.readout_projects.{s}.0",
            "larger_{s}": "neck.reassemble_stage.layers.{s}.resize",
            "smaller_{s}": "neck.reassemble_stage.layers.{s}.resize",
            "map_{s}": "neck.convs.{s}",
            "residual_{s}_{u}_conv_{v}": f"{_FUSION}.residual_layer{{u}}.convolution{{v}}",
            "residual_{s}_{u}_norm_{v}": f"{_FUSION}.residual_layer{{u}}.batch_norm{{v}}",
        }
    ),
    **_pointwise(
        {
            "stage_{s}": "neck.reassemble_stage.layers.{s}.projection",
            "fusion_{s}": f"{_FUSION}.projection",
        }
    ),
}
_DEPTH: Section = {
    **_layers(
        {"projection": "head.projection", "hidden_0": "head.head.0", "hidden_1": "head.head.2"}
    ),
    **_pointwise({"output": "head.head.4"}),
}
_SEGMENTS: Section = {
    **_layers({"hidden_0": "head.head.0", "norm": "head.head.1"}),
    **_pointwise({"output": "head.head.4"}),
}
_ANYTHING: Section = {
    **_layers({"hidden_0": "head.conv1", "hidden_1": "head.conv2"}),
    **_pointwise({"output": "head.conv3"}),
}
_IGNORED = {
    r"auxiliary_head\..*": "a head for training",
    r".*\.num_batches_tracked": "the number of training batches",
}


def _listed(field: str) -> Callable[[str], Codec]:
    return lambda key: Codec(
        field,
        lambda content: {field: content[key]},
        lambda config: {key: list(Place(field).read(config) or ())},
    )


def _read_blocks(content: Json) -> Facts:
    """Returns the blocks that a backbone outputs, counted from 0; its stages are counted from 1."""
    names = content.get("out_features") or ()
    stages = content.get("out_indices") or [int(name.removeprefix("stage")) for name in names]
    return {"dense.stages": [stage - 1 for stage in stages]}


def _write_blocks(config: ViTConfig) -> Facts:
    return {"out_indices": [block + 1 for block in config.dense.stages] if config.dense else []}


def _bias(key: str) -> Codec:
    """Returns the codec of the biases of residual units; null means a bias unless there are norms."""

    def read(content: Json) -> Facts:
        has_norms, own = content.get("use_batch_norm_in_fusion_residual"), content.get(key)
        return {"dense.residual_bias": not has_norms if own is None else own}

    return Codec("dense.residual_bias", read, lambda c: {key: Place("dense.residual_bias").read(c)})


def _max_depth(key: str) -> Codec:
    return Codec(
        "dense.max_depth",
        lambda content: {"dense.max_depth": content[key] or 1},
        lambda config: {key: int(Place("dense.max_depth").read(config) or 1)},
    )


_KEYS: Keys = {
    "neck_hidden_sizes": _listed("dense.widths"),
    "fusion_hidden_size": "dense.fusion_size",
    "reassemble_factors": only(list(SCALES)),
    "head_in_index": only(-1),
}
_OF_DPT: Keys = {
    **_KEYS,
    "readout_type": ("dense.readout", {"ignore": None, "add": "add", "project": "project"}),
    "use_batch_norm_in_fusion_residual": (
        "dense.batch_norm",
        {False: False, True: True, None: False},
    ),
    "use_bias_in_fusion_residual": _bias,
    "use_auxiliary_head": note(False),
}
_ON_VIT: Keys = {"is_hybrid": only(False), "backbone_out_indices": _listed("dense.stages")}
_ON_DINOV2: Keys = {
    "out_indices out_features": Codec("dense.stages", _read_blocks, _write_blocks),
    "apply_layernorm": ("pool.norm", {True: "before", False: "none"}),
    "reshape_hidden_states": note(False),
}
_OF_DEPTH: Keys = {"add_projection": "dense.projection"}
_DPT_DEPTH = {"dense.kind": "dpt", "dense.doubles": True, "dense.output": "relu"}


def _list_unused(reader: Reader, keys: Json) -> dict[str, str]:
    """Returns the arrays of layers that the class has but does not use."""
    has_norm = keys.get("apply_layernorm", "out_indices" in keys or "out_features" in keys)
    parts = {_UNUSED: "a unit that adds nothing", "layernorm.": "a norm that the head skips"}
    own = [part for part in parts if part == _UNUSED or not has_norm]
    return {n: parts[part] for n in reader.shapes for part in own if n.startswith(part)}


def _add(reader: Reader, files: Json) -> Reader:
    """Adds the arrays of layers that the class has but does not use."""
    like = "neck.fusion_stage.layers.0.residual_layer2."
    more = {
        name.replace(like, _UNUSED): np.zeros(shape, "float32")
        for name, shape in reader.shapes.items()
        if name.startswith(like)
    }
    norms = [name for name in {**reader.shapes, **more} if name.endswith(".running_mean")]
    for name in norms:
        more[name.replace("running_mean", "num_batches_tracked")] = np.array(0)
    prefix = next(n for n in reader.shapes if n.endswith("cls_token")).partition("embeddings.")[0]
    if f"{prefix}layernorm.weight" not in reader.shapes:
        shape = reader.shapes[f"{prefix}embeddings.cls_token"][-1:]
        more[f"{prefix}layernorm.weight"] = np.ones(shape, "float32")
        more[f"{prefix}layernorm.bias"] = np.zeros(shape, "float32")
    return computed(reader, more)


_FOLD = Fold(write=_add, unused=_list_unused)
_OPEN = {"dense.stages": Open("four blocks, counted from 0")}
_LIMITS = {"an encoder without one class token": "tokens.class_tokens!=1"}

DPT = Family(
    "transformers/dpt",
    library.ANY_SIZE,
    names={**vit.NAMES, **_NECK},
    keys={**vit.VIT.keys, **_OF_DPT, **_ON_VIT},
    shapes=vit.VIT.shapes,
    classes={
        "DPTForDepthEstimation": Class(
            "dpt",
            "_depth",
            head=True,
            prefix="dpt.",
            names=_DEPTH,
            keys=_OF_DEPTH,
            fixed=_DPT_DEPTH,
        ),
        "DPTForSemanticSegmentation": Class(
            "dpt",
            "_segmentation",
            head=True,
            prefix="dpt.",
            names=_SEGMENTS,
            keys={"semantic_loss_ignore_index": "dense.ignore_label"},
            fixed={**_DPT_DEPTH, "dense.output": "logits"},
        ),
    },
    fixed={
        "position": "learned",
        "position_resize": "bilinear_half_pixel",
        "block.epsilon": 1e-12,
        "pool.norm": "none",
    },
    ignored=_IGNORED,
    limits={**library.SQUARE_ALONE, **_LIMITS},
    open=_OPEN,
    fold=_FOLD,
)

DEPTH_ANYTHING = Family(
    "transformers/depth_anything",
    library.ANY_SIZE,
    names={**dinov2.NAMES, **_NECK},
    keys={**dinov2.DINOV2.keys, **_ON_DINOV2},
    shapes=dinov2.DINOV2.shapes,
    classes={
        "DepthAnythingForDepthEstimation": Class(
            "depth_anything/dinov2",
            head=True,
            prefix="backbone.",
            names=_ANYTHING,
            keys={
                **_KEYS,
                "head_hidden_size": "dense.depth_size",
                "depth_estimation_type": (
                    "dense.output",
                    {"relative": "relu", "metric": "sigmoid"},
                ),
                "max_depth": _max_depth,
                "reassemble_hidden_size": note(lambda config: config.hidden_size),
            },
            fixed={"dense.kind": "dpt"},
        ),
        "DPTForDepthEstimation": Class(
            "dpt/dinov2",
            "dpt_dinov2",
            head=True,
            prefix="backbone.",
            names=_DEPTH,
            keys={**_OF_DPT, **_OF_DEPTH, "backbone_out_indices": note(None)},
            fixed=_DPT_DEPTH,
        ),
    },
    fixed=dinov2.PLAIN,
    ignored=_IGNORED,
    limits=_LIMITS,
    open=_OPEN,
    fold=_FOLD,
)
