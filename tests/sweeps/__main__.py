"""`python -m tests.sweeps LIBRARY [NAME ...]` runs a sweep, and writes JSON and documentation.

With names, only these architectures or cases run, and nothing is written.
"""

import importlib
import sys

from tests.sweeps import results


def main(library: str, names: tuple[str, ...]) -> int:
    """Runs a sweep; returns 1 if a model differs from the library's."""
    module = "timm" if library == "timm" else "classes"
    sweep = importlib.import_module(f"tests.sweeps.{module}")
    found = []
    for outcome in sweep.outcomes(library, names):
        found.append(outcome)
        print(outcome.group, outcome.names[0], outcome.folder, outcome.file, sep=" | ", flush=True)
    if not names:
        results.write(library, found)
        results.document(library)
    answers = [answer for outcome in found for answer in (outcome.folder, outcome.file)]
    return int(any(answer.startswith("wrong") for answer in answers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], tuple(sys.argv[2:])))
