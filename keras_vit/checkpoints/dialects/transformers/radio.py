"""transformers' `RadioModel` (AM-RADIO, arXiv 2312.06709), such as `nvidia/C-RADIOv4-H`.

The feature is the first class tokens side by side; the class tokens after them, which only take
part in the attention, are registers of keras_vit. Only patches have positions, in a table for
the largest image; for another image the library resizes it to the longer side and cuts the rest.
The library subtracts the mean and divides by the std itself, which config.json states. Class tokens
and registers are one array of the file.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import ComputedArray, Reader, computed
from keras_vit.checkpoints.dialects.base import Fold, per_channel
from keras_vit.checkpoints.dialects.json_fields import (
    Json,
    JsonFields,
    note,
    number,
)
from keras_vit.checkpoints.dialects.names import TORCH, Section
from keras_vit.checkpoints.dialects.torch_conventions import CLIP
from keras_vit.checkpoints.dialects.transformers import common, dinov2
from keras_vit.checkpoints.dialects.transformers.processor import FILE, processor_of_any_size
from keras_vit.config import ViTConfig
from keras_vit.images.protocols import ProtocolSpec, complete

_PATCHES = "radio_model.model.patch_generator."
_BLOCK = "radio_model.model.blocks.{l}."
_TOKENS, _REGISTERS = f"{_PATCHES}cls_token.token", f"{_PATCHES}cls_token.registers"
_NAMES: Section = {
    "patch_embedding/kernel": f"{_PATCHES}embedder.weight : m (c p q)",
    "class_tokens/tokens": f"{_TOKENS} : s m",
    "class_token/token": f"{_TOKENS} : 1 m",
    "register_tokens/tokens": f"{_REGISTERS} : g m",
    "position_embedding/embedding": f"{_PATCHES}pos_embed",
    "block_{l}/attention_norm": f"{_BLOCK}norm1",
    "block_{l}/attention/{qkv}/kernel": f"{_BLOCK}attn.qkv.weight : (qkv h d) m",
    "block_{l}/attention/{qkv}/bias": f"{_BLOCK}attn.qkv.bias : (qkv h d)",
    "block_{l}/attention/out": f"{_BLOCK}attn.proj",
    "block_{l}/attention_scale/gamma": f"{_BLOCK}layer_scale1.lambda1",
    "block_{l}/mlp_norm": f"{_BLOCK}norm2",
    "block_{l}/mlp/dense_0": f"{_BLOCK}mlp.fc1",
    "block_{l}/mlp/{gate}": _BLOCK + "mlp.{up}_proj",
    "block_{l}/mlp/dense_1": [
        {"name": f"{_BLOCK}mlp.fc2", "when": "block.gated!"},
        f"{_BLOCK}mlp.down_proj",
    ],
    "block_{l}/mlp_scale/gamma": f"{_BLOCK}layer_scale2.lambda1",
}
_FIRST = [0, 1]
"""The class tokens that a file without `summary_idxs` reads."""
_NORMS = {"norm_mean": CLIP["mean"], "norm_std": CLIP["std"]}
_SIZES = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "patch_size": 16,
    "max_img_size": 2048,
}


def _read(reader: Reader, files: Json) -> Reader:
    read = files.get("config.json", {}).get("summary_idxs") or _FIRST
    tokens, *width = reader.shapes.get(_TOKENS, (0,))
    count = len(read) if isinstance(read, list) else tokens
    if count >= tokens:
        return reader

    def part(start: int, end: int) -> ComputedArray:
        shape, dtype = (end - start, *width), reader.dtypes[_TOKENS]
        return ComputedArray(shape, dtype, lambda: reader.read(_TOKENS)[start:end])

    return computed(reader, {_TOKENS: part(0, count), _REGISTERS: part(count, tokens)})


def _write(reader: Reader, files: Json) -> Reader:
    config = files["config.json"]  # the class has its values as arrays too
    more = {key: np.asarray(config[key], "float32").reshape(-1, 1, 1) for key in _NORMS}
    more = {f"input_conditioner.{key}": norm for key, norm in more.items()}
    more["summary_idxs"] = np.asarray(config["summary_idxs"])
    reader = computed(reader, {f"radio_model.{key}": array for key, array in more.items()})
    if _REGISTERS not in reader.shapes:
        return reader
    parts = (_TOKENS, _REGISTERS)
    count = sum(reader.shapes[part][0] for part in parts)
    joined = ComputedArray(
        (count, *reader.shapes[_TOKENS][1:]),
        np.promote_types(*(reader.dtypes[part] for part in parts)),
        lambda: np.concatenate([reader.read(part) for part in parts]),
    )
    return computed(reader, {_TOKENS: joined}, without=parts)


def _read_tokens(content: Json) -> dict[str, Any]:
    count, read = number(content, "num_cls_tokens", 3), content.get("summary_idxs") or _FIRST
    if read != list(range(len(read))) or len(read) > count:
        raise ValueError(f"expected the first of {count} class tokens, in order from 0")
    return {
        "pool.kind": "tokens" if len(read) > 1 else "token",
        "tokens.class_tokens": len(read),
        "tokens.registers": number(content, "num_registers", 7) + count - len(read),
    }


def _write_tokens(config: ViTConfig) -> Mapping[str, Any]:
    count = config.tokens.class_tokens
    return {
        "summary_idxs": list(range(count)),
        "num_cls_tokens": count,
        "num_registers": config.tokens.registers,
    }


def _read_protocol(files: Json) -> ProtocolSpec | None:
    """Returns the protocol of the processor with the mean and std that the model has behind it."""
    protocol = processor_of_any_size.read(files)
    before = complete(protocol or {"name": "transformers", "mean": 0.0, "std": 1.0})
    own = {**_NORMS, **files.get("config.json", {})}
    shift, scale = (np.asarray(before[key], "float64") for key in ("mean", "std"))
    mean, std = (np.asarray(own[key], "float64") for key in _NORMS)
    after = {"mean": shift + scale * mean, "std": scale * std}
    return complete({**before, **{key: value.round(9).tolist() for key, value in after.items()}})


def _write_protocol(protocol: dict[str, Any], config: ViTConfig) -> dict[str, Any]:
    files = processor_of_any_size.write(protocol, config)
    written = {key: value for key, value in files[FILE].items() if not key.startswith("image_")}
    own = {f"norm_{key}": per_channel(protocol[key], config) for key in ("mean", "std")}
    size = {} if config.image_size is None else {"image_size": max(config.image_size)}
    return {FILE: {**written, "do_normalize": False}, "config.json": {**own, **size}}


def _image_size(files: Json) -> tuple[int, int] | None:
    """Returns the size of the processor, or `image_size` of config.json."""
    read = processor_of_any_size.image_size
    side = files.get("config.json", {}).get("image_size", 224)
    own = (side, side) if isinstance(side, int) else None
    return (read(files) if read else None) or own


FAMILIES = (
    common.dialect(
        "radio",
        TORCH.names(_NAMES),
        (
            common.architectures(None, "RadioModel"),
            *(row for row in common.size_rows(mlp_dim=False) if row is not common.IMAGE_SIZE),
            dataclasses.replace(common.IMAGE_SIZE, key="max_img_size"),
            JsonFields(
                ("summary_idxs", "num_cls_tokens", "num_registers"),
                ("pool.kind", "tokens.class_tokens", "tokens.registers"),
                _read_tokens,
                _write_tokens,
            ),
            *dinov2.BLOCK_ROWS,
            dinov2.MLP,
            # 1 makes an array that the file lacks one without an effect
            note("layerscale_value", lambda facts: facts.config.block.layer_scale or 1.0),
        ),
        sizes=_SIZES,
        resize="bilinear_longer_side",
        poolings=("token", "tokens"),
        positions=("learned_patches",),
        switches=("pool.kind=tokens",),
        expresses=("block.activation", "block.epsilon"),
        needs_json="the number of class tokens",
        ignored={
            r"radio_model\.(summary_idxs|input_conditioner\.norm_\w+)": "config.json states it",
            r".*\.patch_generator\.video_embedder\.weight": "the patches of videos",
        },
        images=dataclasses.replace(
            processor_of_any_size,
            read=_read_protocol,
            write=_write_protocol,
            image_size=_image_size,
        ),
        fields={"num_classes": 0, "patch_bias": False, "pool.norm": "none"},
        impossible={
            **dinov2.UNEVEN,
            **common.SQUARE_ALONE,
            "the mean of several class tokens": "pool.kind=token tokens.class_tokens!=1",
        },
        fold=Fold(_read, _write),
    ),
)
