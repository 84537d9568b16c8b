"""A model of packed patches keeps every promise of a keras_vit model."""

import numpy as np
import pytest
from PIL import Image

from keras_vit import Preprocessor, VisionTransformer, explain, export
from keras_vit.data import Augmentation, from_folder
from keras_vit.errors import ConfigError
from keras_vit.evaluation import features
from keras_vit.evaluation.embedding import embed
from keras_vit.models.inference import run
from tests.helpers import (
    assert_close,
    assert_remat_trains_alike,
    copy_weights,
    random_tiny,
    tiny,
    to_numpy,
)
from tests.plain import ROUNDING, normal, raises

pytestmark = pytest.mark.every_backend

POOLS = {
    "map": {"pool": {"kind": "map_of_patches"}, "tokens": {"class_tokens": 0, "registers": 1}},
    "gap": {
        "pool": {"kind": "gap", "norm": "after"},
        "tokens": {"class_tokens": 0, "registers": 2},
    },
    "token": {"pool": {"kind": "token"}, "block": {"layer_scale": 1e-5, "input_norm": "patches"}},
    "mean": {"pool": {"kind": "token_and_mean"}, "position": "learned_patches", "rescale": True},
    "free": {
        "pool": {"kind": "map"},
        "tokens": {"class_tokens": 0, "mask": True},
        "position": "none",
    },
}
pools = pytest.mark.parametrize("fields", POOLS.values(), ids=POOLS)
SIDES = [(30, 90), (80, 20), (33, 44), (8, 8), (16, 16)]


def make_model(fields, **others):
    """A model of at most 16 patches, whose positions are stored for 9."""
    sizes = {"image_size": 16, "patch_size": 4, "position_grid": (3, 3), "num_classes": 3}
    return random_tiny(**{**sizes, "stem": {"kind": "packed"}, **fields, **others})


def pictures():
    """Images of several shapes."""
    return [
        Image.fromarray((np.abs(normal(*side, 3, seed=k)) * 60).clip(0, 255).astype("uint8"))
        for k, side in enumerate(SIDES)
    ]


@pytest.fixture
def folder(tmp_path):
    """A folder with images of several shapes in two classes."""
    for k, picture in enumerate(pictures()):
        (tmp_path / "images" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / "images" / "ab"[k % 2] / f"{k}.png")
    return tmp_path / "images"


@pools
def test_an_image_gives_the_same_in_a_batch_and_alone(fields):
    """Padding takes no part, whatever pixels it has, and however the batch is filled up."""
    model = make_model(fields)
    batch = model.preprocessor(pictures())
    assert len({tuple(image.max(axis=0)[-2:]) for image in batch}) > 2  # grids differ
    alone = np.concatenate([run(model, image[None]) for image in batch])
    assert_close(run(model, batch, batch_size=3), alone, 1e-5)
    batch[..., :-2][batch[..., -1] < 0] = 0.9
    assert_close(run(model, batch), alone, 1e-5)
    assert_close(to_numpy(model(batch)), alone, 1e-5)


@pools
def test_full_square_images_give_what_a_model_of_images_gives(fields):
    """The same weights without the packing are a model for images of one size."""
    model = make_model(fields)
    plain = copy_weights(
        model, tiny(**model.config.replace(stem={"kind": "none"}).to_dict(), rescale=model.rescale)
    )
    images = normal(2, 16, 16, 3)
    assert_close(run(model, model.preprocessor.stack(images)), run(plain, images), 1e-5)


@pytest.mark.on_backend("torch")
def test_another_image_size_moves_the_limit_and_not_the_stored_positions(tmp_path):
    """An image of 16 patches has the same output under a limit of 36."""
    model = make_model(POOLS["map"])
    model.save_to_preset(tmp_path / "preset")
    prepared = Preprocessor.from_preset(tmp_path / "preset")(pictures())
    np.testing.assert_array_equal(prepared, model.preprocessor(pictures()))
    larger = VisionTransformer.from_preset(tmp_path / "preset", image_size=24)
    assert larger.input_shape == (None, 36, 50)
    given = normal(1, 16, 48), [(2, 8)]
    packed = model.preprocessor.pack(*given), larger.preprocessor.pack(*given)
    assert_close(run(larger, packed[1]), run(model, packed[0]), 1e-5)


def test_training_with_remat_gives_the_same_weights():
    """One step of SGD on a batch with padding."""
    model = make_model(POOLS["gap"])
    batch = model.preprocessor(pictures())
    assert_remat_trains_alike(model, batch, np.array([0, 2, 1, 1, 0]), 1e-5)
    assert all(np.isfinite(to_numpy(weight)).all() for weight in model.weights)


def test_mixed_precision_only_rounds():
    """Places stay whole numbers."""
    model = make_model(POOLS["map"])
    mixed = copy_weights(model, tiny(**model.config.to_dict(), dtype="mixed_bfloat16"))
    batch = model.preprocessor(pictures())
    assert_close(mixed(batch), to_numpy(model(batch)), 3 * ROUNDING["mixed_bfloat16"])


