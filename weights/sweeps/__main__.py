"""`python -m weights.sweeps LIBRARY [NAME ...]` runs a sweep, and writes JSON and documentation.

With names, only these architectures or classes run, and nothing is written. With `--release`, the
counts alone are written, for the release of the library that is installed.
"""

import importlib
import sys

from weights.sweeps import results


def main(library: str, names: tuple[str, ...], is_release: bool = False) -> int:
    """Runs a sweep; returns 1 if a model differs from the library's."""
    place = "weights.sweeps.timm" if library == "timm" else "weights.sweeps"
    found = []
    for outcome in importlib.import_module(place).outcomes(library, names):
        found.append(outcome)
        print(outcome.group, outcome.names[0], outcome.folder, outcome.file, sep=" | ", flush=True)
    if is_release:
        results.write_release(library, found)
    elif not names:
        results.write(library, found)
    answers = [answer for outcome in found for answer in (outcome.folder, outcome.file)]
    return int(any(answer.startswith("wrong") for answer in answers))


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--release"]
    sys.exit(main(arguments[0], tuple(arguments[1:]), "--release" in sys.argv))
