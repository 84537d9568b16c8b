"""The directive `licenses-table`: the encoders of one license, by family, as a Markdown table.

Its argument is the license, or `other` for those that no other table of the page has. Presets come
from the catalog, and families without a preset from `families.toml`.
"""

from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from families_pages import license_of, read_families, rows_of
from models_table import license_words
from sphinx.util.docutils import SphinxDirective

from keras_vit.presets.catalog import CATALOG

TITLED = ("Apache-2.0", "MIT")
"""The licenses with a table each."""


class LicensesTable(SphinxDirective):
    """Writes the encoders of a license as a Markdown table."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the table."""
        title = self.arguments[0]
        lines = ["| family | names for `from_preset` |", "|---|---|"]
        for family, words, names in (row for of, *row in _rows() if of == title):
            lines.append(f"| {family}{'' if words == title else f'<br>{words}'} | {names} |")
        container = nodes.container(classes=["licenses"])
        self.state.nested_parse(StringList(lines, source="catalog"), self.content_offset, container)
        return [container]


def _rows() -> Iterator[tuple[str, str, str, str]]:
    """Yields the table, family, license and names of each row."""
    for family in read_families():
        link = f"[{family['name']}](families/{family['slug']})"
        if rows := rows_of(family):
            yield from _grouped(link, [row.name for row in rows])
        else:
            yield _title(license_of(family)), link, license_of(family), f"`{family['load']}`"
    domains = [row for row in CATALOG.values() if row.feature]
    for name in dict.fromkeys(row.family for row in domains):
        yield from _grouped(
            f"[{name}](domains)", [row.name for row in domains if row.family == name]
        )
    yield from _grouped("keras_vit", [row.name for row in CATALOG.values() if row.folder])


def _grouped(family: str, names: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Yields a row per license of these presets."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        stated = CATALOG[name].licenses.items()
        words = "; ".join(f"{text} ({who})" for who, text in stated)
        license_ = license_words(CATALOG[name].license)
        groups.setdefault((license_, words or license_), []).append(f"`{name}`")
    for (license_, words), presets in groups.items():
        yield _title(license_), family, words, " ".join(presets)


def _title(license_: str) -> str:
    return next((title for title in TITLED if license_.startswith(title)), "other")


def setup(app: object) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("licenses-table", LicensesTable)  # type: ignore[attr-defined]
    return {"parallel_read_safe": True}
