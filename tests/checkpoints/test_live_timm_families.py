"""timm and the families beyond ViT: files come back bit for bit, and timm opens what is written."""

import pytest

from keras_vit import checkpoints
from tests.family_goldens import CASES, FOLDER, cases_of, expected, relative_error
from tests.helpers import only_under

only_under("torch")
torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

timm = pytest.importorskip("timm")
from tests.live import assert_same_weights, channels_first  # noqa: E402

pytestmark = pytest.mark.usefixtures("offline")
NAMES = cases_of("timm")


def run(folder, image):
    """The outputs of timm's model of a folder; an array too few or many is an error for timm."""
    theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    with torch.no_grad():
        pixels = channels_first(image)
        pooled = theirs.forward_head(theirs.forward_features(pixels), pre_logits=True)
        return {"logits": theirs(pixels).numpy(), "pre_logits": pooled.numpy()}


@pytest.mark.parametrize("name", NAMES)
def test_files_come_back_and_timm_computes_the_same(name, tmp_path):
    """timm's file, converted: the same names and bits; timm gives its outputs of before."""
    source, want = FOLDER / CASES[name]["checkpoint"], expected(name)
    checkpoints.convert(source, tmp_path / "x", "timm")
    assert_same_weights(source, tmp_path / "x")
    got = run(tmp_path / "x", want["image"])
    for stage in {"logits", "pre_logits"} & want.keys():
        assert relative_error(got[stage], want[stage]) <= 1e-6
