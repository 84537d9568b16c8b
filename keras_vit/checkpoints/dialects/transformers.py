"""Checkpoints of Hugging Face transformers, ViTModel and ViTForImageClassification.

The names are those of the files, which are not those of the modules in memory
(transformers 5 renames on loading and back on saving, `conversion_mapping.py`).
A classifier's files put `vit.` in front of all but the head; a ViTModel's do not.
The pooler is our representation layer.
"""

from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints.dialects.base import Cannot, Dialect, Stated, Theirs, Words, not_ours
from keras_vit.checkpoints.dialects.torch_layout import (
    POSITIONS_OF_ANOTHER_GRID,
    listed,
    per_channel,
    stored_image_size,
    torch_modules,
)
from keras_vit.checkpoints.lexicon import LEXICON
from keras_vit.config import Numerics, ViTConfig
from keras_vit.preparation.protocols import ProtocolSpec, complete

_LAYER = "encoder.layer.{l}."
_GELUS = {"gelu": "exact", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh"}
_NO_STEM = Cannot("transformers' ViT has no ResNet stem, and its hybrids have other epsilons")
_NO_MAP = Cannot("transformers' ViT has no attention pooling")

_NO_POOLER = {"representation_size": None}
"""A classifier reads the class token itself, also where a pooler stands beside it."""


def _words() -> dict[str, Words]:
    words: dict[str, Words] = {
        "class_token/token": Theirs("embeddings.cls_token"),
        "position_embedding/embedding": Theirs("embeddings.position_embeddings"),
        **torch_modules(
            {
                "patch_embedding": "embeddings.patch_embeddings.projection",
                "block_{l}/attention_norm": _LAYER + "layernorm_before",
                "block_{l}/attention/{qkv}": _LAYER + "attention.attention.{qkv}",
                "block_{l}/attention/out": _LAYER + "attention.output.dense",
                "block_{l}/mlp_norm": _LAYER + "layernorm_after",
                "block_{l}/mlp/dense_0": _LAYER + "intermediate.dense",
                "block_{l}/mlp/dense_1": _LAYER + "output.dense",
                "encoder_norm": "layernorm",
                "pre_logits": "pooler.dense",
            }
        ),
        "head/kernel": Theirs("classifier.weight", "k e", implies=_NO_POOLER, outside=True),
        "head/bias": Theirs("classifier.bias", implies=_NO_POOLER, outside=True),
    }
    for word in LEXICON:
        if word.path not in words:
            words[word.path] = _NO_MAP if word.path.startswith("pool/") else _NO_STEM
    return words


_FIELDS = {
    "hidden_size": "hidden_size",
    "intermediate_size": "mlp_dim",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "num_channels": "channels",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "qkv_bias": "qkv_bias",
    "hidden_dropout_prob": "dropout_rate",
    "attention_probs_dropout_prob": "attention_dropout_rate",
}
"""Words of `config.json` and fields of ours."""


def _states(files: Mapping[str, Any]) -> Stated:
    config = files.get("config.json")
    if config is None:
        return Stated()
    if config.get("model_type", "vit") != "vit":
        raise ValueError(f"config.json has model_type={config['model_type']!r}, expected 'vit'")
    fields = {ours: config[theirs] for theirs, ours in _FIELDS.items() if theirs in config}
    activation = config.get("hidden_act", "gelu")
    if activation not in _GELUS:
        raise ValueError(
            f"config.json has hidden_act={activation!r}, expected one of {', '.join(_GELUS)}"
        )
    if config.get("pooler_act", "tanh") != "tanh":
        raise ValueError(f"config.json has pooler_act={config['pooler_act']!r}, expected 'tanh'")
    fields["numerics"] = {
        "gelu": _GELUS[activation],
        "layer_norm_epsilon": config.get("layer_norm_eps", 1e-12),
    }
    labels = listed("id2label", config.get("id2label") or {})
    are_names = any(label != f"LABEL_{k}" for k, label in enumerate(labels))
    protocol = _protocol(files.get("preprocessor_config.json"))
    return Stated(fields, labels if are_names else None, protocol)


_RESAMPLE = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Pillow's filters by their number, which `resample` is."""


def _protocol(processor: Mapping[str, Any] | None) -> ProtocolSpec | None:
    """Reads `preprocessor_config.json`, of feature extractors too."""
    if processor is None:
        return None
    size, crop = (_sides(processor.get(key)) for key in ("size", "crop_size"))
    if (processor.get("size") and size is None) or processor.get("do_pad"):
        not_ours(f"preprocessor_config.json with size={processor.get('size')!r} or do_pad")
        return None
    resample = processor.get("resample", 2)
    if resample not in range(len(_RESAMPLE)):
        raise ValueError(f"preprocessor_config.json has resample={resample!r}, expected 0 to 5")
    crop_pct = 1.0
    if processor.get("do_center_crop") and size and crop:
        crop_pct = min(crop[0] / size[0], crop[1] / size[1], 1.0)
    # (x * factor - mean) / std of pixels in [0, 255], in terms of x / 255
    factor = processor.get("rescale_factor", 1 / 255) if processor.get("do_rescale", True) else 1
    normalizes = processor.get("do_normalize", True)
    mean, std = (
        _scaled(processor.get(key, 0.5) if normalizes else no_change, 255 * factor)
        for key, no_change in (("image_mean", 0.0), ("image_std", 1.0))
    )
    return complete(
        {
            "name": "transformers",
            "interpolation": _RESAMPLE[resample],
            "crop_pct": crop_pct,
            "mean": mean,
            "std": std,
        }
    )


def _sides(size: Any) -> tuple[int, int] | None:
    """(height, width) of a size in the forms of today and of feature extractors."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping) and {"height", "width"} <= size.keys():
        return size["height"], size["width"]
    return None


def _scaled(value: Any, factor: float) -> Any:
    several = value if isinstance(value, list) else [value]
    # 255 * (1 / 255) is not always 1; nobody states more digits than these
    return [round(number / factor, 9) for number in several]


def _prepares(protocol: Mapping[str, Any]) -> bool:
    squash = protocol.get("crop_mode") == "squash" and protocol["crop_pct"] == 1
    return squash or protocol["name"] == "transformers"


def _writes(
    config: ViTConfig, labels: tuple[str, ...] | None = None, protocol: ProtocolSpec | None = None
) -> dict[str, Any]:
    """`config.json` and `preprocessor_config.json`, as `from_pretrained` reads them."""
    height, width = stored_image_size(config)
    rows, columns = config.patch_size
    names = labels or [f"LABEL_{k}" for k in range(config.num_classes)]
    written: dict[str, Any] = {
        "architectures": ["ViTForImageClassification" if config.num_classes else "ViTModel"],
        "model_type": "vit",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.mlp_dim,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "num_channels": config.channels,
        "image_size": height if height == width else [height, width],
        "patch_size": rows if rows == columns else [rows, columns],
        "qkv_bias": config.qkv_bias,
        "hidden_act": "gelu" if config.numerics.gelu == "exact" else "gelu_pytorch_tanh",
        "layer_norm_eps": config.numerics.layer_norm_epsilon,
        "hidden_dropout_prob": config.dropout_rate,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "pooler_output_size": config.representation_size or config.hidden_size,
        "pooler_act": "tanh",
    }
    if config.num_classes:
        written["id2label"] = {str(k): name for k, name in enumerate(names)}
        written["label2id"] = {name: k for k, name in enumerate(names)}
    images = complete(protocol or "transformers")
    preprocessor: dict[str, Any] = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": _RESAMPLE.index(images["interpolation"]),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": per_channel(images["mean"], config),
        "image_std": per_channel(images["std"], config),
    }
    if images["crop_pct"] < 1:
        scaled = {"height": height, "width": width}
        scaled = {side: round(pixels / images["crop_pct"]) for side, pixels in scaled.items()}
        preprocessor |= {"do_center_crop": True, "crop_size": preprocessor["size"], "size": scaled}
    return {"config.json": written, "preprocessor_config.json": preprocessor}


transformers = Dialect(
    name="transformers",
    library="transformers",
    container="safetensors",
    words=_words(),
    prefixes=("vit.", ""),
    prefix_for=lambda config: "vit." if config.num_classes else "",
    ignored={r"(vit\.)?embeddings\.mask_token": "mask of masked image modelling"},
    numerics=Numerics(gelu="exact", layer_norm_epsilon=1e-12, position_resize="bicubic"),
    expresses=("gelu", "layer_norm_epsilon", "position_resize"),
    fields={"position": "learned", "position_before_class": False, "classifier": "token"},
    impossible=(
        (lambda c: c.position != "learned", "position='sincos2d'"),
        POSITIONS_OF_ANOTHER_GRID,
        (lambda c: c.position_before_class, "position_before_class=True"),
        (lambda c: c.classifier != "token", "a classifier other than 'token'"),
        (
            lambda c: c.representation_size is not None and c.num_classes > 0,
            "a head behind a representation layer",
        ),
    ),
    crops=False,
    states=_states,
    writes=_writes,
    protocol=lambda config: "transformers",
    prepares=_prepares,
    metadata={"format": "pt"},
)
