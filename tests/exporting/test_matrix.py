"""The notes of the benchmarks show the matrix of backends, formats and models, and its cells hold.

The suite measures a sample: one cell of every format on torch, and of their own format on JAX and
TensorFlow; `make test-thorough` one of every format under each backend. This measures all cells:

    make test BACKENDS=torch PYTEST_ARGS=tests/exporting/test_matrix.py KERAS_VIT_MATRIX=whole
"""

import importlib.util
import json
import os

import keras
import pytest

from benchmarks import exports
from keras_vit.exporting import FORMATS
from keras_vit.exporting.formats import load_format
from tests.thorough import THOROUGH

BACKEND = keras.backend.backend()
SAMPLE = {
    "torch": {
        "torch": "quick GELU (CLIP)",
        "onnx": "map",
        "openvino": "map",
        "transformers_js": "gap",
        "saved_model": "any size, hybrid",
        "litert": "channels_first",
        "stablehlo": "any size, rotary, SwiGLU",
    },
    "jax": {
        "stablehlo": "any size",
        "onnx": "int8",
        "openvino": "float16",
        "transformers_js": "two heads (DeiT)",
        "torch": "mixed_bfloat16",
        "saved_model": "rotary, SwiGLU (DINOv3)",
        "litert": "hybrid",
    },
    "tensorflow": {
        "saved_model": "remat",
        "litert": "plain",
        "onnx": "registers (DINOv2)",
        "openvino": "registers (DINOv2)",
        "transformers_js": "plain",
        "torch": "map",
        "stablehlo": "hybrid",
    },
}
"""For each backend and format the row that the suite measures.

`onnx` and `openvino` of one model share an ONNX file, which is written once.
"""


def stated():
    return json.loads(exports.RESULTS.read_text(encoding="utf-8"))["cells"]


QUICK = {"torch": FORMATS, "jax": ("stablehlo",), "tensorflow": ("saved_model",)}
"""The formats of `make test`; JAX and TensorFlow write the others as torch does."""


def cells():
    """The format and the row of every test of a cell under this backend."""
    if os.environ.get("KERAS_VIT_MATRIX") == "whole":
        return [(format, row) for format in FORMATS for row in exports.ROWS]
    chosen = FORMATS if THOROUGH else QUICK[BACKEND]
    return [(format, SAMPLE[BACKEND][format]) for format in chosen]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One process of each other backend writes for all cells."""
    with exports.Written(tmp_path_factory.mktemp("files")).installed() as files:
        yield files


@pytest.mark.filterwarnings("ignore")  # of converters
@pytest.mark.parametrize(("format", "row"), cells())
def test_a_cell_is_as_the_table_says(written, format, row):
    """The same refusal; or the same shapes, and a difference of the same size.

    Another processor may round otherwise, so the bound in float32 is ten times the difference of
    the table, far below that of a fault. In fewer bits the weights decide, not the processor.
    """
    form = load_format(format)
    quantises = form.quantises if row == "int8" else {}
    for module in {**form.writes, **form.reads, **quantises}:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    before, found = stated()[BACKEND][format][row], exports.cell(row, format, written)
    assert set(found) == set(before)
    if "refused" in before:
        assert found["refused"] == before["refused"]
        return
    assert found["shapes"] == before["shapes"]
    times = 2 if row in exports.PRECISIONS else 10
    assert found["difference"] <= max(times * before["difference"], 5e-6)


@pytest.mark.without_backend
def test_the_sample_has_every_backend_every_format_and_every_model():
    """A cell of the sample has a difference, not a refusal."""
    assert set(SAMPLE) == set(exports.BACKENDS)
    assert all(set(rows) == set(FORMATS) for rows in SAMPLE.values())
    assert {row for rows in SAMPLE.values() for row in rows.values()} == set(exports.ROWS)
    for backend, rows in SAMPLE.items():
        assert all("difference" in stated()[backend][format][row] for format, row in rows.items())


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
    """The notes have the tables that `python -m benchmarks.exports write` makes."""
    document = exports.DOCUMENT.read_text(encoding="utf-8")
    assert exports.written_into(document, exports.tables(stated())) == document
