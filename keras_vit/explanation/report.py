"""A web page that explains predictions: heatmaps, attention and curves, in one file."""

import base64
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_vit.config import ViTConfig
from keras_vit.errors import ConfigError, expect_model
from keras_vit.explanation.attention import attention_maps, probe_weights, read_tokens
from keras_vit.explanation.curves import BASELINES, areas_below, blur, grey, replace_pixels
from keras_vit.explanation.display import brightness
from keras_vit.explanation.maps import Explanation, explain
from keras_vit.explanation.methods import METHODS
from keras_vit.images.class_names import class_index, top_labels
from keras_vit.images.resampling import make_picture, resize_with_pillow
from keras_vit.models.inference import run
from keras_vit.models.tokens import compute_grid
from keras_vit.models.vision_transformer import VisionTransformer
from keras_vit.support.arguments import Method
from keras_vit.support.extras import import_extra
from keras_vit.support.files import replace_file
from keras_vit.support.progress import progress_bar
from keras_vit.support.text import visible

_SHOWN = ("relevance", "gradcam", "rollout")
"""The methods that the page shows after the chosen one; `curves` adds integrated gradients."""

_ROOM = 1_200_000
"""Most characters of the attention between patches in the whole page."""
_ROOM_OF_TOKENS = 600_000
"""Most characters of the tokens of patches in the whole page."""
_MOST_JPEG = 20_000
"""Most bytes of a picture: a report of ten images has ninety pictures, and stays below 5 MB."""


