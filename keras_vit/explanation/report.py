"""A report that opens from disk: what speaks for the classes of images, and the model's figures."""

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.explanation import drawing
from keras_vit.explanation.attention import attention_maps, grid_of, probe_weights, read_tokens
from keras_vit.explanation.classes import class_index
from keras_vit.explanation.faithfulness import BASELINES, deletion, insertion
from keras_vit.explanation.maps import explain
from keras_vit.explanation.model_figures import (
    attention_distance,
    patch_filters,
    position_similarity,
    token_norms,
)
from keras_vit.explanation.page import markup
from keras_vit.explanation.pixels import pixels_per_patch
from keras_vit.files import written_beside
from keras_vit.labels import top_labels
from keras_vit.model import VisionTransformer

METHODS = ("relevance", "integrated_gradients", "gradcam", "rollout")
"""What stands side by side, behind the first method."""

_ROOM = 1_200_000
"""Characters that the attention between patches may take in the whole page."""


def write_report(
    model: VisionTransformer,
    folder: str | os.PathLike[str],
    images: Sequence[Any] = (),
    *,
    method: str = "relevance",
    targets: Sequence[int | str] = (),
    command: str = "",
    png: bool = False,
) -> list[Path]:
    """Writes `index.html`, one file that asks nothing of a network, and returns what was written.

    Args:
        model: a `VisionTransformer` of a fixed size with one prediction per image.
        folder: where to write; it is made if it is not there. Other files in it stay.
        images: paths, PIL images or arrays, as of `model.preprocessor`; none for the model's own
            figures alone.
        method: which explanation comes first.
        targets: classes to explain, by index or label; the two most probable ones of each image
            without any.
        command: the command that the report quotes.
        png: whether PNG files of the same pictures are written beside it.

    Raises:
        ConfigError: matplotlib is not installed, the model takes any size, no such method or
            class, or an image that cannot be read.
    """
    drawing.figure_class()
    if model.config.image_size is None:
        raise ConfigError(
            "A report needs a model of a fixed size: load it with image_size= (--image-size)."
        )
    folder = Path(folder)
    sections: list[str] = []
    pictures: dict[str, Any] = {}
    batch = model.preprocessor(list(images)) if len(images) else None
    if batch is not None:
        names = [_name(image, k) for k, image in enumerate(images)]
        classes = [class_index(model, target) for target in targets]
        for section, picture in _sections(model, batch, names, method, classes):
            sections.append(section)
            pictures[f"image_{len(pictures)}"] = picture
    figures, notes = _figures(model, batch)
    pictures |= {name: draw for name, (_, draw) in figures.items()}
    shown = [_both(text, draw) for text, draw in figures.values()]
    sections.append(
        markup.section("The model", markup.grid("figures", shown), *map(markup.paragraph, notes))
    )
    sections.append(_origin(model, command))
    summary = (
        f"{model.name}: {len(images)} images" if len(images) else f"{model.name}: its own figures"
    )
    page = markup.page("What the model sees", summary + ".", sections, _colours())
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "index.html"]
    with written_beside(written[0]) as temporary:
        temporary.write_text(page, encoding="utf-8")
    for name, draw in pictures.items() if png else ():
        written.append(folder / f"{name}.png")
        with written_beside(written[-1]) as temporary:
            draw().savefig(temporary, format="png", dpi=120, facecolor="white")
    return written


