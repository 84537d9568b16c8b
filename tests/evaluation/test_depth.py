"""Metres per pixel by the linear heads of depth that DINOv2 publishes."""

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.evaluation import DepthProbe
from tests.helpers import assert_close, normal, random_tiny

BINS, SIDE = 256, 32


def make_model(**fields):
    return random_tiny(**{"image_size": SIDE, "num_layers": 4, "num_classes": 0, **fields})


@pytest.fixture(scope="module")
def model():
    return make_model(num_registers=2)


def make_head(width, bins=BINS):
    return {
        "decode_head.conv_depth.weight": normal(bins, width, 1, 1, seed=1),
        "decode_head.conv_depth.bias": normal(bins, seed=2),
    }


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype("uint8")


def reference(model, image, arrays, blocks, size, max_depth):
    """`BNHead` and `DepthEncoderDecoder` of DINOv2's `hub/depth`, by modules of torch."""
    torch = pytest.importorskip("torch")
    squashed = np.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.BILINEAR))
    batch = squashed[None].astype("float32") / 127.5 - 1
    tokens = model.tokens(batch, blocks, norm=False, prepared=True)
    inputs = []
    for block in blocks:
        patches = torch.tensor(tokens[block].patches).permute(0, 3, 1, 2).double()
        token = torch.tensor(tokens[block].class_token).double()[:, :, None, None]
        inputs.append(torch.cat((patches, token.expand_as(patches)), 1))
    interpolate = torch.nn.functional.interpolate
    fine = [4 * side for side in inputs[0].shape[2:]]
    inputs = [interpolate(x, fine, mode="bilinear", align_corners=False) for x in inputs]
    x = torch.cat(inputs, dim=1)
    convolution = torch.nn.Conv2d(x.shape[1], BINS, kernel_size=1).double()
    weights = {name.rpartition(".")[2]: torch.tensor(value) for name, value in arrays.items()}
    convolution.load_state_dict(weights)
    logit = torch.relu(convolution(x)) + 0.1
    logit = logit / logit.sum(dim=1, keepdim=True)
    bins = torch.linspace(0.001, max_depth, BINS).double()
    depth = torch.einsum("ikmn,k->imn", logit, bins).unsqueeze(dim=1)
    depth = torch.clamp(depth, min=0.001, max=max_depth)
    depth = interpolate(depth, size, mode="bilinear", align_corners=False)
    return depth[0, 0].detach().numpy()


@pytest.mark.parametrize(
    ("count", "blocks", "expected"),
    [(1, None, (3,)), (4, None, (0, 1, 2, 3)), (2, (0, -2), (0, 2))],
)
def test_depth_is_that_of_the_modules_of_torch(model, tmp_path, count, blocks, expected):
    """Patch and class token of each block beside each other, before the last norm."""
    torch = pytest.importorskip("torch")
    arrays, path = make_head(2 * 16 * count), tmp_path / "dinov2_vits14_nyu_linear4_head.pth"
    torch.save({"state_dict": {name: torch.tensor(v) for name, v in arrays.items()}}, path)
    options = {"max_depth": 10.0, "blocks": blocks, "allow_pickle_weights": True}
    probe = DepthProbe.from_file(path, model, **options)
    assert probe.blocks == expected
    images = [picture(24, 24), picture(40, 57, seed=1)]
    for image, depth in zip(images, probe.predict(model, images, batch_size=1), strict=True):
        assert depth.dtype == np.float32
        assert_close(depth, reference(model, image, arrays, expected, image.shape[:2], 10.0))
    resized = probe.predict(model, images[0], size=(9, 70))[0]
    assert_close(resized, reference(model, images[0], arrays, expected, (9, 70), 10.0))


@pytest.mark.without_backend
@pytest.mark.parametrize(
    ("layers", "blocks"),
    [(12, (2, 5, 8, 11)), (24, (4, 11, 17, 23)), (40, (9, 19, 29, 39))],
)
def test_four_blocks_are_those_of_the_published_heads(layers, blocks, tmp_path):
    """As `out_index` in DINOv2's `hub/depthers.py`; a configuration stands for the model."""
    from types import SimpleNamespace

    config = SimpleNamespace(hidden_size=16, num_layers=layers)
    save_file(make_head(2 * 16 * 4), tmp_path / "head.safetensors")
    options = {"model": SimpleNamespace(config=config), "max_depth": 80.0}
    assert DepthProbe.from_file(tmp_path / "head.safetensors", **options).blocks == blocks


def test_another_model_is_refused(model, tmp_path):
    save_file(make_head(32), tmp_path / "head.safetensors")
    probe = DepthProbe.from_file(tmp_path / "head.safetensors", model, max_depth=10.0)
    with pytest.raises(ConfigError, match="The probe reads 32 features.*64 features in as many"):
        probe.predict(make_model(hidden_size=32), picture(24, 24))
    with pytest.raises(ConfigError, match="no class token"):
        probe.predict(make_model(pooling="gap"), picture(24, 24))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (make_head(40), "reads 40 features; expected a multiple of 32 for hidden_size=16.*another"),
        (make_head(32 * 5), "reads 160 features.*belongs to another encoder"),
        (make_head(32, bins=1), "1 bin of depth, expected two or more"),
        (
            {**make_head(32), "decode_head.conv_depth.bias": normal(7)},
            r"shape \(256, 32, 1, 1\), expected .* bias of shape \(7,\)",
        ),
        ({"weight": normal(3, 16)}, "linear head of depth, which has .*conv_depth.bias.*found"),
        ({"decode_head.conv_seg.weight": normal(3, 16)}, "head of depth.*DenseProbe reads heads"),
        (
            {"decode_head.fusion_blocks.0.project.conv.weight": normal(3, 16)},
            "found .*fusion_blocks.0.*DPT and Mask2Former are not supported",
        ),
    ],
)
def test_files_without_a_fitting_head_of_depth_are_refused(model, arrays, message, tmp_path):
    save_file(arrays, tmp_path / "head.safetensors")
    with pytest.raises(CheckpointError, match=rf"head\.safetensors: .*{message}"):
        DepthProbe.from_file(tmp_path / "head.safetensors", model, max_depth=10.0)


@pytest.mark.parametrize("depths", [(0.001, 0.0), (1, 1), (0, float("nan")), (0, np.inf), (-1, 2)])
def test_impossible_depths_are_refused(model, depths, tmp_path):
    save_file(make_head(32), tmp_path / "head.safetensors")
    options = dict(zip(("min_depth", "max_depth"), depths, strict=True))
    with pytest.raises(ConfigError, match="0 <= min_depth < max_depth"):
        DepthProbe.from_file(tmp_path / "head.safetensors", model, **options)
