"""transformers' `RadioModel` (AM-RADIO, arXiv 2312.06709), such as `nvidia/C-RADIOv4-H`.

The feature is the concatenation of the first class tokens; further class tokens, which are used
only in attention, are registers in keras_vit. Only patches have positions, in a table for
the largest image; for another image the library resizes it to the longer side and crops it.
The library applies mean and std itself, which config.json states. Class tokens
and registers are one array in the file.
"""

import dataclasses
from typing import Any

import numpy as np

from keras_vit.checkpoints.containers import ComputedArray, Reader, computed
from keras_vit.checkpoints.families.codecs import mlp_by_ratio
from keras_vit.checkpoints.families.family import Class, Family, Fold, per_channel
from keras_vit.checkpoints.families.keys import Codec, Facts, Json, image_size, note, number
from keras_vit.checkpoints.families.names import Section
from keras_vit.checkpoints.families.protocols import CLIP
from keras_vit.checkpoints.families.transformers import library
from keras_vit.checkpoints.families.transformers.dinov2 import BLOCK_KEYS, BLOCK_SHAPES
from keras_vit.checkpoints.families.transformers.processor import FILE, processor_of_any_size
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
    "block_{l}/attention/{qkv}": f"{_BLOCK}attn.qkv : (qkv h d)",
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
_NORMS = {"norm_mean": CLIP["mean"], "norm_std": CLIP["std"]}


def _split(reader: Reader, keys: Json) -> Reader:
    """Splits class tokens and registers into two arrays."""
    read, (tokens, *width) = keys.get("summary_idxs"), reader.shapes.get(_TOKENS, (0,))
    count = len(read) if isinstance(read, list) else tokens
    if count >= tokens:
        return reader

    def part(start: int, end: int) -> ComputedArray:
        shape, dtype = (end - start, *width), reader.dtypes[_TOKENS]
        return ComputedArray(shape, dtype, lambda: reader.read(_TOKENS)[start:end])

    return computed(reader, {_TOKENS: part(0, count), _REGISTERS: part(count, tokens)})


def _join(reader: Reader, files: Json) -> Reader:
    """Joins class tokens and registers, and adds the arrays that config.json states."""
    config = files["config.json"]
    more: dict[str, Any] = {"radio_model.summary_idxs": np.asarray(config["summary_idxs"])}
    for key in _NORMS:
        more[f"radio_model.input_conditioner.{key}"] = np.float32(config[key]).reshape(-1, 1, 1)
    parts = [part for part in (_TOKENS, _REGISTERS) if part in reader.shapes]
    more[_TOKENS] = ComputedArray(
        (sum(reader.shapes[part][0] for part in parts), *reader.shapes[_TOKENS][1:]),
        np.result_type(*(reader.dtypes[part] for part in parts)),
        lambda: np.concatenate([reader.read(part) for part in parts]),
    )
    return computed(reader, more, without=parts)


def _read_tokens(content: Json) -> Facts:
    count, read = number(content, "num_cls_tokens"), content["summary_idxs"]
    if read != list(range(len(read))) or len(read) > count:
        raise ValueError(f"expected the first of {count} class tokens, in order from 0")
    return {
        "pool.kind": "tokens" if len(read) > 1 else "token",
        "tokens.class_tokens": len(read),
        "tokens.registers": number(content, "num_registers") + count - len(read),
    }


def _write_tokens(config: ViTConfig) -> dict[str, Any]:
    count, registers = config.tokens.class_tokens, config.tokens.registers
    return {"summary_idxs": [*range(count)], "num_cls_tokens": count, "num_registers": registers}


# With 1, a layer scale that the file lacks has no effect.
_SCALE = note(lambda config: config.block.layer_scale or 1.0)
_OF_TOKENS = Codec("pool.kind tokens.class_tokens tokens.registers", _read_tokens, _write_tokens)


def _read_protocol(files: Json) -> ProtocolSpec | None:
    """Returns the protocol of the processor, with the mean and std that the model applies."""
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
    """Returns the image size of the processor, or else `image_size` in config.json."""
    read = processor_of_any_size.image_size
    side = files.get("config.json", {}).get("image_size", 224)
    own = (side, side) if isinstance(side, int) else None
    return (read(files) if read else None) or own


_IMAGES = dataclasses.replace(
    processor_of_any_size, read=_read_protocol, write=_write_protocol, image_size=_image_size
)

RADIO = Family(
    "transformers/radio",
    library.make_library(_IMAGES),
    names=_NAMES,
    keys={
        **BLOCK_KEYS,
        "image_size": None,
        "max_img_size": image_size,
        "mlp_ratio use_swiglu_ffn": mlp_by_ratio(whole=False),
        "summary_idxs num_cls_tokens num_registers": _OF_TOKENS,
        "layerscale_value": _SCALE,
    },
    shapes=BLOCK_SHAPES,
    classes={"RadioModel": Class("radio", head=False)},
    fixed={
        "position": "learned_patches",
        "position_resize": "bilinear_longer_side",
        "patch_bias": False,
        "pool.norm": "none",
    },
    limits=library.SQUARE_ALONE,
    ignored={
        r"radio_model\.(summary_idxs|input_conditioner\.norm_\w+)": "config.json states it",
        r".*\.patch_generator\.video_embedder\.weight": "the patch embedding for videos",
    },
    fold=Fold(_split, _join),
)
