"""A page of pictures of a probe's suspects and pairs; a browser opens it from disk."""

import base64
import html
import io
import os
import string
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from PIL import Image

from keras_vit.evaluation.probing import Probe
from keras_vit.images import Preprocessor
from keras_vit.images.resampling import read_pixels
from keras_vit.support.files import replace_file
from keras_vit.support.text import visible

_SIDE = 160
"""Longest side of a picture in pixels."""


def write_page(
    probe: Probe, path: str | os.PathLike[str], images: Mapping[str, Any] | None = None
) -> None:
    """Writes the page as one file, which loads nothing from a network.

    Args:
        probe: the probe.
        path: path of the page; an existing file is replaced.
        images: `{name in the probe: image}` for images in memory, in any form that
            `Preprocessor` takes.

    Raises:
        ConfigError: an image cannot be read.
        WriteError: the page cannot be written.
    """
    read = images or {}
    figures = [
        _figure(
            read.get(each.image, each.image),
            f"{each.image}: {each.label}, looks like {each.likely} ({each.probability:.0%})",
        )
        for each in probe.suspects
    ]
    pairs = [
        _figure(read.get(image, image), f"{image}: {label}, {pair.similarity:.0%} alike")
        for pair in probe.pairs
        for image, label in zip(pair.images, pair.labels, strict=True)
    ]
    page = resources.files(__package__).joinpath("probe.html").read_text(encoding="utf-8")
    page = string.Template(page).substitute(
        summary="".join(f"<li>{html.escape(line)}</li>" for line in probe.summary()),
        suspects="".join(figures) or "None.",
        pairs="".join(pairs) or "None.",
    )
    with replace_file(Path(path)) as file:
        file.write_text(page, encoding="utf-8")


def _figure(image: Any, words: str) -> str:
    # A picture of its own: `thumbnail` changes it.
    picture = Image.fromarray(read_pixels(Preprocessor(_SIDE).decode(image)).astype("uint8"))
    picture.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    picture.save(file, "jpeg", quality=80)
    source = base64.b64encode(file.getvalue()).decode()
    caption = html.escape(visible(words))
    return (
        f'<figure><img alt="{caption}" src="data:image/jpeg;base64,{source}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )
