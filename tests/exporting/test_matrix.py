"""docs/export.md shows the measured matrix of backends, formats and models, and a sample holds."""

import json

import keras
import pytest

from benchmarks import exports
from keras_vit.exporting import FORMATS

BACKEND = keras.backend.backend()
OWN = {"torch": "torch", "jax": "stablehlo", "tensorflow": "saved_model"}[BACKEND]
"""The format that each backend writes itself; tests/exporting/test_export.py has the others."""


def stated():
    return json.loads(exports.RESULTS.read_text(encoding="utf-8"))["cells"]


@pytest.mark.filterwarnings("ignore")  # of converters
def test_a_cell_is_as_near_as_the_table_says():
    """Another processor may round otherwise, so the bound is far below any fault's difference."""
    kind = "any size, rotary, SwiGLU"
    before, found = stated()[BACKEND][OWN][kind], exports.cell(kind, OWN)
    assert found["shapes"] == before["shapes"]
    assert found["difference"] <= max(10 * before["difference"], 5e-6)


@pytest.mark.without_backend
def test_the_matrix_is_whole_and_every_difference_is_small():
    """Every backend, format and model has a difference or a refusal."""
    bounds = {"float16": 1e-2, "int8": 0.25}
    cells = stated()
    assert set(cells) == set(exports.BACKENDS)
    for formats in cells.values():
        assert set(formats) == set(FORMATS)
        for rows in formats.values():
            assert set(rows) == set(exports.ROWS)
            for row, cell in rows.items():
                assert ("difference" in cell) != ("refused" in cell)
                assert cell.get("difference", 0) <= bounds.get(row, 5e-5)


@pytest.mark.without_backend
def test_models_of_any_size_were_compared_at_three_sizes_or_refused():
    """The three sides of images of each cell differ."""
    for formats in stated().values():
        for format, rows in formats.items():
            for row in (row for row in rows if row.startswith("any size")):
                if "refused" in rows[row]:
                    continue
                first = slice(2, 4) if format == "transformers_js" else slice(1, 3)
                assert len({tuple(shape[first]) for shape in rows[row]["shapes"]}) == 3


@pytest.mark.without_backend
def test_the_document_shows_the_results():
    """docs/export.md has the tables that `python -m benchmarks.exports write` makes."""
    document = exports.DOCUMENT.read_text(encoding="utf-8")
    assert exports.written_into(document, exports.tables(stated())) == document
