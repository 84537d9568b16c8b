"""Rules of words that a machine can see: `python -m tests.prose` prints what breaks them.

It reads the docstrings of the package, the prose of the pages, and the names of the tests. Part of
`make lint` and, by `test_words.py`, of the suite; it needs Python alone.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "keras_vit").rglob("*.py"))
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "SECURITY")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "explain").glob("*.md")),
]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))

LONGEST_SENTENCE, LONGEST_NAME = 40, 70

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NO_PROSE = r"\s*(Args|Attributes|Raises|Returns|Yields):|\s*[-|>=*]|\s{4}"
"""Beginnings of lists of arguments, tables, examples and formulas in docstrings."""
_NO_PROSE_OF_PAGES = r"\s*[|>#:<]|\s{4}"
"""Beginnings of tables, quotations, headings, directives and code in pages."""
_CONTINUED = re.compile(r"^ +[\w*, ]+: (?:of|whose|what|which)\b.*$", re.M)


def faults_of_module(path: Path) -> Iterator[str]:
    """Yields each fault of the docstrings: questions, continued names, long sentences."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    first, *rest = [
        ast.get_docstring(node) or "" for node in nodes if isinstance(node, _DOCUMENTED)
    ]
    if re.match(r"(What|How|Which)\b", first):
        yield f"the module begins as a question: {first.splitlines()[0]}"
    for docstring in (first, *rest):
        for line in _CONTINUED.findall(docstring):
            yield f"the description continues the name of the parameter: {line.strip()}"
        paragraphs = (text for text in re.split(r"\n\s*\n", docstring) if " | " not in text)
        yield from _long_sentences(text for text in paragraphs if not re.match(_NO_PROSE, text))


def faults_of_page(path: Path) -> Iterator[str]:
    """Yields each long sentence of a page in Markdown."""
    text = re.sub(r"(?ms)^```.*?^```", "", path.read_text(encoding="utf-8"))
    paragraphs = (
        text for text in re.split(r"\n\s*\n", text) if not re.match(_NO_PROSE_OF_PAGES, text)
    )
    items = (item for text in paragraphs for item in re.split(r"(?m)^\s*(?:[-*]|\d+\.)\s", text))
    yield from _long_sentences(items)


def faults_of_tests(path: Path) -> Iterator[str]:
    """Yields each long name of a test."""
    for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")):
        if len(name) > LONGEST_NAME:
            yield f"a name of more than {LONGEST_NAME} letters: {name}"


def _long_sentences(paragraphs: Iterator[str]) -> Iterator[str]:
    for text in paragraphs:
        for sentence in re.split(r"(?<=[.:;!?])\**\s+", " ".join(text.split())):
            if len(sentence.split()) > LONGEST_SENTENCE:
                yield f"a sentence of more than {LONGEST_SENTENCE} words: {sentence}"


RULES = (
    *((path, faults_of_module) for path in MODULES),
    *((path, faults_of_page) for path in PAGES),
    *((path, faults_of_tests) for path in TESTS),
)
"""Each file with the function that yields its faults."""


def main() -> int:
    """Prints the faults of all files; returns the exit status."""
    lines = [f"{path.relative_to(ROOT)}: {fault}" for path, rule in RULES for fault in rule(path)]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
