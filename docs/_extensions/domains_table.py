"""The directive `domains-table`: the domain-specific encoders of the catalog as a Markdown table.

Its arguments are the families, such as `pathology`.
"""

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.images.protocols import complete
from keras_vit.presets.catalog import CATALOG, Preset

COLUMNS = {
    "preset": "---",
    "license": "---",
    "gated": "---",
    "repository": "---",
    "params, M": "---:",
    "pixels": "---:",
    "mean; std": "---",
    "feature": "---",
}


class DomainsTable(SphinxDirective):
    """Writes the presets of families as a Markdown table."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the table."""
        presets = [row for row in CATALOG.values() if row.family in self.arguments[0].split()]
        rows = [COLUMNS, COLUMNS.values(), *map(_row, presets)]
        lines = [f"| {' | '.join(cells)} |" for cells in rows]
        container = nodes.container(classes=["presets", "domains"])
        self.state.nested_parse(StringList(lines, source="catalog"), self.content_offset, container)
        return [container]


def _row(preset: Preset) -> list[str]:
    repository = str(preset.source).removeprefix("hf://")
    return [
        f"`{preset.name}`",
        preset.license,
        "yes" if preset.note.startswith("gated") else "see the repository",
        f"[{repository}](https://huggingface.co/{repository})",
        f"{num_parameters(preset.config()) / 1e6:,.1f}",
        str(preset.image_size),
        _statistics(preset),
        preset.feature,
    ]


def _statistics(preset: Preset) -> str:
    """Returns mean and std of the row; those of some repositories are known to their files."""
    if "states mean and std" in preset.note:
        return "the repository's"
    protocol = complete(preset.protocol)
    if protocol["mean"] == [0.485, 0.456, 0.406]:
        return "ImageNet's"
    return f"{protocol['mean']}; {protocol['std']}"


def setup(app: object) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("domains-table", DomainsTable)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
