"""Quick compilation for the tests of layers, which compile much and compute little."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quickly(quick_compilation):
    """Applies to every module of this folder."""
