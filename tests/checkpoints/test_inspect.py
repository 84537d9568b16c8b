"""`inspect` infers the configuration from the headers of a file."""

import pytest

from keras_vit import checkpoints
from tests.golden import FOLDER

pytestmark = pytest.mark.without_backend


def test_inspect_counts_the_parameters_of_the_model():
    """As `count_params` of the loaded model."""
    info = checkpoints.inspect(FOLDER / "vit_token_published.npz")
    assert info.num_parameters == checkpoints.load(info.path).count_params()
