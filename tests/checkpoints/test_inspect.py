"""`inspect` infers the configuration from the headers of a file."""

import pytest

from keras_vit import checkpoints
from keras_vit.config import ResNetStem
from tests.golden import CASES, FOLDER, OFFICIAL

pytestmark = pytest.mark.without_backend


@pytest.mark.parametrize("name", OFFICIAL)
def test_inspect_infers_the_configuration_of_every_official_golden(name):
    """As far as the arrays determine it."""
    case = CASES[name]
    want = case["config"]
    info = checkpoints.inspect(FOLDER / case["checkpoint"])
    assert info.dialect == {"pre_linen": "google", "linen": "google_linen"}[case["layout"]]
    config = info.config
    for field in ("channels", "hidden_size", "mlp_dim", "num_heads", "num_layers"):
        assert getattr(config, field) == want[field], field
    if name != "vit_rep_dropped":
        assert config.num_classes == want["num_classes"]
        assert config.representation_size == want["representation_size"]
    assert list(config.patch_size) == want["patch_size"]
    assert config.has_class_token == want["classifier"].startswith("token")
    stem = want["resnet"]
    assert config.resnet == (stem if stem is None else ResNetStem.from_dict(stem))
    rows, columns = config.replace(
        image_size=tuple(want["checkpoint_image_size"]), position_grid=None, crop_remainder=True
    ).grid
    assert info.undetermined == (() if rows == columns else ("image_size",))
    if rows == columns:
        assert config.grid == (rows, columns)


def test_a_given_image_size_determines_the_grid_of_a_rectangle():
    """`undetermined` is then empty."""
    info = checkpoints.inspect(FOLDER / "vit_gap.npz", image_size=(20, 12))
    assert info.undetermined == ()
    assert info.config.grid == (5, 3)


def test_inspect_counts_the_parameters_of_the_model():
    """As `count_params` of the loaded model."""
    info = checkpoints.inspect(FOLDER / "vit_token_published.npz")
    assert info.num_parameters == checkpoints.load(info.path).count_params()
