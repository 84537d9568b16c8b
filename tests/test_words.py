"""Rules of words that a machine can see, in docstrings of the package and in names of tests."""

import ast
import re
from pathlib import Path

import pytest

import keras_vit

pytestmark = pytest.mark.without_backend

PACKAGE = Path(keras_vit.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("test_*.py"))
DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LONGEST_SENTENCE, LONGEST_NAME = 40, 70


def docstrings(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return [ast.get_docstring(node) or "" for node in nodes if isinstance(node, DOCUMENTED)]


def sentences(docstring: str) -> list[str]:
    """Sentences of the paragraphs of prose: no lists of arguments, tables, examples or formulas."""
    prose = [
        paragraph
        for paragraph in re.split(r"\n\s*\n", docstring)
        if not re.match(r"\s*(Args|Attributes|Raises|Returns|Yields):|\s*[-|>=*]|\s{4}", paragraph)
        and " | " not in paragraph
    ]
    parts = (re.split(r"(?<=[.:;!?])\s+", " ".join(text.split())) for text in prose)
    return [sentence for part in parts for sentence in part]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstrings_say_things_by_themselves(path):
    """A parameter's description does not continue its name, and no module begins as a question."""
    first, *_ = docstrings(path)
    assert not re.match(r"(What|How|Which)\b", first), first.splitlines()[0]
    for docstring in docstrings(path):
        continued = re.findall(r"^ +[\w*, ]+: (?:of|whose|what|which)\b.*$", docstring, re.M)
        assert continued == []
        for sentence in sentences(docstring):
            assert len(sentence.split()) <= LONGEST_SENTENCE, sentence


def test_names_of_tests_have_at_most_seventy_letters():
    names = [name for path in TESTS for name in re.findall(r"def (test_\w+)", path.read_text())]
    assert [name for name in names if len(name) > LONGEST_NAME] == []
