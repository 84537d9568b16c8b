"""The module of goldens by the name of before; `FOLDER` is that of the families."""

from tests.golden import CASES, expected, load_case, outputs, relative_error
from tests.golden import FAMILIES as FOLDER

__all__ = ["CASES", "FOLDER", "expected", "load_case", "outputs", "relative_error"]
