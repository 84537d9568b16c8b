"""Every limit is documented in SECURITY.md and can be raised by an environment variable."""

import re
from pathlib import Path

import pytest

from keras_vit.errors import CheckpointError
from keras_vit.support import limits

pytestmark = pytest.mark.without_backend

LIMITS = [value for value in vars(limits).values() if isinstance(value, limits.Limit)]
STATED = (Path(__file__).parents[2] / "SECURITY.md").read_text()


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.variable)
def test_a_limit_is_stated_and_can_be_raised(limit, monkeypatch):
    """With its variable and its default; with the variable set, the same number passes."""
    assert re.search(rf"`{limit.variable}` \| {limit.default:,} \|", STATED)
    limit.check(limit.default, "x.npz", CheckpointError)
    with pytest.raises(CheckpointError, match=f"^x.npz: .*set {limit.variable} in the"):
        limit.check(limit.default + 1, "x.npz", CheckpointError)
    monkeypatch.setenv(limit.variable, str(limit.default + 1))
    limit.check(limit.default + 1, "x.npz", CheckpointError)