def write_report(
    model: VisionTransformer,
    folder: str | os.PathLike[str],
    images: Sequence[Any],
    *,
    method: Method = "relevance",
    targets: Sequence[int | str] = (),
    curves: bool = False,
    command: str = "",
    progress: bool = False,
) -> Path:
    """Writes a web page that explains predictions, and returns its path.

    The page, `index.html`, is one file that opens without a network. An image costs about as much
    as 20 predictions, and with `curves` as 250.

    Args:
        model: a `VisionTransformer` of a fixed size with one prediction per image.
        folder: output folder, which is created if it does not exist. Other files in it stay.
        images: paths, PIL images or arrays, as for `model.preprocessor`.
        method: the method of `keras_vit.explain` that comes first.
        targets: classes to explain, by index or label; without any, the two most probable classes
            of each image.
        curves: whether integrated gradients, and the deletion and insertion curves of every
            method, are computed.
        command: the command line that the report quotes.
        progress: whether a bar is shown on stderr, if it is a terminal.

    Raises:
        ConfigError: matplotlib is not installed, the model takes images of any size, the method
            or class is unknown, or an image cannot be read.
    """
    to_hex = import_extra("matplotlib.colors", "figures", "A report").to_hex
    if expect_model(model).config.image_size is None:
        raise ConfigError("A report needs a model of a fixed size: load it with image_size=.")
    from keras_vit.support import __version__

    batch = model.preprocessor(list(images))
    classes = [
        class_index(target, model.class_names, model.prediction.num_answers) for target in targets
    ]
    methods = list(dict.fromkeys((method, *_SHOWN, *(["integrated_gradients"] if curves else []))))
    facts = _explain_all(model, batch, methods, classes, curves, progress)
    for k, (image, fact) in enumerate(zip(images, facts, strict=True)):
        is_path = isinstance(image, (str, os.PathLike))
        fact["name"] = Path(image).name if is_path else f"image {k + 1}"
    names = ", ".join([fact["name"] for fact in facts[:3]] + ["..."] * (len(facts) > 3))
    page = _page(
        {
            "title": f"What {model.title} sees in {names}",
            "images": facts,
            "command": command,
            "provenance": json.dumps(
                dict(model.provenance), indent=2, ensure_ascii=False, default=str
            ),
            "version": f"{__version__} on {keras.backend.backend()}, {date.today()}",
            "colours": [to_hex(colour) for colour in _colours(np.linspace(0, 1, 256))],
        }
    )
    path = Path(folder, "index.html")
    with replace_file(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def overlay(picture: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Returns a picture with a heatmap on it, float32 `(height, width, 3)` in [0, 1].

    High values are opaque and bright; the picture is unchanged where the map is 0.

    Args:
        picture: the picture, `(height, width, 1 or 3)` in [0, 1].
        share: the map, `(height, width)` in [0, 1], such as the result of `brightness`.
    """
    alpha = (0.65 * share)[..., None]
    shown = picture if picture.shape[-1] == 3 else picture[..., :1].repeat(3, axis=-1)
    return (shown * (1 - alpha) + _colours(share) * alpha).astype("float32")


def _overlay_patches(
    picture: np.ndarray, patches: np.ndarray, config: ViTConfig, times: int
) -> np.ndarray:
    """Returns an enlarged picture with a smooth heatmap: bicubic between the centres of patches."""
    picture = picture.repeat(times, axis=0).repeat(times, axis=1)
    size = [times * side * count for side, count in zip(config.stride, patches.shape, strict=True)]
    share = resize_with_pillow(brightness(patches)[..., None], tuple(size), "bicubic")[..., 0]
    share = np.minimum(share[: picture.shape[0], : picture.shape[1]], 1)  # bicubic overshoots
    unread = [(0, side - seen) for side, seen in zip(picture.shape, share.shape, strict=False)]
    return overlay(picture, np.pad(share, unread))


def _colours(shares: np.ndarray) -> np.ndarray:
    """Returns a colour for each value in [0, 1], `(..., 3)`."""
    colours = import_extra("matplotlib", "figures", "A report").colormaps["inferno"]
    return colours(0.25 + 0.75 * shares)[..., :3]


def _page(facts: Mapping[str, Any]) -> str:
    """Returns the page with its facts; its policy allows its own script and style alone."""
    page = resources.files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    for tag, digest in hash_elements(page).items():
        page = page.replace(f"{tag}-hash", digest)
    # No script element ends in the JSON; the script makes text of its strings, never markup.
    text = json.dumps(_make_visible(facts), separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return page.replace("{{facts}}", text)


def hash_elements(page: str) -> dict[str, str]:
    """Returns the hash of a page's own script and style, as a Content-Security-Policy names it."""
    hashes = {}
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[tag] = f"sha256-{digest}"
    return hashes


def _make_visible(value: Any) -> Any:
    if isinstance(value, str):
        return "\n".join(map(visible, value.split("\n")))
    if isinstance(value, Mapping):
        return {key: _make_visible(each) for key, each in value.items()}
    return [_make_visible(each) for each in value] if isinstance(value, (list, tuple)) else value


def _explain_all(
    model: VisionTransformer,
    batch: np.ndarray,
    methods: Sequence[Any],
    targets: Sequence[int],
    with_curves: bool,
    progress: bool,
) -> list[dict[str, Any]]:
    """Returns predictions, maps, curves and attention of each image, as the page shows them."""
    outputs = model.probabilities(batch, prepared=True)
    class_names = model.class_names or tuple(map(str, range(model.prediction.num_answers)))
    ranked = np.argsort(-outputs, axis=1, kind="stable")[:, :2].astype("int32")
    classes = np.tile(np.asarray(targets, "int32"), (len(batch), 1)) if targets else ranked
    jobs = [(name, k) for k in range(classes.shape[1]) for name in methods]
    maps: list[dict[Any, Explanation]] = [{} for _ in classes.T]
    curves: dict[str, Any] = {}
    judged: list[Any] = [*methods, *BASELINES] if with_curves else []
    with progress_bar(progress, "Explaining", len(jobs) + len(judged), "steps") as advance:
        for name, k in jobs:
            if k and not METHODS[name].asks_class:
                maps[k][name] = maps[0][name]
            else:
                maps[k][name] = explain(model, batch, classes[:, k], name, prepared=True)
            advance(1)
        for name in judged:
            one = maps[0].get(name) or explain(model, batch, None, name, prepared=True)
            deletion = batch, np.full_like(batch, grey(model))
            insertion = blur(model, batch), batch
            curves[name] = [
                replace_pixels(model, *pair, one.maps, classes[:, 0], steps=8)
                for pair in (deletion, insertion)
            ]
            advance(1)
    pictures = model.preprocessor.pixels(batch)
    times = max(1, -(-384 // max(pictures.shape[1:3])))  # a canvas has 384 pixels on a side
    return [
        {
            "picture": _encode(picture),
            "size": [times * side for side in picture.shape[:2]],
            "top": [(label, float(share)) for label, share in top],
            "classes": [
                {
                    "label": class_names[k],
                    "probability": float(outputs[i, k]),
                    "maps": [
                        {
                            "method": name,
                            "of_class": METHODS[name].asks_class,
                            "picture": _encode(
                                _overlay_patches(picture, one.patches[i], model.config, times)
                            ),
                        }
                        for name, one in of_class.items()
                    ],
                }
                for k, of_class in zip(classes[i], maps, strict=True)
            ],
            "curves": [
                {
                    "method": name,
                    "baseline": name in BASELINES,
                    "probabilities": [curve[i].tolist() for curve in pair],
                    "areas": [float(areas_below(curve)[i]) for curve in pair],
                }
                for name, pair in curves.items()
            ],
            "attention": _attention(
                model, batch[i : i + 1], _ROOM // len(batch), _ROOM_OF_TOKENS // len(batch)
            ),
        }
        for i, (picture, top) in enumerate(
            zip(pictures, top_labels(outputs, model.class_names, 5), strict=True)
        )
    ]


def _attention(
    model: VisionTransformer, image: np.ndarray, room: int, room_of_tokens: int
) -> dict[str, Any]:
    """Returns the attention of the head's input, in every block and head, and of each patch.

    The last stage of the viewer, which has no heads, is the similarity of the patches.
    """
    prefix = model.config.num_prefix_tokens
    maps = list(attention_maps(model, image, prepared=True).values())
    shares = read_tokens(model, image, prepared=True)
    read = {
        f"block {block}": np.einsum("bt,bhtk->bhk", shares, weights)[0]
        for block, weights in enumerate(maps)
    }
    if model.config.pool.is_map:
        read["pooling"] = probe_weights(model, image)[0]
    rows, largest = _eight_bits(np.concatenate([_with_mean(w[:, prefix:]) for w in read.values()]))
    sides = zip(model.config.stride, model.config.image_size or (), strict=True)
    stages = [{"name": name, "heads": len(weights)} for name, weights in read.items()]
    last = f"block_{model.config.num_layers - 1}/norm"
    return {
        "grid": compute_grid(model, image),
        "patch": [pixels / side for pixels, side in sides],
        "stages": [*stages, {"name": "similarity", "heads": 0}],
        "read": _pack(rows),
        "largest": largest,
        "patches": _between_patches(maps, prefix, room),
        "tokens": _tokens(run(model, image, [last])[last][0, prefix:], room_of_tokens),
    }


def _tokens(patches: np.ndarray, room: int) -> dict[str, Any]:
    """Returns vectors of 8 bits whose products are the cosines of patches, in `room` characters.

    They are the first principal components of the tokens of length 1, as many as fit.

    Args:
        patches: tokens of the patches, `(patches, hidden_size)`.
        room: number of characters.
    """
    unit = patches / np.maximum(np.linalg.norm(patches, axis=-1, keepdims=True), 1e-30)
    left, sizes, _ = np.linalg.svd(unit, full_matrices=False)
    width = max(1, min(3 * room // (4 * len(unit)), len(sizes)))
    vectors = left[:, :width] * sizes[:width]
    step = max(float(np.abs(vectors).max()) / 127, 1e-30)
    values = (128 + np.round(vectors / step)).astype("uint8")
    return {"width": width, "step": step, "data": _pack(values)}


def _between_patches(maps: Sequence[np.ndarray], prefix: int, room: int) -> dict[str, Any] | None:
    """Returns the attention of patches to patches, in at most `room` characters.

    Each head of each block is kept if it fits; else the means over the heads, of as many blocks as
    fit. None if not even the last block fits.
    """
    count = maps[0].shape[-1] - prefix
    for has_heads, step in ((True, 1), *((False, step) for step in (1, 2, 3, 4, 6, 12, 24))):
        blocks = list(range(len(maps)))[::-1][::step][::-1]
        each = len(maps[0][0]) + 1 if has_heads else 1
        if len(blocks) * each * count**2 > 4 * room:
            continue  # zlib halves it, hardly more
        weights = (_with_mean(maps[block][0, :, prefix:, prefix:]) for block in blocks)
        rows = np.concatenate([w if has_heads else w[:1] for w in weights])
        values, largest = _eight_bits(rows.reshape(-1, count), levels=32)
        data = _pack(values)
        if len(data) + 8 * len(largest) <= room:
            return {"blocks": blocks, "heads": has_heads, "data": data, "largest": largest}
    return None


def _with_mean(weights: np.ndarray) -> np.ndarray:
    """Returns the mean of the heads' weights, followed by the weights of each head."""
    return np.concatenate([weights.mean(axis=0, keepdims=True), weights])


def _eight_bits(rows: np.ndarray, levels: int = 256) -> tuple[np.ndarray, list[float]]:
    """Returns square roots of rows in 8 bits, relative to their largest values, and these."""
    largest = rows.max(axis=1, keepdims=True)
    shares = np.sqrt(np.clip(rows / np.maximum(largest, 1e-30), 0, 1))
    values = np.round(np.round(shares * (levels - 1)) * (255 / (levels - 1)))
    return values.astype("uint8"), [float(f"{value:.3g}") for value in largest[:, 0]]


def _pack(values: np.ndarray) -> str:
    """Returns uint8 values, compressed by zlib and written in base64."""
    return base64.b64encode(zlib.compress(values.tobytes(), 9)).decode()


def _encode(pixels: np.ndarray) -> str:
    """Returns a picture `(height, width, 1 or 3)` in [0, 1] as a `data:` address.

    A small picture becomes a PNG without loss. A larger one becomes a JPEG of at most 336 pixels
    on a side, in the best of four qualities that takes at most 20 KB.
    """
    image = make_picture(np.round(np.clip(pixels, 0, 1) * 255).astype("uint8")[..., :3])
    kind, qualities = ("png", (0,)) if max(image.size) <= 96 else ("jpeg", (82, 70, 55, 40))
    image.thumbnail((336, 336))
    for quality in qualities:
        file = io.BytesIO()
        image.save(file, kind, quality=quality, optimize=True)
        if file.tell() <= _MOST_JPEG:
            break
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
