"""The directive `models-table`: the catalog of presets as one table, whose columns sort it.

A row comes from `keras_vit.presets.catalog.Preset`, so that a new row of the catalog is on the site
at once. `models_table.js` sorts and filters in the browser.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

import keras_vit
from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.images.protocols import complete
from keras_vit.models import flops
from keras_vit.presets.catalog import CATALOG, Preset

SPEEDS = Path(__file__).parents[2] / "benchmarks" / "results" / "amd_epyc.csv"
COLUMNS = {
    "preset": "---",
    "license": "---",
    "params, M": "---:",
    "GMACs": "---:",
    "pixels": "---:",
    "top-1, %": "---:",
    "source": "---",
    "images/s": "---:",
}
MEANS = {0.485: "ImageNet's mean", 0.48145466: "CLIP's mean", 0.5: ""}


class ModelsTable(SphinxDirective):
    """Writes all presets as a Markdown table."""

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the table."""
        self.env.note_dependency(str(SPEEDS))
        speeds = _read(SPEEDS)
        rows = [COLUMNS, COLUMNS.values(), *(_row(row, speeds) for row in CATALOG.values())]
        lines = [f"| {' | '.join(cells)} |" for cells in rows]
        container = nodes.container(classes=["models-table"])
        self.state.nested_parse(StringList(lines, source="catalog"), 0, container)
        return [container]


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _row(preset: Preset, speeds: list[dict[str, str]]) -> list[str]:
    config = keras_vit.info(preset.folder).config if preset.folder else preset.config()
    parameters, gmacs = num_parameters(config) / 1e6, flops(config).forward / 2e9
    top1, reported = preset.top1, preset.reported
    if preset.upstream_top1 is not None:
        top1, reported = preset.upstream_top1, "VT#62"
    return [
        f"`{preset.name}`",
        license_words(preset.license),
        f"{parameters:,.1f}",
        f"{gmacs:,.1f}" if gmacs >= 0.1 else f"{gmacs:.4f}",
        str(preset.image_size),
        "" if top1 is None else f"{top1:.2f}",
        reported.partition(",")[0].partition("'s ")[0],
        _speed(preset.name, gmacs, speeds),
    ]


def license_words(license_: str) -> str:
    """Returns a license in the words of a page: SPDX prefixes what it does not list."""
    return f"{license_.removeprefix('LicenseRef-')} License" if "Ref-" in license_ else license_


def protocol_words(protocol: str | Mapping[str, Any]) -> str:
    """Returns the name of a protocol and what distinguishes it: crop, filter, mean."""
    values = complete(protocol)
    words = [values["name"]]
    if values["name"] == "timm":
        words.append(f"crop {values['crop_pct']:g}")
    if values["name"] == "big_vision" and values["resize_small"]:
        words.append(f"{values['resize_small']} to {values['image_size']} pixels")
    words.append(values.get("interpolation", ""))
    first = values["mean"][0] if isinstance(values["mean"], (list, tuple)) else values["mean"]
    words.append(MEANS.get(first, f"mean {first:g}"))
    return ", ".join(filter(None, words))


def _speed(name: str, gmacs: float, rows: list[dict[str, str]]) -> str:
    """Returns the best float32 figure of the rows that are of this model at this size."""
    fitting = [
        row for row in rows
        if name.startswith(row["model"]) and row["precision"] == "float32"
        and abs(float(row["gmacs"]) / gmacs - 1) < 0.01
    ]  # fmt: skip
    if not fitting:
        return ""
    best = max(fitting, key=lambda row: float(row["images_per_second"]))
    return f"{float(best['images_per_second']):,.1f}"


def setup(app: object) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("models-table", ModelsTable)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
