"""The package stays small, and lets Keras train: ceilings that a change may lower.

A code line is a line with a token that is neither a comment nor a docstring.
"""

import ast
import io
import tokenize
from pathlib import Path

import keras
import pytest

import keras_vit

PACKAGE = Path(keras_vit.__file__).parent
CODE_LINES = 24_800
NAMES_OF_KERAS_MODEL = 10
"""Ceilings. Raise one only for something that users asked for, and say so in the commit."""

_NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    docstrings = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstrings)


def test_comments_and_docstrings_are_no_code_lines():
    assert code_lines('"""Says.\n\nMore.\n"""\n\n# why\nx = (\n    1\n)\n') == 3


@pytest.mark.without_backend
def test_the_package_has_at_most_so_many_code_lines():
    total = sum(code_lines(path.read_text()) for path in PACKAGE.rglob("*.py"))
    assert total <= CODE_LINES, f"{total} code lines"


def test_the_model_defines_few_names_of_keras_model_and_each_once():
    """Python's own names, and `__init__`, are in every class."""
    order = keras_vit.VisionTransformer.__mro__
    own = order[: order.index(keras.Model)]
    own = [base for base in own if base.__module__.startswith("keras_vit")]
    known = {name for name in dir(keras.Model) if not name.startswith("__") and name != "_abc_impl"}
    defined = [name for base in own for name in vars(base) if name in known]
    assert len(own) <= 2, own
    assert len(defined) == len(set(defined)), sorted(defined)
    assert len(defined) <= NAMES_OF_KERAS_MODEL, sorted(defined)
