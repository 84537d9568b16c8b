"""Prints docstrings, messages and pages at random, to be read as a stranger would read them.

    python -m tests.prose_sample --seed 27

Each should be understood without opening another file: the subject names the thing, the effect
stands before its cause, and the description of a parameter says what the value is.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

from tests.prose import MODULES, PAGES, ROOT

COUNTS = {"docstrings": 50, "messages": 30, "pages": 10}

Entry = tuple[str, str]
"""Where a text stands, and the text."""


def docstrings(path: Path, tree: ast.Module) -> Iterator[Entry]:
    """Yields the docstrings of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = getattr(node, "name", "the module")
            if text := ast.get_docstring(node):
                yield f"{path.relative_to(ROOT)}: {name}", text


def messages(path: Path, tree: ast.Module) -> Iterator[Entry]:
    """Yields the messages of raised exceptions, with the code of each value in braces."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
            continue
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        for message in node.exc.args:
            if isinstance(message, ast.JoinedStr):
                yield place, ast.unparse(message)[2:-1]
            elif isinstance(message, ast.Constant) and isinstance(message.value, str):
                yield place, message.value


def sample(seed: int) -> dict[str, list[Entry]]:
    """Returns the entries of each kind that a seed draws."""
    trees = [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES]
    texts = {
        "docstrings": [entry for each in trees for entry in docstrings(*each)],
        "messages": [entry for each in trees for entry in messages(*each)],
        "pages": [(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in PAGES],
    }
    generator = random.Random(seed)
    return {
        kind: generator.sample(entries, min(COUNTS[kind], len(entries)))
        for kind, entries in texts.items()
    }


def main() -> None:
    """Prints the sample of the seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=27)
    for kind, entries in sample(parser.parse_args().seed).items():
        print(f"\n===== {len(entries)} {kind}")
        for place, text in entries:
            print(f"\n--- {place}\n{text}")


if __name__ == "__main__":
    main()
