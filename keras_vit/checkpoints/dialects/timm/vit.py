"""timm's `VisionTransformer`, its distilled form (DeiT) and its hybrids.

Examples are `vit_base_patch16_224` and the architectures of CLIP, DINOv2, SigLIP, DeiT, MAE, BEiT-3
and AIMv2. Query, key and value are one array. Hybrids have the layout of timm's ResNetV2, and other
epsilons than the official code (`vision_transformer_hybrid.py`, `layers/std_conv.py`).
"""

from typing import Any

from keras_vit.checkpoints.dialects.base import Limits
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
from keras_vit.config import ViTConfig
from keras_vit.config.block import ACTIVATIONS
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
        {"name": "fc_norm", "when": "pool.kind=token|unpooled"},  # the same there
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
        {"name": "patch_embed.backbone.conv", "when": "stem.units!"},
        {"name": "patch_embed.backbone.stem.conv", "when": "stem.units"},
    ],
    "root/norm": [
        {"name": "patch_embed.backbone.norm", "when": "stem.units!"},
        {"name": "patch_embed.backbone.stem.norm", "when": "stem.units"},
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
        "implies": {"pool.kind": "token_and_distillation"},
    },
    **gated_names("block.norm=layer"),
    "head/{head}": "head{_dist}",
}

