"""The rules of `tests/prose.py` hold, and find what breaks them."""

import pytest

from tests import prose

pytestmark = pytest.mark.without_backend


@pytest.mark.parametrize(
    ("path", "rule"), prose.RULES, ids=lambda value: str(getattr(value, "stem", ""))
)
def test_words_keep_the_rules(path, rule):
    assert list(rule(path)) == []


def test_faults_of_docstrings_are_found(tmp_path):
    """A question, a continued name and a long sentence; an example is no sentence."""
    path = tmp_path / "module.py"
    long = "word " * 41
    arguments = "    Args:\n        path: of the folder.\n"
    path.write_text(
        f'"""What it is.\n\n{long}"""\n'
        f'def f(path):\n    """Reads.\n\n{arguments}\n    >>> {long}\n    """'
    )
    faults = list(prose.faults_of_module(path))
    assert [fault.partition(":")[0] for fault in faults] == [
        "the module begins as a question",
        "a sentence of more than 40 words",
        "the description continues the name of the parameter",
    ]


def test_long_sentences_of_pages_are_found(tmp_path):
    """Items of a list are sentences of their own; code and tables are none."""
    path, long = tmp_path / "page.md", "word " * 41
    item = "word " * 30
    path.write_text(
        f"# {long}\n\n```\n\n{long}\n\n```\n\n| {long} |\n\n- {item}\n- {item}\n\n{long}\n"
    )
    assert len(list(prose.faults_of_page(path))) == 1


def test_long_names_of_tests_are_found(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(f"def test_{'a' * 66}(): pass\ndef test_{'a' * 65}(): pass\n")
    assert len(list(prose.faults_of_tests(path))) == 1
