"""The directive `models-table`: the catalog of presets, a table per family.

Its argument is a family; without one it is the families' overview. The columns are those of
`keras_vit.sources.catalog.Preset`, so that a new row of the catalog is on the site at once.
"""

import json
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from keras_vit.checkpoints.passports import rung_of, shipped
from keras_vit.errors import PresetError
from keras_vit.sources.catalog import CATALOG, Preset
from keras_vit.weights.lexicon import num_parameters

ROOT = Path(__file__).parents[2]
HEADER = "| preset | parameters | pixels | data | top-1, reported by | rung | MB | license |"


class ModelsTable(SphinxDirective):
    """Writes the presets of a family as a Markdown table."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the table."""
        family = self.arguments[0] if self.arguments else "vit"
        rows = [_row(preset) for preset in CATALOG.values() if preset.family == family]
        lines = [HEADER, "|---|---:|---:|---|---|---|---:|---|", *rows]
        container = nodes.container(classes=["models-table"])
        self.state.nested_parse(StringList(lines, source="catalog"), self.content_offset, container)
        return [container]


class SpeedTable(SphinxDirective):
    """Writes the images per second that `make bench` measured."""

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the table."""
        lines = ["| model | batch | torch | JAX | TensorFlow |", "|---|---:|---:|---:|---:|"]
        for entry in json.loads((ROOT / "benchmarks/results/cpu.json").read_text()):
            request = entry["request"]
            if request["task"] != "forward" or request["dtype"] != "float32":
                continue
            took = {row["peer"]: row["milliseconds"] for row in entry["rows"]}
            cells = [f"{request['model']} at {request['image_size']}", str(request["batch"])]
            for backend in ("torch", "jax", "tensorflow"):
                milliseconds = took.get(f"keras_vit-{backend}-predict")
                speed = milliseconds and request["batch"] * 1000 / milliseconds
                cells.append(f"{speed:.1f}" if speed else "")
            if any(cells[2:]):
                lines.append(f"| {' | '.join(cells)} |")
        container = nodes.container()
        lines = _merged(lines)
        self.state.nested_parse(StringList(lines, source="bench"), self.content_offset, container)
        return [container]


def _merged(lines: list[str]) -> list[str]:
    """Joins rows of the same model and batch, which were measured per backend."""
    rows: dict[tuple[str, str], list[str]] = {}
    for line in lines[2:]:
        model, batch, *speeds = [cell.strip() for cell in line.strip("|").split("|")]
        known = rows.setdefault((model, batch), [""] * len(speeds))
        rows[model, batch] = [new or old for new, old in zip(speeds, known, strict=True)]
    return [*lines[:2], *(f"| {' | '.join([*key, *speeds])} |" for key, speeds in rows.items())]


def _row(preset: Preset) -> str:
    size = preset.mebibytes
    try:
        parameters = f"{num_parameters(preset.config()) / 1e6:,.1f} M"
    except PresetError:
        parameters = "in its file"
    if preset.folder is not None:
        stored = (preset.folder / "model.safetensors").stat().st_size
        parameters, size = f"{stored / 4 / 1e6:,.1f} M", stored / 2**20
    score = f"{preset.top1:.2f} %, {preset.reported}" if preset.top1 is not None else ""
    if preset.upstream_top1 is not None:
        score = f"{preset.upstream_top1:.2f} % of ImageNet-21k, VT#62"
    cells = [
        f"`{preset.name}`",
        parameters,
        str(preset.image_size),
        preset.data.replace("_ft_", ", then ").replace("_", " "),
        score,
        _evidence(preset.name),
        f"{size:,.0f}" if size and size > 1 else (f"{size:.1f}" if size else ""),
        preset.license,
    ]
    return f"| {' | '.join(cells)} |"


def _evidence(name: str) -> str:
    passport = shipped().get(name)
    rung = rung_of(name)
    return f"{rung}, {passport.date}" if passport and rung else str(rung)


def setup(app: object) -> dict[str, bool]:
    """Registers the directives."""
    app.add_directive("models-table", ModelsTable)  # type: ignore[attr-defined]
    app.add_directive("speed-table", SpeedTable)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
