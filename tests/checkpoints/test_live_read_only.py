"""Classes of transformers whose files are read alone, Flava and DPT; SigLIP 2 beside its text."""

import pytest

from keras_vit import CheckpointError, checkpoints
from tests.family_goldens import relative_error
from tests.helpers import normal, numpy_of, only_under

# The graph is that of other classes, which goldens compare on every backend; here files are read.
only_under("torch")
torch = pytest.importorskip("torch")
from tests import torchvision_shim  # noqa: E402, F401

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
}
IMAGE = normal(2, 16, 16, 3)


def random_model(kind, config):
    """A model of transformers with a random number in every array."""
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    return model


def pixels():
    return torch.from_numpy(IMAGE.transpose(0, 3, 1, 2).copy())


def packed(image=IMAGE, patch=4):
    """The rows of SigLIP 2's processor: patches by rows, each by row, column and channel."""
    n, height, width, c = image.shape
    grid = (height // patch, width // patch)
    rows = image.reshape(n, grid[0], patch, grid[1], patch, c).transpose(0, 1, 3, 2, 4, 5)
    return {
        "pixel_values": torch.from_numpy(rows.reshape(n, grid[0] * grid[1], -1).copy()),
        "pixel_attention_mask": torch.ones(n, grid[0] * grid[1], dtype=torch.int64),
        "spatial_shapes": torch.tensor([grid] * n),
    }


def test_flava_image_model(tmp_path):
    """Tokens behind the last norm, and the pooler's output, within 1e-5."""
    model = random_model(
        transformers.FlavaImageModel, transformers.FlavaImageConfig(**SIZES, image_size=16)
    )
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        want = model(pixels()).pooler_output.numpy()
    ours = checkpoints.load(tmp_path)
    assert ours.config.representation_size == 24
    assert relative_error(numpy_of(ours(IMAGE)), want) <= 1e-5
    with pytest.raises(CheckpointError, match="an image model without the text"):
        checkpoints.save(ours, tmp_path / "x", "transformers/flava_image_model")


def test_dpt_encoder(tmp_path):
    """The class token behind the last norm; the decoder is left out; a hybrid is refused."""
    config = transformers.DPTConfig(
        **SIZES, image_size=16, backbone_out_indices=[0, 0, 1, 1], neck_hidden_sizes=[4, 4, 4, 4],
        fusion_hidden_size=4, hidden_act="gelu",
    )  # fmt: skip
    model = random_model(transformers.DPTForDepthEstimation, config)
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        want = model.dpt(pixels()).last_hidden_state[:, 0].numpy()
    info = checkpoints.inspect(tmp_path)
    assert info.dialect == "transformers/dpt"
    assert any(name.startswith("neck.") for name in info.ignored)
    assert relative_error(numpy_of(checkpoints.load(tmp_path)(IMAGE)), want) <= 1e-5


@pytest.mark.parametrize("size", [(16, 16), (12, 24)])
def test_siglip2_two_towers_for_images_of_one_size(size, tmp_path):
    """The vision tower at the stored grid, and at another one."""
    vision = {**SIZES, "num_patches": 16}
    text = {k: v for k, v in SIZES.items() if k != "patch_size"}
    config = transformers.Siglip2Config(
        vision_config=vision, text_config={**text, "vocab_size": 30, "projection_size": 24}
    )
    model = random_model(transformers.Siglip2Model, config)
    model.save_pretrained(tmp_path)
    image = normal(2, *size, 3)
    with torch.no_grad():
        want = model.get_image_features(**packed(image))
    want = want if torch.is_tensor(want) else want.pooler_output
    ours = checkpoints.load(tmp_path, image_size=size, native_aspect=False)
    assert relative_error(numpy_of(ours(image)), want.numpy()) <= 1e-5
