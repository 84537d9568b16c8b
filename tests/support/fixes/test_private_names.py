"""Every private name of another library has a row in the table of docs/upstream/README.md."""

import pytest

from tests.support.fixes.test_faults import REPORTS, ROOT
from tests.test_house import foreign_names_of_the_package

pytestmark = pytest.mark.without_backend

ROWS = {
    cells[1].strip().strip("`"): cells
    for line in (REPORTS / "README.md").read_text().splitlines()
    if len(cells := line.split("|")) == 6 and cells[1].strip().startswith("`")
}


def test_the_table_has_a_row_for_every_private_name_and_no_other():
    """Names that keras_vit itself defines need no row."""
    private = {part for row in ROWS for part in row.split(".") if part.startswith("_")}
    assert foreign_names_of_the_package() == private


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_of_the_table_names_an_existing_use_and_canary(name):
    """The file of the row contains the name, and the tests contain the canary."""
    _, _, where, _, canary, _ = ROWS[name]
    assert name.split(".")[-1] in (ROOT / where.strip().strip("`")).read_text()
    file, test = canary.strip().strip("`").split("::")
    assert f"def {test}(" in (ROOT / file).read_text()
