"""HTML of what a report tells. Every text of strangers passes `terminal.in_html` here."""

import base64
import hashlib
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from keras_vit.text import in_html, visible

_MOST_JPEG = 20_000
"""Bytes of a picture: a report of ten images has ninety pictures, and stays below 5 MB."""


def page(title: str, summary: str, sections: Sequence[str], colours: Sequence[str]) -> str:
    """Returns the whole page. Its policy allows the two scripts and styles of its own, no more."""
    style, script = (_part(name) for name in ("style.css", "viewer.js"))
    return Template(_part("page.html")).substitute(
        title=in_html(title),
        summary=in_html(summary),
        body="\n".join(sections),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        colours=as_json(list(colours)),
    )


def section(heading: str, *parts: str) -> str:
    """Returns a part of the page with a heading."""
    return f"<section>\n<h2>{in_html(heading)}</h2>\n" + "\n".join(parts) + "\n</section>"


def heading(text: str) -> str:
    return f"<h3>{in_html(text)}</h3>"


def paragraph(text: str, soft: bool = False) -> str:
    return f"<p{' class=note' if soft else ''}>{in_html(text)}</p>"


def preformatted(text: str) -> str:
    """Returns text whose lines stay as they are."""
    return "<pre>" + "\n".join(in_html(line) for line in text.split("\n")) + "</pre>"


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table; numbers stand at the right."""
    numbers = [isinstance(value, float) for value in rows[0]] if rows else []
    head = "".join(
        f'<th scope="col"{" class=number" if number else ""}>{in_html(name)}</th>'
        for name, number in zip(headings, numbers, strict=True)
    )
    lines = []
    for first, *rest in rows:
        cells = "".join(
            f'<td class="number">{value:.3f}</td>'
            if isinstance(value, float)
            else f"<td>{in_html(value)}</td>"
            for value in rest
        )
        lines.append(f'<tr><th scope="row">{in_html(first)}</th>{cells}</tr>')
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def picture(
    source: str, caption: str, description: str, dark: str | None = None, coarse: bool = False
) -> str:
    """Returns a picture with a caption; `dark` is the one for a dark screen."""
    image = f'<img src="{source}" alt="{in_html(description)}"{" class=coarse" if coarse else ""}>'
    if dark is not None:
        other = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        image = f"<picture>{other}{image}</picture>"
    return f"<figure>{image}<figcaption>{in_html(caption)}</figcaption></figure>"


def grid(kind: str, parts: Sequence[str]) -> str:
    """Returns parts side by side, as many as the screen holds."""
    return f'<div class="{kind}">' + "\n".join(parts) + "</div>"


def viewer(source: str, stored: Mapping[str, Any], size: tuple[int, int], name: str) -> str:
    """Returns the attention viewer of one image, see `viewer.js`."""
    height, width = size
    last = len(stored["stages"]) - 1
    most_heads = max(stage["heads"] for stage in stored["stages"])
    return Template(_part("viewer.html")).substitute(
        stored=as_json(stored),
        source=source,
        height=height,
        width=width,
        name=in_html(name),
        last=last,
        most_heads=most_heads,
    )


def as_json(value: Any) -> str:
    """Returns JSON that no script element ends in, its strings visible."""
    text = json.dumps(_visible(value), separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(one) for key, one in value.items()}
    return [_visible(one) for one in value] if isinstance(value, (list, tuple)) else value


def packed(values: np.ndarray) -> str:
    """Returns uint8 numbers by zlib in base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()


def data_of(figure: Any, colours: int | None = None) -> str:
    """Returns a matplotlib figure as a PNG in a `data:` address.

    Lines and text in so many `colours` take a third of the bytes of all colours.
    """
    from PIL import Image

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110)
    if colours is not None:
        with Image.open(file) as image:
            few = image.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
        file = io.BytesIO()
        few.save(file, "PNG", optimize=True)
    return _address("png", file.getvalue())


def data_of_pixels(pixels: np.ndarray, side: int = 336) -> str:
    """Returns a picture `(height, width, 1 or 3)` in [0, 1] as a `data:` address.

    Small pictures are PNG of their own pixels; larger ones are JPEG of at most
    `side` pixels on a side, in the best of four qualities that takes at most 20 KB.
    """
    from PIL import Image

    values = np.round(np.clip(pixels, 0, 1) * 255).astype("uint8")
    image = Image.fromarray(values[..., 0] if values.shape[-1] == 1 else values[..., :3])
    file = io.BytesIO()
    if max(image.size) <= 96:
        image.save(file, "PNG", optimize=True)
        return _address("png", file.getvalue())
    image.thumbnail((side, side))
    for quality in (82, 70, 55, 40):
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        if file.tell() <= _MOST_JPEG:
            break
    return _address("jpeg", file.getvalue())


def _address(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
