"""Writes a web page with a probe's scores, suspicious labels and near-duplicates."""

import base64
import html
import io
import json
import os
import string
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from keras_vit.errors import ConfigError
from keras_vit.evaluation.probing import Probe
from keras_vit.images import Preprocessor
from keras_vit.images.resampling import read_pixels
from keras_vit.support.files import replace_file
from keras_vit.support.text import visible

_SIDE = 160
"""Longest side of a picture in pixels."""


_MOST_CLASSES = 40
"""Most classes of the confusion matrix: those with the most errors."""


def write_page(
    probe: Probe,
    path: str | os.PathLike[str],
    images: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
    title: str = "A classifier from a folder",
) -> None:
    """Writes a web page about a probe: scores, confusion matrix, suspicious labels, duplicates.

    The page is one file, which a browser opens from disk without a network.

    Args:
        probe: the probe.
        path: path of the page; an existing file is replaced.
        images: `{name in the probe: image}` for images in memory, in any form that
            `Preprocessor` takes.
        provenance: facts at the end of the page, as plain JSON types, such as the command.
        title: title of the page, such as the names of the encoder and of the data.

    Raises:
        ConfigError: an image cannot be read, or the probe is for regression.
        WriteError: the page cannot be written.
    """
    if probe.task == "regression":
        raise ConfigError("The page is for classifiers; this probe is a regression: see summary().")
    read = images or {}
    figures = [
        _figure(
            read.get(each.image, each.image),
            f"{each.image}: {each.label}, looks like {each.likely} ({each.probability:.0%})",
        )
        for each in probe.suspects
    ]
    pairs = []
    for pair in probe.pairs:
        two = zip(pair.images, pair.labels, strict=True)
        pictures = [_figure(read.get(image, image), f"{image}: {label}") for image, label in two]
        words = f"<p>Similarity {pair.similarity:.0%}</p>"
        pairs.append(f'<section class="pair">{"".join(pictures)}{words}</section>')
    page = resources.files(__package__).joinpath("probe.html").read_text(encoding="utf-8")
    page = string.Template(page).substitute(
        title=_text(title),
        summary="".join(f"<li>{html.escape(line)}</li>" for line in probe.summary()),
        classes=_classes(probe),
        confusion=_confusion(probe),
        curve=_curve(probe.curve),
        suspects="".join(figures) or "None.",
        pairs="".join(pairs) or "None.",
        training=_training(provenance or {}),
        provenance=_text(json.dumps(dict(provenance or {}), indent=2, ensure_ascii=False)),
    )
    with replace_file(Path(path)) as file:
        file.write_text(page, encoding="utf-8")


def _text(words: str) -> str:
    return html.escape("\n".join(map(visible, words.split("\n"))))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table of cells, which are HTML; the first cell of a row is its heading."""
    first = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = (f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>' for name, *cells in rows)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _classes(probe: Probe) -> str:
    rows = [
        (
            _text(each.name),
            *(f"<td>{cell}</td>" for cell in (f"{each.images:,}", f"{each.score:.0%}")),
            "<td>{:.0%} to {:.0%}</td>".format(*each.interval or ()),
        )
        for each in sorted(probe.class_scores, key=lambda one: one.score)
    ]
    measure = "accuracy" if probe.thresholds is None else "average precision"
    return _table(("class", "images", measure, "interval"), rows)


def _confusion(probe: Probe) -> str:
    """Returns the confusion matrix, a row per label; larger fractions of a row are darker."""
    if probe.confusion is None:
        return "<p>There is no confusion matrix for multi-label images.</p>"
    wrong = probe.confusion - np.diag(np.diag(probe.confusion))
    errors = wrong.sum(axis=0) + wrong.sum(axis=1)
    shown = np.sort(np.argsort(-errors, kind="stable")[:_MOST_CLASSES])
    names = [_text(probe.class_names[k]) for k in shown]
    rows = []
    for name, k in zip(names, shown, strict=True):
        shares = probe.confusion[k] / max(probe.confusion[k].sum(), 1)
        cells = [
            f'<td style="--share:{shares[j]:.2f}">{probe.confusion[k, j] or ""}</td>' for j in shown
        ]
        rows.append((name, *cells))
    return _table(("label (rows), prediction (columns)", *names), rows)


def _curve(curve: Sequence[tuple[int, float]]) -> str:
    """Returns the learning curve as a drawing with titled axes, and its values in words."""
    most = curve[-1][0]
    points = [(260 * count / most, 100 - 100 * accuracy) for count, accuracy in curve]
    line = " ".join(f"{x:.0f},{y:.1f}" for x, y in points)
    words = ", ".join(f"{accuracy:.1%} with {count:,} images" for count, accuracy in curve)
    return (
        f'<svg viewBox="-50 -8 330 150" role="img" aria-label="Accuracy: {words}">'
        f'<path d="M0 0V100H260"/><polyline points="{line}"/>'
        '<text x="-4" y="4" text-anchor="end">100 %</text>'
        '<text x="-4" y="103" text-anchor="end">0 %</text>'
        '<text x="0" y="115">0</text>'
        f'<text x="260" y="115" text-anchor="middle">{most:,}</text>'
        '<text x="130" y="130" text-anchor="middle">training images</text>'
        '<text transform="translate(-38 50) rotate(-90)" text-anchor="middle">accuracy</text>'
        f"</svg><p>{words}.</p>"
    )


def _training(provenance: Mapping[str, Any]) -> str:
    """Returns a table of the epochs if `keras_vit.pretrain` has trained the encoder, else ""."""
    found = provenance.get("history")
    if not isinstance(found, Mapping):
        return ""
    numbers = range(1, 1 + max(map(len, found.values()), default=0))
    rows = [
        (f"{epoch}", *(f"<td>{values[epoch - 1]:.4g}</td>" for values in found.values()))
        for epoch in numbers
    ]
    table = _table(("epoch", *map(_text, found)), rows)
    return f'<h2>Training without labels</h2><div class="wide">{table}</div>'


def _figure(image: Any, words: str) -> str:
    # A copy, because `thumbnail` changes the picture.
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
