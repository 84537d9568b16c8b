"""docs/hardening.md names tests that exist."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.without_backend

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "hardening.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists():
    """Each of the 18 faults has one at least; `::name` is in the file named before it."""
    section = PAGE.split("## Faults that an audit found")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "::" in line]
    assert len(rows) == 18
    for row in rows:
        file = ""
        for named in re.findall(r"`([\w/.]*::\w+)`", row):
            file = named.split("::")[0] or file
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"\ndef {named.split('::')[1]}(" in text, named
