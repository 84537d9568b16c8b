"""Label maps from the patches of a frozen model, and the heads of segmentation in files."""

import keras
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, jaccard_score

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.evaluation import DenseProbe, dense_probe
from keras_vit.evaluation.label_maps import measure_areas
from tests.helpers import assert_close, normal, random_tiny

SIDE, CLASSES = 24, 3


def make_model(**fields):
    return random_tiny(**{"image_size": 32, "num_layers": 2, "num_classes": 0, **fields})


def shapes(count=6, height=SIDE, width=SIDE, seed=0):
    """Pictures of a red square and a blue bar on noise, and their label maps; 255 at the edge."""
    rng = np.random.default_rng(seed)
    images = rng.integers(80, 120, (count, height, width, 3)).astype("uint8")
    labels = np.zeros((count, height, width), "uint8")
    for image, label in zip(images, labels, strict=True):
        top, left = rng.integers(0, (height // 2, width // 2))
        place = slice(top, top + height // 3), slice(left, left + width // 3)
        image[place], label[place] = (230, 20, 20), 1
        image[-height // 4 :], label[-height // 4 :] = (20, 30, 220), 2
    labels[:, :, 0] = 255
    return images, labels


def compute_patches(model, images, blocks, class_token=False):
    """Features of each patch by `model.tokens`, `(images, rows, columns, width)`."""
    squash = [np.asarray(Image.fromarray(i).resize((32, 32), Image.BILINEAR)) for i in images]
    batch = np.stack(squash).astype("float32") / 127.5 - 1
    if model.data_format == "channels_first":
        batch = np.moveaxis(batch, -1, 1)
    tokens = model.tokens(batch, blocks, prepared=True).values()
    features = [t.patches for t in tokens]
    if class_token:
        features += [np.broadcast_to(t.class_token[:, None, None], t.patches.shape) for t in tokens]
    return np.concatenate(features, axis=-1).astype("float64")


@pytest.mark.parametrize("class_weights", [None, [0.5, 2.0, 1.0]])
@pytest.mark.parametrize("class_token", [False, True])
def test_the_fit_is_ridge_regression_on_all_pixels(class_weights, class_token):
    """Whitened by the weighted patches; each pixel has its patch's features and class's weight."""
    model = make_model(num_registers=2)
    images, labels = shapes()
    options = {"class_weights": class_weights, "class_token": class_token, "l2": 3.0}
    probe = dense_probe(model, images, labels, blocks=(0, -1), **options)
    features = compute_patches(model, images, [0, 1], class_token)
    pixels = features.repeat(6, axis=1).repeat(6, axis=2)  # 24 pixels, 4 patches of 6
    is_labelled = labels != 255
    x, y = pixels[is_labelled], np.eye(CLASSES)[labels[is_labelled]]
    weights = np.array(class_weights or [1.0] * CLASSES)[labels[is_labelled]] / 36
    mean = np.average(x, axis=0, weights=weights)
    std = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weights)) + 1e-5
    ridge = Ridge(alpha=3.0, solver="cholesky").fit((x - mean) / std, y, sample_weight=weights)
    expected = ridge.predict((x - mean) / std)
    assert_close(x @ probe.kernel + probe.bias, expected, 1e-6)
    assert probe.blocks == (0, 1)


def test_areas_of_maps_that_patches_do_not_divide_are_exact():
    """A map of 5x7 pixels under 2x3 patches equals the same map with every pixel divided."""
    labels = np.random.default_rng(0).integers(0, 3, (5, 7))
    labels[1, 2] = 255
    fine = labels.repeat(2, axis=0).repeat(3, axis=1)  # 10x21 small pixels, patches of 5x7
    blocks = fine.reshape(2, 5, 3, 7).swapaxes(1, 2).reshape(6, 35)
    expected = np.stack([(blocks == k).mean(axis=1) for k in range(3)], axis=1)
    np.testing.assert_allclose(measure_areas(labels, (2, 3), 3, 255), expected, atol=1e-12)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def probe(model):
    return dense_probe(model, *shapes(), l2=1.0)


def bilinear(logits, size):
    """Torch's bilinear resize without aligned corners, as DINOv2's evaluation has it."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(np.moveaxis(logits, -1, 0)[None])
    resized = torch.nn.functional.interpolate(tensor, size, mode="bilinear", align_corners=False)
    return np.moveaxis(resized[0].numpy(), 0, -1)


FORMS = [  # torch, the first backend, takes channels first
    ({"pooling": "gap", "num_registers": 2, "data_format": "channels_first"}, {}),
    ({}, {}),
    ({}, {"blocks": (0, 1), "class_token": True}),
]


@pytest.mark.parametrize(("fields", "options"), FORMS, ids=["channels first", "one", "token"])
def test_label_maps_have_the_size_of_their_images(fields, options):
    if "data_format" in fields and keras.backend.backend() == "tensorflow":
        pytest.skip("TensorFlow has no convolution of channels first on a CPU.")
    model = make_model(**fields)
    probe = dense_probe(model, *shapes(), **options)
    small, large = shapes(1)[0][0], shapes(1, 40, 57, seed=1)[0][0]
    found = probe.predict(model, [small, large])
    for image, labels in zip([small, large], found, strict=True):
        features = compute_patches(model, [image], probe.blocks, probe.class_token)
        logits = features[0] @ probe.kernel + probe.bias
        expected = bilinear(logits, image.shape[:2]).argmax(axis=-1)
        np.testing.assert_array_equal(labels, expected)
    assert probe.predict(model, large, size=(9, 11))[0].shape == (9, 11)


@pytest.mark.parametrize("size", [(64, 48), (61, 50), (20, 40)])
def test_sliding_windows_average_the_logits_of_patches(model, probe, size):
    """Windows of 4x4 patches every two patches, and one at the edge."""
    image = shapes(1, *size, seed=2)[0][0]
    scale = max(1, 32 / size[0], 32 / size[1])
    height, width = (max(32, round(side * scale / 8) * 8) for side in size)
    resized = np.asarray(Image.fromarray(image).resize((width, height), Image.BILINEAR))
    total = np.zeros((height // 8, width // 8, CLASSES))
    count = np.zeros((height // 8, width // 8, 1))
    for top in {*range(0, height - 31, 16), height - 32}:
        for left in {*range(0, width - 31, 16), width - 32}:
            window = resized[top : top + 32, left : left + 32]
            part = slice(top // 8, top // 8 + 4), slice(left // 8, left // 8 + 4)
            total[part] += compute_patches(model, [window], [1])[0] @ probe.kernel + probe.bias
            count[part] += 1
    expected = bilinear(total / count, size).argmax(axis=-1)
    np.testing.assert_array_equal(probe.predict(model, image, sliding=True)[0], expected)


def test_scores_are_those_of_scikit_learn(model, probe):
    images, labels = shapes(seed=3)
    scores = probe.evaluate(model, images, labels, batch_size=4)
    keep = labels != 255
    found = np.stack(probe.predict(model, images))[keep]
    expected = jaccard_score(labels[keep], found, average=None, labels=range(CLASSES))
    np.testing.assert_allclose(scores.iou, expected, rtol=1e-12)
    assert scores.miou == pytest.approx(expected.mean())
    assert scores.accuracy == pytest.approx(accuracy_score(labels[keep], found))
    assert scores.accuracy > 0.75


def test_a_class_without_pixels_has_no_share(model):
    images, labels = shapes()
    scores = dense_probe(model, images, labels, num_classes=5).evaluate(model, images, labels)
    assert scores.iou[3:] == (None, None)
    assert scores.miou == pytest.approx(np.mean(scores.iou[:3]))


def test_files_give_the_same_probe_and_features_are_kept(model, probe, tmp_path, bar):
    """PNG with a palette for the labels; an image that its EXIF tag turns; a second call."""
    images, labels = shapes()
    paths, maps = [], []
    for k, (image, label) in enumerate(zip(images, labels, strict=True)):
        picture, turned = Image.fromarray(image), Image.Exif()
        turned[0x0112] = 6  # a viewer turns it a quarter to the right
        picture.transpose(Image.Transpose.ROTATE_90).save(tmp_path / f"{k}.png", exif=turned)
        table = Image.fromarray(label, mode="P")
        table.putpalette(list(range(255, -1, -1)) * 3)
        table.save(tmp_path / f"{k}_labels.png")
        paths.append(tmp_path / f"{k}.png")
        maps.append(tmp_path / f"{k}_labels.png")
    for _ in range(2):
        options = {"l2": 1.0, "cache": tmp_path / "cache", "progress": True}
        found = dense_probe(model, paths, maps, **options)
        assert_close(found.kernel, probe.kernel, 1e-5)
    assert sum(bar.counts) == len(images)
    changed = images.copy()
    changed[3] += 9  # neither in the first batch nor in the last
    for pixels, total in ((images, 12), (images, 12), (changed, 18)):
        dense_probe(model, pixels, labels, batch_size=2, **options)
        assert sum(bar.counts) == total


def refused(message, error=ConfigError):
    return pytest.raises(error, match=message)


def test_damaged_photos_and_label_maps_are_refused_by_name(model, tmp_path):
    """Cut in the middle of their pixels; and a JPEG file, which changes the classes."""
    images, labels = shapes(1, 64, 64)
    noise = np.random.default_rng(0).integers(0, 3, (64, 64)).astype("uint8")
    for name, pixels in (("photo.png", images[0]), ("map.png", noise)):
        path = tmp_path / name
        Image.fromarray(pixels).save(path)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        photos, maps = ([path], labels) if name == "photo.png" else (images, [path])
        with refused(rf"{name}: not a readable image"):
            dense_probe(model, photos, maps)
    Image.fromarray(labels[0]).save(tmp_path / "map.jpg")
    with refused(r"map\.jpg: a JPEG file changes values; expected a label map in PNG"):
        dense_probe(model, images, [tmp_path / "map.jpg"])


def segmentation_head(width, classes=4):
    arrays = {
        "decode_head.conv_seg.weight": normal(classes, width, 1, 1, seed=1),
        "decode_head.conv_seg.bias": normal(classes, seed=2),
        "decode_head.bn.weight": normal(width, seed=3),
        "decode_head.bn.bias": normal(width, seed=4),
        "decode_head.bn.running_mean": normal(width, seed=5),
        "decode_head.bn.running_var": normal(width, seed=6) ** 2,
    }
    return arrays


@pytest.mark.parametrize("count", [1, 2])
def test_a_head_of_mmseg_has_the_logits_of_torch(model, tmp_path, count):
    """Batch norm and 1x1 convolution of torch, on the last blocks beside each other."""
    torch = pytest.importorskip("torch")
    arrays = {k: torch.tensor(v) for k, v in segmentation_head(16 * count).items()}
    torch.save({"state_dict": arrays}, tmp_path / "head.pth")
    found = DenseProbe.from_file(tmp_path / "head.pth", model, allow_pickle_weights=True)
    assert found.blocks == (0, 1)[-count:]
    short = {name.removeprefix("decode_head."): value.double() for name, value in arrays.items()}
    x = compute_patches(model, shapes(1)[0], found.blocks)
    normed = torch.nn.functional.batch_norm(
        torch.tensor(np.moveaxis(x, -1, 1)),
        *(short[f"bn.{name}"] for name in ("running_mean", "running_var", "weight", "bias")),
    )
    expected = torch.nn.functional.conv2d(normed, short["conv_seg.weight"], short["conv_seg.bias"])
    assert_close(x @ found.kernel + found.bias, np.moveaxis(expected.numpy(), 1, -1), 1e-6)
    assert found.predict(model, shapes(1)[0])[0].shape == (SIDE, SIDE)


def test_heads_that_do_not_fit_are_refused(model, tmp_path):
    path = tmp_path / "head.safetensors"
    for arrays, message in [
        (segmentation_head(24), "reads 24 features; expected a multiple of 16"),
        (segmentation_head(48), "reads 48 features.*another encoder"),
        ({"weight": normal(3, 16)}, "expected a linear head .*bn.bias.*found .*weight"),
        ({"decode_head.conv_depth.weight": normal(3, 16)}, "of segmentation.*heads of depth"),
        (
            {**segmentation_head(16), "decode_head.conv_seg.weight": normal(4, 16, 3, 3)},
            r"shape \(4, 16, 3, 3\), expected \(outputs, width, 1, 1\)",
        ),
        (
            {**segmentation_head(16), "decode_head.bn.weight": normal(1)},
            r"bn has arrays of shape .*\(1,\).*expected \(16,\), the width",
        ),
        ({**segmentation_head(16), "decode_head.bn.bias": np.full(16, np.nan)}, "bn.bias is empty"),
        ({**segmentation_head(16), "decode_head.bn.running_var": -np.ones(16)}, "running_var is"),
    ]:
        save_file(arrays, path)
        with refused(rf"head\.safetensors: .*{message}", CheckpointError):
            DenseProbe.from_file(path, model)
    with refused("reads 48 features; expected 2 times 16", CheckpointError):
        save_file(segmentation_head(48), path)
        DenseProbe.from_file(path, model, blocks=(0, 1))