def _sections(
    model: VisionTransformer,
    batch: np.ndarray,
    names: Sequence[str],
    method: str,
    targets: Sequence[int],
) -> Iterator[tuple[str, Any]]:
    """Yields the section of each image, and how to draw its picture."""
    outputs = model.probabilities(batch)
    labels = model.labels or tuple(map(str, range(model.config.num_classes)))
    tops = top_labels(outputs, model.labels, 5)
    ranked = np.argsort(-outputs, axis=1, kind="stable")
    methods = list(dict.fromkeys((method, *METHODS)))
    columns = len(targets) or min(2, model.config.num_classes)
    classes = np.tile(targets, (len(batch), 1)) if targets else ranked[:, :columns]
    maps = {
        (name, k): explain(model, batch, classes[:, k].astype("int32"), name)
        for name in methods
        for k in range(columns)
    }
    curves = _curves(model, batch, classes[:, 0].astype("int32"), maps, methods)
    pixels = model.preprocessor.pixels(batch)
    coarse = max(pixels.shape[1:3]) <= 96
    viewers = _attention(model, batch)
    for i, (name, picture, top) in enumerate(zip(names, pixels, tops, strict=True)):
        source = markup.data_of_pixels(picture)
        viewer = markup.viewer(source, viewers[i], _canvas(picture.shape[:2]), name)
        parts = []
        for k in range(columns):
            label = labels[classes[i, k]]
            parts.append(
                markup.heading(f"What speaks for {label} ({outputs[i, classes[i, k]]:.1%})")
            )
            shown = []
            for one in methods:
                map_ = maps[one, k].maps[i]
                laid = drawing.overlay(picture, map_)
                caption = one.replace("_", " ")
                if maps[one, k].classes is None:
                    caption += " (the same for every class)"
                description = f"{caption}: where in {name} the model finds what speaks for {label}"
                shown.append(
                    markup.picture(
                        markup.data_of_pixels(laid, 224), caption, description, coarse=coarse
                    )
                )
            parts.append(markup.grid("methods", shown))
        own = {m: tuple(_curve_of_one(curve, i) for curve in pair) for m, pair in curves.items()}
        draw = functools.partial(drawing.draw_faithfulness, own)
        rows = [(label, float(share)) for label, share in top]
        areas = [
            (m.replace("_", " "), *(float(c.areas[0]) for c in pair)) for m, pair in own.items()
        ]
        right = markup.table(("label", "probability"), rows)
        text = f"Which map to believe for {labels[classes[i, 0]]}"
        section = markup.section(
            name,
            markup.grid("two", [viewer, f"<div>{right}</div>"]),
            *parts,
            markup.heading(text),
            markup.grid(
                "figures",
                [
                    _both("Pixels go, or come, in the order of each map.", draw, colours=256),
                    f"<div>{markup.table(('method', 'deletion', 'insertion'), areas)}</div>",
                ],
            ),
        )
        rows_of_maps = {
            labels[classes[i, k]]: {name: maps[name, k].maps[i] for name in methods}
            for k in range(columns)
        }
        yield section, functools.partial(drawing.draw_methods, picture, rows_of_maps)


def _curves(
    model: VisionTransformer,
    batch: np.ndarray,
    classes: np.ndarray,
    maps: Mapping[tuple[str, int], Any],
    methods: Sequence[str],
) -> dict[str, Any]:
    every = {name: maps[name, 0].maps for name in methods}
    every |= {name: explain(model, batch, None, name).maps for name in BASELINES}
    return {
        name: tuple(curve(model, batch, map_, classes, steps=8) for curve in (deletion, insertion))
        for name, map_ in every.items()
    }


def _curve_of_one(curve: Any, i: int) -> Any:
    return curve._replace(
        probabilities=curve.probabilities[i : i + 1], areas=curve.areas[i : i + 1]
    )


