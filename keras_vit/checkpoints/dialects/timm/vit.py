"""timm's `VisionTransformer`, its distilled form (DeiT) and its hybrids.

Examples are `vit_base_patch16_224` and the architectures of CLIP, DINOv2, SigLIP, DeiT, MAE, BEiT-3
and AIMv2. Query, key and value are one array. Hybrids have the layout of timm's ResNetV2, and other
epsilons than the official code (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

from typing import Any

from keras_vit.checkpoints.dialects.base import Limits, one_of_several
from keras_vit.checkpoints.dialects.json_fields import (
    Codec,
    Json,
    JsonField,
    JsonFields,
    JsonTable,
    Row,
    number,
    one_of,
    shared_key,
)
from keras_vit.checkpoints.dialects.names import BLOCKS, TORCH, Section, last_norms, norms_of_qk
from keras_vit.checkpoints.dialects.timm import architectures, rows
from keras_vit.checkpoints.dialects.torch_conventions import (
    POSITIONS_OF_ANOTHER_GRID,
    compute_ratio,
)
from keras_vit.config import Numerics, ViTConfig
from keras_vit.support.text import log

NAMES: Section = {
    **BLOCKS,
    "register_tokens/tokens": "reg_token",
    "pre_norm": "norm_pre",
    **norms_of_qk("blocks.{l}.attn.{q}_norm", "head"),
    "block_{l}/attention/sub_norm": "blocks.{l}.attn.norm",
    "block_{l}/mlp/sub_norm": "blocks.{l}.mlp.norm",
    "encoder_norm": [
        *last_norms("fc_norm", "norm"),
        {"name": "fc_norm", "when": "pooling=token|unpooled|token_unpooled"},  # the same there
    ],
    "pool/probe": "attn_pool.latent",
    "pool/attention/{qkv}/kernel": [
        {"name": "attn_pool.q.weight", "only": {"qkv": ["query"]}, "axes": "(qkv h d) m"},
        {"name": "attn_pool.kv.weight", "only": {"qkv": ["key", "value"]}, "axes": "(qkv h d) m"},
    ],
    "pool/attention/{qkv}/bias": [
        {"name": "attn_pool.q.bias", "only": {"qkv": ["query"]}, "axes": "(qkv h d)"},
        {"name": "attn_pool.kv.bias", "only": {"qkv": ["key", "value"]}, "axes": "(qkv h d)"},
    ],
    "pool/attention/out": "attn_pool.proj",
    "pool/norm": "attn_pool.norm",
    "pool/mlp/dense_0": "attn_pool.mlp.fc1",
    "pool/mlp/dense_1": "attn_pool.mlp.fc2",
}
"""The names that `Eva` and `NaFlexVit` share."""
_OF_STEM: Section = {
    "root/conv": [
        {"name": "patch_embed.backbone.conv", "when": "resnet.num_layers!"},
        {"name": "patch_embed.backbone.stem.conv", "when": "resnet.num_layers"},
    ],
    "root/norm": [
        {"name": "patch_embed.backbone.norm", "when": "resnet.num_layers!"},
        {"name": "patch_embed.backbone.stem.norm", "when": "resnet.num_layers"},
    ],
    "stage{s}_unit{u}/conv_proj": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.downsample.conv",
    "stage{s}_unit{u}/norm_proj": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.downsample.norm",
    "stage{s}_unit{u}/conv1": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.conv1",
    "stage{s}_unit{u}/norm1": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.norm1",
    "stage{s}_unit{u}/conv2": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.conv2",
    "stage{s}_unit{u}/norm2": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.norm2",
    "stage{s}_unit{u}/conv3": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.conv3",
    "stage{s}_unit{u}/norm3": "patch_embed.backbone.stages.{s-1}.blocks.{u-1}.norm3",
}


def gated_names(when: str) -> Section:
    """Returns the names of gate and value, which are one array or two; all are read.

    Args:
        when: condition of the models whose files have one array.
    """
    return {
        f"block_{{l}}/mlp/{{gate}}/{part}": [
            {"name": f"blocks.{{l}}.mlp.fc1.{word} : {packed}", "when": when},
            f"blocks.{{l}}.mlp.fc1_{{g}}.{word} : {axes}",
            f"blocks.{{l}}.mlp.fc1.{word} : {packed}",
        ]
        for part, word, packed, axes in (
            ("kernel", "weight", "(gate f) m", "f m"),
            ("bias", "bias", "(gate f)", "f"),
        )
    }


_OWN: Section = {
    "patch_norm": "patch_embed.norm",
    "distillation_token/token": {
        "name": "dist_token",
        "implies": {"pooling": "token_and_distillation"},
    },
    **gated_names("norm=layer"),
    "head/{head}": "head{_dist}",
}

_MLPS = {"Mlp": "plain", "GluMlp": "gated", "SwiGLU": "gated"}
_ACTIVATIONS = {"plain": "gelu", "gated": "silu"}
"""The usual activations, for files whose arrays alone tell the kind of MLP."""
_SILU = (
    "The arrays have a gated MLP, which model_args do not state: its activation is taken to be "
    "SiLU, unless they state act_layer. numerics={'gate': 'gelu'} computes with GELU."
)
"""Message about models whose class of MLP, and of its activation, JSON cannot state."""
_GELUS = {"gelu": "exact", "gelu_tanh": "tanh", "quick_gelu": "quick", None: "exact", "": "exact"}
_POSITIONS = Codec(
    lambda position: "none" if position == "none" else "learn",
    lambda word: "none" if word in ("", "none", False) else "learned",
)


def _architecture(content: Json) -> dict[str, Any]:
    """Returns the facts that only the architecture's name tells: norms and epsilon.

    No registered `VisionTransformer` has rotary positions, which the arrays alone may suggest.
    """
    arguments = architectures.read_arguments(content)
    rows.warn_of_gelu(content, arguments)
    fields = architectures.read_norm(arguments)
    if architectures.find_row(content.get("architecture")) is not None:
        fields["rope"] = None  # no field of the row: a model with rope is not written
    if "embed_norm_layer" in arguments:
        fields["patch_norm"] = arguments["embed_norm_layer"] is not None
    return fields


def _read_activation(content: Json) -> dict[str, Any]:
    word = content["act_layer"]
    is_gated = content.get("mlp_layer", "Mlp") != "Mlp"
    if is_gated and str(word).lower() == "silu":
        return {"numerics.gate": "silu", "numerics.gelu": "exact"}  # no part computes a GELU
    gelu = one_of(_GELUS).read(word)
    return {"numerics.gelu": gelu, **({"numerics.gate": "gelu"} if is_gated else {})}


def _activation(config: ViTConfig) -> dict[str, Any]:
    if config.mlp == "gated" and config.numerics.gate == "silu":
        return {"act_layer": "silu"}
    return {"act_layer": one_of(_GELUS).write(config.numerics.gelu)}


def _read_pooling(content: Json) -> dict[str, Any]:
    fields = rows.read_pooling(content, "fc_norm")
    if "final_norm" in content:
        fields["final_norm"] = content["final_norm"]
    include = content.get("pool_include_prefix", False)
    kind = fields.get("pooling")
    others = content.get("class_token") or content.get("reg_tokens")
    if kind == "gap":
        fields["class_token_in_mean"] = bool(include and others)
    if kind == "map":
        fields["prefix_in_map"] = bool(include or not others)
    return fields


def _pooling(config: ViTConfig) -> dict[str, Any]:
    words: dict[str, Any] = {
        "global_pool": rows.POOL_OF.get(config.pooling, ""),
        "class_token": config.has_class_token,
        "final_norm": config.final_norm,
    }
    if config.pooling == "gap":
        words["fc_norm"] = config.numerics.pool_before_norm
    is_map = config.pooling == "map" and bool(config.num_prefix_tokens)
    words["pool_include_prefix"] = config.class_token_in_mean or (is_map and config.prefix_in_map)
    return words


def _mlp_dim(content: Json) -> int:
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    return size // 2 if content.get("mlp_layer") == "GluMlp" else size


def shown_by_arrays(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns arguments that the arrays tell, see `rows.shown_by_arrays`."""
    words = rows.shown_by_arrays("reg_tokens", "fc_norm", arrays, content)
    words |= {key: arrays[key] for key in ("qkv_bias", "pre_norm") if key in arrays}
    if "pooling" in arrays:
        words["class_token"] = bool(arrays["class_token"])
        is_mean = not arrays["class_token"] or (words["fc_norm"] and "fc_norm" not in content)
        if arrays["pooling"] == "map" or (is_mean and content.get("global_pool") == "token"):
            words["global_pool"] = "map" if arrays["pooling"] == "map" else "avg"
    if "mlp_dim" not in arrays or "hidden_size" not in arrays:
        return words
    kind, size, width = (arrays[field] for field in ("mlp", "mlp_dim", "hidden_size"))
    layer = str(content.get("mlp_layer"))
    if _MLPS.get(layer) != kind:
        is_packed = int(width * number(content, "mlp_ratio", 4.0)) != size
        layer = "Mlp" if kind == "plain" else "GluMlp" if is_packed else "SwiGLU"
        words |= {"mlp_layer": layer, "act_layer": _ACTIVATIONS[kind]}
        if kind == "gated" and content.get("act_layer") != "silu":
            log.info(_SILU)
    words["mlp_ratio"] = compute_ratio(size * (1 + (layer == "GluMlp")), width)
    return words


