"""`python -m tests.sweeps LIBRARY` prints the table of a sweep."""

import importlib
import sys

from tests.sweeps import table

if __name__ == "__main__":
    library = importlib.import_module(f"tests.sweeps.{sys.argv[1]}")
    print(table(library.outcomes()))
