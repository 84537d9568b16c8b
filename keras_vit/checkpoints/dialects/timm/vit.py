"""timm's `VisionTransformer`, its distilled form (DeiT) and its hybrids.

Examples are `vit_base_patch16_224` and the architectures of CLIP, DINOv2, SigLIP, DeiT, MAE, BEiT-3
and AIMv2. Query, key and value are one array. Hybrids have the layout of timm's ResNetV2, and other
epsilons than the official code (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

from typing import Any

from keras_vit.checkpoints.dialects.base import Dialect, Identity, with_reasons
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonField,
    JsonFields,
    Row,
    number,
    one_of,
)
from keras_vit.checkpoints.dialects.names import TORCH
from keras_vit.checkpoints.dialects.timm.architectures import (
    EPSILONS,
    arguments_of,
    names_of,
    norm_of,
    ratio_of,
    row_of,
    to_write,
)
from keras_vit.checkpoints.dialects.timm.images import images
from keras_vit.checkpoints.dialects.timm.rows import (
    BLOCKS,
    IMPOSSIBLE,
    POOL_OF,
    SIZES,
    dim_row,
    imagenet,
    pre_norm_row,
    read_pooling,
    tables,
    warn_of_gelu,
)
from keras_vit.checkpoints.dialects.torch_conventions import POSITIONS_OF_ANOTHER_GRID
from keras_vit.config import Numerics, ViTConfig


def _is_packed(config: ViTConfig) -> bool:
    """Whether gate and value are one array, as in DINOv2-g, and not two, as in AIMv2."""
    return config.norm == "layer"


_REASONS = {"pre_logits/": "timm's VisionTransformer has no representation layer"}

_MLPS = {"Mlp": "plain", "GluMlp": "gated", "SwiGLU": "gated"}


def _architecture(content: Json) -> dict[str, Any]:
    """Returns the facts that only the architecture's name tells: norms, epsilon, kind of MLP.

    No registered `VisionTransformer` has rotary positions, which the arrays alone may suggest.
    """
    arguments = arguments_of(content)
    warn_of_gelu(content, arguments)
    fields = norm_of(arguments)
    if row_of(content.get("architecture")) is not None:
        fields["rope"] = None  # no field of the row: a model with rope is not written
    if "mlp_layer" in arguments:
        fields["mlp"] = one_of(_MLPS).read(arguments["mlp_layer"])
    if "embed_norm_layer" in arguments:
        fields["patch_norm"] = arguments["embed_norm_layer"] is not None
    return fields


_GELUS = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick", None: "exact", "": "exact"}


def _activation_of(content: Json) -> dict[str, Any]:
    if "act_layer" not in content:
        return {}
    word = content["act_layer"]
    is_gated = content.get("mlp_layer", "Mlp") != "Mlp"
    if is_gated and str(word).lower() == "silu":
        return {"numerics.gate": "silu"}
    gelu = one_of(_GELUS).read(word)
    return {"numerics.gelu": gelu, **({"numerics.gate": "gelu"} if is_gated else {})}


def _activation(config: ViTConfig) -> dict[str, Any]:
    if config.mlp == "gated" and config.numerics.gate == "silu":
        return {"act_layer": "silu"}
    return {"act_layer": one_of(_GELUS).write(config.numerics.gelu)}


def _read_pooling(content: Json) -> dict[str, Any]:
    fields = read_pooling(content)
    if "final_norm" in content:
        fields["final_norm"] = content["final_norm"]
    include = content.get("pool_include_prefix", False)
    kind = fields.get("classifier")
    others = content.get("class_token") or content.get("reg_tokens")
    if kind == "gap":
        fields["class_token_in_mean"] = bool(include and others)
    if kind == "map":
        fields["prefix_in_map"] = bool(include or not others)
    return fields


def _pooling(config: ViTConfig) -> dict[str, Any]:
    words: dict[str, Any] = {
        "global_pool": POOL_OF.get(config.classifier, ""),
        "class_token": config.has_class_token,
        "final_norm": config.final_norm,
    }
    if config.classifier == "gap":
        words["fc_norm"] = config.numerics.pool_before_norm
    is_map = config.classifier == "map" and bool(config.num_prefix_tokens)
    words["pool_include_prefix"] = config.class_token_in_mean or (is_map and config.prefix_in_map)
    return words


def _mlp_dim(content: Json) -> int:
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    return size // 2 if content.get("mlp_layer") == "GluMlp" else size


def _ratio(config: ViTConfig) -> float:
    is_packed = config.mlp == "gated" and _is_packed(config)
    return ratio_of(config.mlp_dim * (1 + is_packed), config.hidden_size)


def _without_positions(content: Json) -> dict[str, Any]:
    if "pos_embed" not in content:
        return {}
    return {"position": "none" if content["pos_embed"] in ("", "none", False) else "learned"}


ARGUMENTS: tuple[Row, ...] = (
    *SIZES,
    dim_row(_mlp_dim, _ratio),
    JsonFields(
        ("global_pool", "class_token", "pool_include_prefix", "final_norm"),
        ("classifier", "class_token", "class_token_in_mean", "prefix_in_map", "final_norm"),
        _read_pooling,
        _pooling,
    ),
    *BLOCKS,
    pre_norm_row("pre_norm"),
    JsonField("qkv_bias", "qkv_bias"),
    JsonFields(
        ("proj_bias",),
        ("projection_bias", "mlp_bias"),
        lambda content: (
            {"projection_bias": content["proj_bias"], "mlp_bias": content["proj_bias"]}
            if "proj_bias" in content
            else {}
        ),
        lambda c: {"proj_bias": c.projection_bias},
    ),
    JsonField("scale_attn_norm", "sub_norm_attention"),
    JsonField("scale_mlp_norm", "sub_norm_mlp"),
    JsonField("reg_tokens", "num_registers"),
    JsonFields(
        ("pos_embed",),
        ("position",),
        _without_positions,
        lambda c: {"pos_embed": "none" if c.position == "none" else "learn"},
    ),
    JsonFields(("act_layer",), ("numerics.gelu", "numerics.gate"), _activation_of, _activation),
)
"""Arguments of `VisionTransformer`."""

vit = Dialect(
    name="timm",
    library="timm",
    container="safetensors",
    words=with_reasons(_REASONS, TORCH.names("timm", "timm/stem", "timm/vit")),
    identity=Identity(
        "config.json",
        "architecture",
        rf"(?!(?:{'|'.join([*names_of('timm/eva'), *names_of('timm/naflex')])})(?:\..*)?$).*",
        "an architecture of VisionTransformer",
    ),
    json=tables(
        JsonFields(
            ("architecture",),
            ("norm", "numerics.layer_norm_epsilon", "mlp", "patch_norm"),
            _architecture,
            lambda c: {"architecture": to_write(c)},
        ),
        ARGUMENTS,
    ),
    labels=imagenet,
    images=images,
    numerics=Numerics(
        gelu="exact",
        group_norm_epsilon=1e-5,
        std_conv="sqrt_var_plus_epsilon",
        std_conv_epsilon=1e-8,
        position_resize="bicubic_antialias",
    ),
    expresses=("gelu", "gate", "pool_before_norm", "position_resize"),
    varies={"layer_norm_epsilon": EPSILONS},
    fields={"position": "learned"},
    switches=("position",),
    impossible=(
        (lambda c: c.position == "sincos2d", "position other than 'learned' or 'none'"),
        POSITIONS_OF_ANOTHER_GRID,
        *IMPOSSIBLE,
        (
            lambda c: c.resnet is not None and to_write(c) is None,
            "a stem of stages that no architecture of timm has",
        ),
        (
            lambda c: c.resnet is None and to_write(c) is None,
            "norms and an MLP that no architecture of timm has together",
        ),
        (
            lambda c: c.resnet is not None and c.resnet.width_factor != 1,
            "a stem of another width than 64",
        ),
        (
            lambda c: c.projection_bias != c.mlp_bias,
            "a bias behind the attention without one in the MLP, or the other way round",
        ),
        (
            lambda c: c.mlp == "gated" and c.classifier == "map",
            "attention pooling behind gated MLPs",
        ),
    ),
    crops=False,
)