def _ratio(config: ViTConfig) -> float:
    # Gate and value are one array, as in DINOv2-g, or two, as in AIMv2 with its RMSNorm.
    is_packed = config.mlp == "gated" and config.norm == "layer"
    return compute_ratio(config.mlp_dim * (1 + is_packed), config.hidden_size)


ARGUMENTS: tuple[Row, ...] = (
    *rows.SIZES,
    rows.dim_row(_mlp_dim, _ratio),
    JsonFields(
        ("global_pool", "class_token", "pool_include_prefix", "final_norm", "fc_norm"),
        ("pooling", "class_token", "class_token_in_mean", "prefix_in_map", "final_norm"),
        _read_pooling,
        _pooling,
    ),
    *rows.BLOCKS,
    rows.pre_norm_row("pre_norm"),
    JsonField("qkv_bias", "qkv_bias"),
    shared_key("proj_bias", "projection_bias", "mlp_bias"),
    rows.QK_NORM,
    JsonField("scale_attn_norm", "sub_norm_attention"),
    JsonField("scale_mlp_norm", "sub_norm_mlp"),
    JsonField("reg_tokens", "num_registers"),
    JsonField("pos_embed", "position", _POSITIONS),
    JsonFields(
        ("act_layer",),
        ("numerics.gelu", "numerics.gate"),
        _read_activation,
        _activation,
        is_optional=True,
    ),
)
"""Arguments of `VisionTransformer`."""