@pytest.mark.on_backend("torch")
def test_packed_patches_are_the_same_under_every_data_format():
    """Under "channels_first" too, a patch holds rows, columns and channels."""
    model = make_model(POOLS["token"])
    first = copy_weights(model, tiny(**model.config.to_dict(), data_format="channels_first"))
    batch = first.preprocessor(pictures())
    np.testing.assert_array_equal(batch, model.preprocessor(pictures()))
    np.testing.assert_array_equal(run(first, batch), run(model, batch))


def test_a_folder_of_mixed_shapes_is_classified_and_has_features(folder, tmp_path):
    """One batch holds images of unequal shape, each at its own aspect ratio."""
    model = make_model(POOLS["map"], num_classes=2)
    data = from_folder(folder, model, batch_size=5)
    found = features(model, data)
    files = sorted(folder.rglob("*.png"))
    batch = model.preprocessor(files)
    assert_close(found.values, run(model, batch, ["pre_logits"])["pre_logits"], 1e-5)
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    answers = model.classify(files, top=1)
    best = run(model, batch).argmax(axis=1)
    assert [answer[0][0] for answer in answers] == ["ab"[k] for k in best]
    embed(model, files, tmp_path / "all.npy")
    assert_close(np.load(tmp_path / "all.npy"), found.values, 1e-5)
    model.compile("sgd", "auto")
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()


@pytest.mark.on_backend("torch")
def test_mixing_of_packed_patches_is_refused(folder):
    """Mixup would mix the places of patches; a crop and a flip are of the image."""
    model = make_model(POOLS["gap"], num_classes=2)
    with raises(ConfigError, "packed patches", "mixup=0"):
        from_folder(folder, model, augmentation=Augmentation(mixup=0.2), one_hot=True)
    batch = from_folder(folder, model, augmentation=Augmentation(crop=None), batch_size=5)[0][0]
    assert batch.shape == (5, 16, 50)


SIZED = ("images of one size", 'stem={"kind": "none"}', "16")
PACKED = ("packed patches (batch, 16, 50)", "preprocessor", "pack()")
GAP = {"pool": {"kind": "gap"}, "tokens": {"class_tokens": 0}}


@pytest.mark.on_backend("torch")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda model: model.tokens(model.preprocessor(pictures()), prepared=True), SIZED),
        (lambda model: explain(model, model.preprocessor(pictures()), prepared=True), SIZED),
        (lambda model: export(model, "absent/x.onnx", format="onnx"), SIZED),
        (lambda model: run(model, normal(2, 16, 16, 3)), PACKED),
        (lambda model: run(model, normal(2, 25, 50)), PACKED),
        (lambda model: model.preprocessor.pack(normal(1, 18, 48), [(2, 9)]),
         ("2x9 patches", "1 to 16", "image_size=")),
        (lambda model: model.preprocessor.pixels(model.preprocessor(pictures())),
         ("one size", "packed patches")),
        (lambda _: make_model(GAP, image_size=None), ("stem.kind='packed'", "(None, None)")),
        (lambda _: make_model(GAP, rope={"form": "axial"}), ("stem.kind='packed'", "rope")),
        (lambda _: make_model(GAP, position="sincos2d"), ("stem.kind='packed'", "sincos2d")),
    ],
)  # fmt: skip
def test_what_needs_one_size_and_other_arrays_are_refused(call, words):
    """One sentence, which names the way out."""
    with raises(ConfigError, *words):
        call(make_model(POOLS["map"]))


def test_no_warning_takes_places_for_pixels(recwarn):
    """A row of 16 patches has places up to 15; prepared pixels are in [-1, 1]."""
    model = make_model(POOLS["map"])
    run(model, model.preprocessor.pack(normal(1, 16, 48).clip(-1, 1), [(1, 16)]))
    assert not [warning for warning in recwarn if "pixels" in str(warning.message)]


def test_a_server_answers_what_classify_answers(tmp_path):
    """An image has fewer rows of patches than a patch has pixels; a map of attention is refused."""
    testclient = pytest.importorskip("fastapi.testclient")
    from keras_vit.serving import application

    model, file = make_model(POOLS["gap"], image_size=8, patch_size=4), tmp_path / "image.png"
    pictures()[0].save(file)
    with testclient.TestClient(application(model), base_url="http://localhost") as client:
        headers = {"Content-Type": "image/png"}
        answer = client.post("/classify?top=1", content=file.read_bytes(), headers=headers)
        (best,) = answer.json()["predictions"][0]
        label, share = model.classify(file, top=1)[0][0]
        assert best["label"] == label
        assert best["probability"] == pytest.approx(share, rel=1e-5)
        refused = client.post("/explain", content=file.read_bytes(), headers=headers)
        assert refused.status_code == 404