_IS_GATED = {"Mlp": False, "GluMlp": True, "SwiGLU": True}
_SILU = (
    "The arrays have a gated MLP, which model_args do not state: its activation is taken to be "
    "SiLU, unless they state act_layer. block={'activation': 'gelu'} computes with GELU."
)
"""Message about models whose class of MLP, and of its activation, JSON cannot state."""
_ACTIVATIONS: dict[str | None, str] = {
    **{word: word for word in ACTIVATIONS},
    **{"SiLU": "silu", None: "gelu", "": "gelu"},
}
_POSITIONS = Codec(
    {"none": "none", "learned": "learn"}.__getitem__,
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
    return fields


def _read_pooling(content: Json) -> dict[str, Any]:
    fields = rows.read_pooling(content, "fc_norm", bool(content.get("final_norm", True)))
    # Whether the pooling reads the tokens before the patches too.
    words = {"gap": "mean"} if content.get("pool_include_prefix") else {"map": "map_of_patches"}
    kind = fields.get("pool.kind")
    return {**fields, "pool.kind": words[kind]} if kind in words else fields


def _pooling(config: ViTConfig) -> dict[str, Any]:
    pool = config.pool
    words: dict[str, Any] = {
        "global_pool": rows.POOL_OF.get(pool.kind, ""),
        "class_token": bool(config.tokens.class_tokens),
        "final_norm": pool.norm != "none",
    }
    if pool.is_mean:
        words["fc_norm"] = pool.norm == "after"
    is_of_all = pool.kind == "map" and config.num_prefix_tokens > 0
    words["pool_include_prefix"] = pool.kind == "mean" or is_of_all
    return words


def _mlp_dim(content: Json) -> int:
    size = int(number(content, "embed_dim") * number(content, "mlp_ratio"))
    return size // 2 if content.get("mlp_layer") == "GluMlp" else size


def shown_by_arrays(arrays: Json, content: Json) -> dict[str, Any]:
    """Returns arguments that the arrays tell, see `rows.shown_by_arrays`."""
    words = rows.shown_by_arrays("reg_tokens", "fc_norm", arrays, content)
    if "block.input_norm" in arrays:
        words["pre_norm"] = arrays["block.input_norm"] == "tokens"
    if "block.qkv_bias" in arrays:
        words["qkv_bias"] = arrays["block.qkv_bias"]
    if "pool.kind" in arrays:
        words["class_token"] = has_token = bool(arrays["tokens.class_tokens"])
        is_map = arrays["pool.kind"] == "map"
        is_mean = not has_token or (words["fc_norm"] and "fc_norm" not in content)
        if is_map or (is_mean and content.get("global_pool") == "token"):
            words["global_pool"] = "map" if is_map else "avg"
    if "mlp_dim" not in arrays or "hidden_size" not in arrays:
        return words
    is_gated, size, width = (arrays[path] for path in ("block.gated", "mlp_dim", "hidden_size"))
    layer = str(content.get("mlp_layer"))
    if _IS_GATED.get(layer) != is_gated:
        is_packed = int(width * number(content, "mlp_ratio", 4.0)) != size
        layer = "Mlp" if not is_gated else "GluMlp" if is_packed else "SwiGLU"
        words |= {"mlp_layer": layer, "act_layer": "silu" if is_gated else "gelu"}
        if is_gated and content.get("act_layer") != "silu":
            log.info(_SILU)
    words["mlp_ratio"] = compute_ratio(size * (1 + (layer == "GluMlp")), width)
    return words


def _ratio(config: ViTConfig) -> float:
    # Gate and value are one array, as in DINOv2-g, or two, as in AIMv2 with its RMSNorm.
    is_packed = config.block.gated and config.block.norm == "layer"
    return compute_ratio(config.mlp_dim * (1 + is_packed), config.hidden_size)


ARGUMENTS: tuple[Row, ...] = (
    *rows.SIZES,
    rows.dim_row(_mlp_dim, _ratio),
    JsonFields(
        ("global_pool", "class_token", "pool_include_prefix", "final_norm", "fc_norm"),
        ("pool.kind", "pool.norm", "tokens.class_tokens"),
        _read_pooling,
        _pooling,
    ),
    rows.scale_row(0.0),
    rows.position_row("pos_embed", _POSITIONS),
    rows.input_norm_row("pre_norm"),
    JsonField("qkv_bias", "block.qkv_bias"),
    shared_key("proj_bias", "block.projection_bias", "block.mlp_bias"),
    rows.QK_NORM,
    rows.sub_norm_row("scale_attn_norm", "scale_mlp_norm"),
    JsonField("reg_tokens", "tokens.registers"),
    JsonField("act_layer", "block.activation", one_of(_ACTIVATIONS)),
)
"""Arguments of `VisionTransformer`."""

ONE_BIAS: Limits = {
    "a bias behind the attention without one in the MLP, or the other way round": (
        "block.projection_bias!=block.mlp_bias"
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
            (JsonField("mlp_layer", "block.gated", one_of(_IS_GATED)),),
            ("model_args",),
            architectures.assumed_arguments,
            shown_by_arrays,
            is_written=False,
        ),
        *rows.tables(
            JsonFields(
                ("architecture",),
                ("block.norm", "block.epsilon"),
                _architecture,
                lambda c: {"architecture": architectures.to_write(c)},
            ),
            (ARGUMENTS, ""),
            shown=shown_by_arrays,
        ),
    ),
    arithmetic={**rows.ARITHMETIC, "stem.kind": "resnet_timm"},
    expresses=("block.activation", "pool.norm", "position_resize"),
    varies={"block.epsilon": architectures.EPSILONS},
    fields={"position": "learned"},
    switches=("position", "pool.kind=mean", "pool.kind=map_of_patches", "pool.norm=none"),
    impossible={
        **rows.POSITIONS,
        **POSITIONS_OF_ANOTHER_GRID,
        **rows.IMPOSSIBLE,
        "a stem of stages that no architecture of timm has": lambda c: (
            c.stem.is_resnet and architectures.to_write(c) is None
        ),
        "norms and an MLP that no architecture of timm has together": lambda c: (
            not c.stem.is_resnet and architectures.to_write(c) is None
        ),
        "a stem of another width than 64": "stem.width_factor!=1",
        **ONE_BIAS,
        "a distillation token beside registers, or tokens without a position": (
            "tokens.distillation tokens.registers "
            "or tokens.distillation position=learned_patches|none"
        ),
        "attention pooling after gated MLPs": "block.gated pool.is_map",
    },
)