def _attention(model: VisionTransformer, batch: np.ndarray) -> list[dict[str, Any]]:
    """What the viewer of each image shows: 8 bits of the square roots of attention weights."""
    grid = grid_of(model, batch)
    prefix, config = model.config.num_prefix_tokens, model.config
    high, wide = pixels_per_patch(config)
    height, width = model.config.image_size or (0, 0)
    stored = []
    for k in range(len(batch)):
        image = batch[k : k + 1]
        maps, reads = attention_maps(model, image), read_tokens(model, image)
        read: list[np.ndarray] = []
        stages: list[dict[str, Any]] = []
        for block, weights in maps.items():
            rows = np.einsum("bt,bhtk->bhk", reads, weights)[0, :, prefix:]
            stages.append({"name": f"block {block}", "heads": len(rows), "first": len(read)})
            read += [rows.mean(axis=0), *rows]
        if config.classifier == "map":
            rows = probe_weights(model, image)[0, :, prefix:]
            stages.append({"name": "pooling", "heads": len(rows), "first": len(read)})
            read += [rows.mean(axis=0), *rows]
        shown, most = _eight_bits(np.array(read))
        stored.append(
            {
                "grid": grid,
                "patch": (high / height, wide / width),
                "stages": stages,
                "read": markup.packed(shown),
                "most": most,
                "queries": _between_patches(maps, prefix, _ROOM // len(batch)),
            }
        )
    return stored


def _between_patches(
    maps: Mapping[int, np.ndarray], prefix: int, room: int
) -> dict[str, Any] | None:
    """Attention from patch to patch: of each head if there is room, else means, of fewer blocks."""
    every = list(maps)
    for heads in (True, False):
        for step in (1, 2, 3, 4, 6, 12, 24) if not heads else (1,):
            blocks = every[::-1][::step][::-1]
            count = len(maps[every[0]][0]) + 1 if heads else 1
            patches = maps[every[0]].shape[-1] - prefix
            if len(blocks) * count * patches**2 > 4 * room:
                continue  # zlib halves it, hardly more
            values = []
            for block in blocks:
                weights = maps[block][0, :, prefix:, prefix:]
                mean = weights.mean(axis=0, keepdims=True)
                values.append(np.concatenate([mean, weights]) if heads else mean)
            shown, most = _eight_bits(np.concatenate(values).reshape(-1, patches), levels=32)
            data = markup.packed(shown)
            if len(data) + 8 * len(most) <= room:
                return {"blocks": blocks, "heads": heads, "data": data, "most": most}
    return None


def _eight_bits(rows: np.ndarray, levels: int = 256) -> tuple[np.ndarray, list[float]]:
    """Square roots of each row's shares of its largest value, in 8 bits, and the largest values."""
    most = rows.max(axis=1, keepdims=True)
    shares = np.sqrt(np.clip(rows / np.maximum(most, 1e-30), 0, 1))
    values = np.round(np.round(shares * (levels - 1)) * (255 / (levels - 1)))
    return values.astype("uint8"), [float(f"{value:.3g}") for value in most[:, 0]]


def _figures(
    model: VisionTransformer, batch: np.ndarray | None
) -> tuple[dict[str, tuple[str, Any]], list[str]]:
    """The model's own figures: what each says and how to draw it; and what could not be drawn."""
    figures: dict[str, tuple[str, Any]] = {
        "filters": (
            "The first layer. Trained filters are smooth: edges, colours, waves.",
            functools.partial(drawing.draw_filters, patch_filters(model)),
        )
    }
    notes = []
    try:
        similar = position_similarity(model)
        figures["positions"] = (
            "Each small map compares one position with all others: bright is alike.",
            functools.partial(drawing.draw_positions, similar),
        )
    except ConfigError as reason:
        notes.append(str(reason))
    if batch is None:
        notes.append("Distances and norms need images: keras-vit explain IMAGES draws them.")
        return figures, notes
    some = batch[:16]
    maps = attention_maps(model, some)
    distances = attention_distance(maps, grid_of(model, some), model.config)
    figures["distances"] = (
        "How far each head looks, in pixels, over the images of this report.",
        functools.partial(drawing.draw_distances, distances),
    )
    figures["norms"] = (
        "The lengths of tokens. Outliers in late blocks keep what concerns the whole image.",
        functools.partial(drawing.draw_norms, token_norms(model, some)),
    )
    return figures, notes


def _both(text: str, draw: Any, colours: int | None = None) -> str:
    """A figure for light and for dark screens."""
    sources = []
    for dark in (False, True):
        with drawing.theme(dark):
            sources.append(markup.data_of(draw(), colours))
    return markup.picture(sources[0], text, text, dark=sources[1])


def _origin(model: VisionTransformer, command: str) -> str:
    from keras_vit import __version__

    parts = [markup.heading("Command"), markup.preformatted(command)] if command else []
    provenance = json.dumps(dict(model.provenance), indent=2, ensure_ascii=False, default=str)
    note = (
        "Attention is not explanation: it tells where a model looked, not what would change its "
        "mind. Believe a map as far as its curves leave random and centre behind."
    )
    return markup.section(
        "About this report",
        markup.paragraph(note),
        *parts,
        markup.heading("Provenance"),
        markup.preformatted(provenance),
        markup.paragraph(f"Made by keras_vit {__version__}.", soft=True),
    )


def _name(image: Any, k: int) -> str:
    return Path(image).name if isinstance(image, (str, os.PathLike)) else f"image {k + 1}"


def _canvas(size: tuple[int, int]) -> tuple[int, int]:
    """Pixels of a canvas with the aspect of an image, at least 384 on its longer side."""
    times = max(1, -(-384 // max(size)))
    return size[0] * times, size[1] * times


def _colours() -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["inferno"](0.25 + 0.75 * k / 255)) for k in range(256)]
