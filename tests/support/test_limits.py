"""Every limit is documented in SECURITY.md and can be raised by an environment variable."""

import re
from pathlib import Path

import pytest

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.support import limits
from keras_vit.support.limits import Limit

pytestmark = pytest.mark.without_backend

LIMITS = [value for value in vars(limits).values() if isinstance(value, Limit)]
STATED = (Path(__file__).parents[2] / "SECURITY.md").read_text()


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.variable)
def test_security_md_states_the_limit(limit):
    """With its variable and its default."""
    assert re.search(rf"`{limit.variable}` \| {limit.default:,} \|", STATED)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.variable)
def test_a_limit_can_be_raised(limit, monkeypatch):
    """The message names the variable; with the variable set, the same number passes."""
    limit.check(limit.default, "x.npz", CheckpointError)
    with pytest.raises(CheckpointError, match=f"^x.npz: .*set {limit.variable} in the"):
        limit.check(limit.default + 1, "x.npz", CheckpointError)
    monkeypatch.setenv(limit.variable, str(limit.default + 1))
    limit.check(limit.default + 1, "x.npz", CheckpointError)
    for value in ("1e9", "many", "0", "-3", ""):
        monkeypatch.setenv(limit.variable, value)
        message = f"{limit.variable}='{value}': expected a positive integer"
        with pytest.raises(ConfigError, match=message):
            limit.check(1, "x.npz", CheckpointError)