ONE_BIAS: Limits = {
    "a bias behind the attention without one in the MLP, or the other way round": (
        "projection_bias!=mlp_bias"
    )
}
"""A limit of `proj_bias`."""

vit = rows.family(
    "timm",
    "an architecture of VisionTransformer",
    words=TORCH.names(NAMES, _OF_STEM, _OWN),
    json=(
        JsonTable(  # an architecture's name stands for the kind of MLP that is written
            "config.json",
            (JsonField("mlp_layer", "mlp", one_of(_MLPS)),),
            ("model_args",),
            architectures.assumed_arguments,
            shown_by_arrays,
            is_written=False,
        ),
        *rows.tables(
            JsonFields(
                ("architecture",),
                ("norm", "numerics.layer_norm_epsilon", "patch_norm"),
                _architecture,
                lambda c: {"architecture": architectures.to_write(c)},
            ),
            (ARGUMENTS, ""),
            shown=shown_by_arrays,
        ),
    ),
    numerics=Numerics(
        gelu="exact",
        group_norm_epsilon=1e-5,
        std_conv="sqrt_var_plus_epsilon",
        std_conv_epsilon=1e-8,
        position_resize="bicubic_antialias",
    ),
    expresses=("gelu", "gate", "pool_before_norm", "position_resize"),
    varies={"layer_norm_epsilon": architectures.EPSILONS},
    fields={"position": "learned"},
    switches=("position",),
    impossible={
        **one_of_several("position", "learned", "none"),
        **POSITIONS_OF_ANOTHER_GRID,
        **rows.IMPOSSIBLE,
        "a stem of stages that no architecture of timm has": lambda c: (
            c.resnet is not None and architectures.to_write(c) is None
        ),
        "norms and an MLP that no architecture of timm has together": lambda c: (
            c.resnet is None and architectures.to_write(c) is None
        ),
        "a stem of another width than 64": "resnet resnet.width_factor!=1",
        **ONE_BIAS,
        "a distillation token beside registers, or tokens without a position": (
            "distillation_token num_registers or distillation_token position_before_class "
            "or distillation_token position=none"
        ),
        "attention pooling behind gated MLPs": "mlp=gated pooling=map",
    },
)
